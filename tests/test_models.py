import math

import pytest
import torch
from torch import nn

from unbag.exceptions import InvalidInputError
from unbag.models import (
    IMAGE_MODELS,
    MLP,
    MODELS,
    LeNet5,
    ResNet18,
    ResNet20,
    WideResNet,
    build_model,
    is_convolutional,
    is_normalized,
)

SHAPES = {"linear": (16,), "mlp": (16,), **dict.fromkeys(IMAGE_MODELS, (3, 32, 32))}


def n_parameters(module):
    return sum(p.numel() for p in module.parameters())


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_gives_logits(name):
    model = build_model(name, SHAPES[name], 10, seed=0)
    assert model(torch.rand(2, *SHAPES[name])).shape == (2, 10)


@pytest.mark.parametrize(
    ("depth", "width", "expected"),
    [
        (1, 300, 16 * 10 + 10),
        (3, 300, (16 * 300 + 300) + (300 * 300 + 300) + (300 * 10 + 10) + 2 * 600),
        (5, 20, (16 * 20 + 20) + 3 * (20 * 20 + 20) + (20 * 10 + 10) + 4 * 40),
    ],
)
def test_mlp_has_the_depth_and_width_asked_for(depth, width, expected):
    mlp = MLP(16, 10, depth=depth, width=width)
    assert n_parameters(mlp) == expected
    linears, norms = mlp.blocks()
    assert len(linears) == depth
    assert len(norms) == depth - 1


def test_linear_is_an_mlp_of_depth_one():
    model = build_model("linear", (4, 4), 3, seed=0)
    x = torch.rand(5, 4, 4)
    linear = model.blocks()[0][0]
    assert n_parameters(model) == 16 * 3 + 3
    assert torch.equal(model(x), linear(x.flatten(1)))


def test_dropout_acts_in_training_only():
    model = MLP(4, 2, width=50, dropout=0.5)
    x = torch.rand(6, 4)
    model(x)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_resnet_has_the_published_size():
    net = ResNet20(3, 10)
    assert n_parameters(net) == 269_722
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) + 1 == 20  # and the linear output
    assert n_parameters(ResNet20(1, 10)) == 269_722 - 2 * 16 * 9


def test_resnet_shortcuts_have_no_parameters():
    """With the residual branch at zero a block is its shortcut: subsampling and zero padding."""
    net = ResNet20(3, 10)
    for block, channels in zip(net.blocks, [16] * 3 + [32] * 3 + [64] * 3, strict=True):
        assert {name.split(".")[0] for name, _ in block.named_parameters()} == {
            "conv1",
            "conv2",
            "norm1",
            "norm2",
        }
        nn.init.zeros_(block.norm2.weight)
        x = torch.rand(2, block.conv1.in_channels, 8, 8)
        out = block(x)
        added = channels - x.shape[1]
        if added:
            shortcut = out[:, added // 2 : channels - added // 2]
            assert torch.equal(shortcut, x[:, :, ::2, ::2])
            assert not out[:, : added // 2].any()
            assert not out[:, channels - added // 2 :].any()
        else:
            assert torch.equal(out, x)


def test_resnet_starts_from_he_initialisation():
    net = build_model("resnet20", (3, 32, 32), 10, seed=0)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            expected = math.sqrt(2 / (9 * module.in_channels))
            n = module.weight.numel()
            assert abs(module.weight.std().item() / expected - 1) < 5 / math.sqrt(2 * n)
            assert abs(module.weight.mean().item()) < 5 * expected / math.sqrt(n)
    assert not net.output.bias.any()


@pytest.mark.parametrize(
    ("module", "size", "layers"),
    [
        (LeNet5(1, 10), 61_706, 5),
        (ResNet18(3, 10), 11_173_962, 18),
        (WideResNet(3, 10), 1_467_610, 26),
        (WideResNet(1, 4, depth=10, width=1), 77_172, 8),
    ],
    ids=["lenet5", "resnet18", "wrn28-2", "wrn10-1"],
)
def test_networks_of_images_have_the_published_size(module, size, layers):
    assert n_parameters(module) == size
    parts = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len([p for p in parts if getattr(p, "kernel_size", (3, 3)) != (1, 1)]) == layers
    assert module.architecture != type(module)(2, 3).architecture


def test_lenet_fits_images_of_other_sizes():
    net = build_model("lenet5", (3, 20, 12), 4, seed=0)
    assert net(torch.rand(2, 3, 20, 12)).shape == (2, 4)


def test_what_a_network_is_is_told_by_its_layers():
    own = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.LazyLinear(2))
    assert is_convolutional(own)
    assert is_normalized(own)
    own[1].requires_grad_(False)
    assert not is_normalized(own)
    kinds = {name: build_model(name, SHAPES[name], 2, seed=0) for name in MODELS}
    assert [name for name in MODELS if is_convolutional(kinds[name])] == list(IMAGE_MODELS)
    assert not is_normalized(kinds["lenet5"])
    assert is_normalized(kinds["wrn28-2"])


def test_resnet_takes_images_without_a_channel_axis():
    net = build_model("resnet20", (28, 28), 10, seed=0).eval()
    x = torch.rand(2, 28, 28)
    assert torch.equal(net(x), net(x[:, None]))


@pytest.mark.parametrize("name", MODELS)
def test_weights_depend_on_the_seed_alone(name):
    torch.manual_seed(1)
    first = build_model(name, SHAPES[name], 10, seed=3)
    torch.manual_seed(2)
    assert same_weights(first, build_model(name, SHAPES[name], 10, seed=3))
    assert not same_weights(first, build_model(name, SHAPES[name], 10, seed=4))


def test_the_global_generators_are_left_alone(monkeypatch):
    """On a GPU too: one that is not in use yet must not be seeded."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _seed: pytest.fail("GPU seeded"))
    before = torch.random.get_rng_state()
    build_model("mlp", (16,), 10, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_factory_is_called_under_the_seed():
    def factory(row_shape, n_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(row_shape), n_classes))

    model = build_model(factory, (2, 3), 4, seed=0)
    assert model(torch.rand(5, 2, 3)).shape == (5, 4)
    assert same_weights(model, build_model(factory, (2, 3), 4, seed=0))


def test_a_module_is_copied_with_its_weights():
    plain = nn.Linear(3, 2)
    copied = build_model(plain, (3,), 2, seed=0)
    assert copied is not plain
    assert same_weights(plain, copied)
    nn.init.zeros_(copied.weight)
    assert plain.weight.any()


def test_architecture_tells_which_networks_can_share_a_stack():
    assert MLP(4, 2).architecture == MLP(4, 2, dropout=0.5).architecture
    others = [MLP(4, 2, depth=2), MLP(4, 2, width=9), MLP(5, 2), ResNet20(3, 2), ResNet20(1, 2)]
    assert len({m.architecture for m in [MLP(4, 2), *others]}) == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: build_model("resnet", (3, 8, 8), 2, seed=0), r"model must be one of 'linear', "),
        (lambda: build_model(3, (4,), 2, seed=0), r"model must be a name, an nn.Module or a fac"),
        (lambda: build_model(lambda *_: 3, (4,), 2, seed=0), r"returns an nn.Module, got int"),
        (lambda: build_model("resnet20", (16,), 2, seed=0), r"X must be images .*\(16,\); use mod"),
        (
            lambda: build_model("lenet5", (8, 8), 2, seed=0),
            r"X must be images of 12×12 pixels or",
        ),
        (lambda: WideResNet(3, 2, depth=9), r"depth must be 4 more than a multiple of 6, 10 at le"),
        (lambda: MLP(4, 2, depth=0), r"depth must be a whole number of at least 1, got 0"),
        (lambda: MLP(4, 2, width=2.5), r"width must be a whole number of at least 1, got 2.5"),
        (lambda: MLP(4, 2, dropout=1.0), r"dropout must be a number in \[0, 1\), got 1.0"),
    ],
)
def test_bad_models(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(3, 1), r"rows \(n, 4\) to logits \(n, 2\), got one that fails on such rows"),
        (nn.Linear(4, 7), r"got one that turns two rows into \(2, 7\)"),
        (nn.Sequential(nn.Linear(4, 1)), r"turns two rows into \(2, 1\)"),
        (nn.LazyLinear(2), "shapes are known, got a lazy one"),
        (nn.Linear(4, 2).requires_grad_(False), "parameters to train"),
    ],
)
def test_a_module_must_fit_rows_and_classes(model, message):
    with pytest.raises(InvalidInputError, match=message):
        build_model(model, (4,), 2, seed=0)


@pytest.mark.parametrize("name", ["linear", "resnet20"])
def test_options_that_a_model_lacks(name):
    with pytest.raises(InvalidInputError, match="model_options must be of nothing, got 'depth'"):
        build_model(name, (3, 8, 8), 2, seed=0, depth=3)
