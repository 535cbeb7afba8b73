"""Wide convolutions against torch's own, on the CPU in float64."""

import pytest
import torch
from torch import nn

from unbag.convolution import Conv3x3, _pack, _packing, _unpack, _WideConvolution
from unbag.models import ResNet20

SHAPES = [(16, 16, 32), (8, 16, 32), (32, 32, 16), (16, 16, 6)]
FACTORS = [4, 4, 2, 2]


def images(channels, width, n=3, height=5):
    x = torch.randn(n, channels, height, width, dtype=torch.float64)
    return x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("channels_in", "channels_out", "width"), SHAPES)
def test_wide_convolution_equals_torchs(channels_in, channels_out, width):
    torch.manual_seed(0)
    x = images(channels_in, width).requires_grad_()
    weight = torch.randn(channels_out, channels_in, 3, 3, dtype=torch.float64, requires_grad=True)
    out, expected = _WideConvolution.apply(x, weight), torch.conv2d(x, weight, padding=1)
    assert out.shape == expected.shape
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    incoming = images(channels_out, width)
    gradient, others = (torch.autograd.grad(y, (x, weight), incoming) for y in (out, expected))
    torch.testing.assert_close(gradient[0], others[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(gradient[1], others[1], rtol=0, atol=1e-4)  # it is summed in float32


def test_wide_convolution_of_rows_that_need_no_gradient():
    torch.manual_seed(0)
    x = images(16, 8)
    weight = torch.randn(16, 16, 3, 3, dtype=torch.float64, requires_grad=True)
    gradient, expected = (
        torch.autograd.grad(y.square().sum(), weight)[0]
        for y in (_WideConvolution.apply(x, weight), torch.conv2d(x, weight, padding=1))
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-4)


def test_pixels_are_joined_until_the_channels_are_many_or_the_width_is_odd():
    assert [_packing(channels, width) for _, channels, width in SHAPES] == FACTORS
    assert _packing(64, 32) == 1
    assert _packing(16, 7) == 1
    assert _packing(1, 64) == 64


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_packing_is_a_view_and_is_undone(factor):
    x = images(8, 12)
    packed = _pack(x, factor)
    assert packed.shape == (3, 8 * factor, 5, 12 // factor)
    assert packed.data_ptr() == x.data_ptr()
    assert packed.is_contiguous(memory_format=torch.channels_last)
    for pixel in range(factor):
        part = packed[:, 8 * pixel : 8 * (pixel + 1)]
        assert torch.equal(part, x[..., pixel::factor])
    unpacked = _unpack(packed, factor)
    assert unpacked.data_ptr() == x.data_ptr()
    assert torch.equal(unpacked, x)
    other_layout = x.contiguous()
    assert torch.equal(_unpack(_pack(other_layout, factor), factor), x)


@pytest.mark.parametrize("stride", [1, 2])
def test_on_the_cpu_it_is_the_plain_convolution(stride):
    torch.manual_seed(0)
    own = Conv3x3(3, 16, stride)
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 16, 3, stride, padding=1, bias=False)
    assert own.state_dict().keys() == plain.state_dict().keys()
    assert torch.equal(own.weight, plain.weight)
    x = torch.randn(4, 3, 8, 8)
    out, expected = own(x), plain(x)
    assert torch.equal(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert torch.equal(own.weight.grad, plain.weight.grad)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(own(x), plain(x))


def network_and_images():
    torch.manual_seed(0)
    return ResNet20(3, 10).double(), images(3, 16, n=4, height=16)


def test_resnet_is_that_of_plain_convolutions(monkeypatch):
    network, x = network_and_images()
    out = network(x)
    monkeypatch.delattr(Conv3x3, "forward")
    assert torch.equal(network(x), out)


def test_resnet_is_unchanged_by_wide_convolutions(monkeypatch):
    network, x = network_and_images()
    weights = list(network.parameters())
    out = network(x)
    gradients = torch.autograd.grad(out.square().sum(), weights)
    wide = []

    def forward(self, x):
        if self.out_channels >= 64 or self.stride != (1, 1):
            return nn.Conv2d.forward(self, x)
        wide.append(self)
        return _WideConvolution.apply(x, self.weight)

    monkeypatch.setattr(Conv3x3, "forward", forward)
    again = network(x)
    assert len(wide) == 12  # the first, six of 16 channels and five of 32
    torch.testing.assert_close(again, out, rtol=0, atol=1e-10)
    others = torch.autograd.grad(again.square().sum(), weights)
    for one, other in zip(gradients, others, strict=True):
        scale = float(one.abs().max())
        torch.testing.assert_close(other, one, rtol=0, atol=1e-5 * scale + 1e-9)
