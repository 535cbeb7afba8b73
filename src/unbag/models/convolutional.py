"""Convolutional networks of images: LeNet-5, residual networks, and a wide residual one."""

import itertools
import math

import torch
from torch import Tensor, nn

from unbag.convolution import Conv3x3
from unbag.validation import invalid

__all__ = ["LeNet5", "ResNet18", "ResNet20", "WideResNet"]

_SLOPE = 0.1  # of leaky activations


def _with_channel(x: Tensor) -> Tensor:
    """Give images (n, H, W) an axis of one channel."""
    return x[:, None] if x.ndim == 3 else x


def _start_from_he(module: nn.Module, output: nn.Linear) -> None:
    """Draw weights as He et al. (ICCV 2015) do; the output starts without bias."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight)
    nn.init.zeros_(output.bias)


class LeNet5(nn.Module):
    """LeNet-5 with ReLU and maximum pooling: 6 and 16 filters of 5×5, then 120 and 84 units.

    Parameters
    ----------
    n_channels : int
        Channels of an image.
    n_classes : int
        K.
    size : pair of int, default=(28, 28)
        Height and width of an image, 12 at least.

    Examples
    --------
    >>> net = LeNet5(1, 10)
    >>> sum(p.numel() for p in net.parameters())
    61706
    """

    def __init__(
        self, n_channels: int, n_classes: int, *, size: tuple[int, ...] = (28, 28)
    ) -> None:
        super().__init__()
        if min(size) < 12:
            allowed = "images of 12×12 pixels or more for LeNet-5"
            raise invalid("X", allowed, "×".join(map(str, size)))
        self.size = tuple(size)
        self.conv1 = nn.Conv2d(n_channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        pixels = math.prod((side // 2 - 4) // 2 for side in size)
        self.linear1 = nn.Linear(16 * pixels, 120)
        self.linear2 = nn.Linear(120, 84)
        self.output = nn.Linear(84, n_classes)

    @property
    def architecture(self) -> tuple[object, ...]:
        """What two networks must share to be trained in one stack."""
        return ("LeNet5", self.conv1.in_channels, self.size, self.output.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, K) of images (n, C, H, W) or (n, H, W)."""
        x = nn.functional.max_pool2d(torch.relu(self.conv1(_with_channel(x))), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.linear2(torch.relu(self.linear1(x.flatten(1)))))
        out: Tensor = self.output(x)
        return out


class _Residual(nn.Module):
    """Two 3×3 convolutions around a shortcut without parameters (He et al., 2016, option A)."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.stride = channels // channels_in
        self.conv1 = Conv3x3(channels_in, channels, self.stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = Conv3x3(channels, channels)
        self.norm2 = nn.BatchNorm2d(channels)
        self.added = channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (n, C_in, H, W) to (n, C, H/stride, W/stride)."""
        out = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(out + (self.resize(x) if self.added else x))

    def resize(self, x: Tensor) -> Tensor:
        """Shape x as the result is: every other pixel, and channels of zeros."""
        half = self.added // 2
        x = x[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(x, [0, 0, 0, 0, half, self.added - half])


class _Projected(_Residual):
    """The same with a 1×1 convolution as the shortcut where sizes change (option B)."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__(channels_in, channels)
        if self.added:
            projection = nn.Conv2d(channels_in, channels, 1, self.stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels))

    def resize(self, x: Tensor) -> Tensor:
        """Shape x as the result is."""
        out: Tensor = self.shortcut(x)
        return out


class _ResNet(nn.Module):
    """Residual network in its CIFAR form: a 3×3 convolution, blocks, and the mean over pixels.

    Convolutions start from He's initialisation (He et al., 2016, section 4.2).

    Parameters
    ----------
    n_channels : int
        Channels of an image.
    n_classes : int
        K.
    """

    widths: tuple[int, ...]
    block: type[_Residual]

    def __init__(self, n_channels: int, n_classes: int) -> None:
        super().__init__()
        self.conv = Conv3x3(n_channels, self.widths[0])
        self.norm = nn.BatchNorm2d(self.widths[0])
        pairs = itertools.pairwise(self.widths)
        self.blocks = nn.Sequential(*(self.block(a, b) for a, b in pairs))
        self.output = nn.Linear(self.widths[-1], n_classes)
        _start_from_he(self, self.output)

    @property
    def architecture(self) -> tuple[object, ...]:
        """What two networks must share to be trained in one stack."""
        return (type(self).__name__, self.conv.in_channels, self.output.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, K) of images (n, C, H, W) or (n, H, W)."""
        x = self.blocks(torch.relu(self.norm(self.conv(_with_channel(x)))))
        out: Tensor = self.output(x.mean((2, 3)))
        return out


class ResNet20(_ResNet):
    """Residual network of depth 20 in its CIFAR form: 16, 32, 64 channels, three blocks each.

    Shortcuts have no parameters and convolutions start from He's initialisation
    (He et al., 2016, section 4.2).

    Parameters
    ----------
    n_channels : int
        Channels of an image.
    n_classes : int
        K.

    Examples
    --------
    >>> net = ResNet20(3, 10)
    >>> sum(p.numel() for p in net.parameters())
    269722
    """

    widths = (16, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    block = _Residual


class ResNet18(_ResNet):
    """Residual network of depth 18 for small images: its first convolution is 3×3, without pooling.

    Parameters
    ----------
    n_channels : int
        Channels of an image.
    n_classes : int
        K.

    Examples
    --------
    >>> net = ResNet18(3, 10)
    >>> sum(p.numel() for p in net.parameters())
    11173962
    """

    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    block = _Projected


class _PreActivated(nn.Module):
    """Normalisation and activation before each of two 3×3 convolutions, around a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = Conv3x3(channels_in, channels, stride)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv2 = Conv3x3(channels, channels)
        self.changes = channels != channels_in
        if self.changes:
            self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (n, C_in, H, W) to (n, C, H/stride, W/stride)."""
        out = nn.functional.leaky_relu(self.norm1(x), _SLOPE)
        shortcut = self.shortcut(out) if self.changes else x
        out = nn.functional.leaky_relu(self.norm2(self.conv1(out)), _SLOPE)
        added: Tensor = shortcut + self.conv2(out)
        return added


class WideResNet(nn.Module):
    """Wide residual network of Zagoruyko and Komodakis (BMVC 2016); WRN-28-2 by default.

    Activations are leaky, with a slope of 0.1, as usual where labels are few.

    Parameters
    ----------
    n_channels : int
        Channels of an image.
    n_classes : int
        K.
    depth : int, default=28
        Number of layers: 4 more than a multiple of 6.
    width : int, default=2
        Factor of the 16, 32 and 64 channels.

    Examples
    --------
    >>> net = WideResNet(3, 10)
    >>> sum(p.numel() for p in net.parameters())
    1467610
    """

    def __init__(self, n_channels: int, n_classes: int, *, depth: int = 28, width: int = 2) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1:
            raise invalid("depth", "4 more than a multiple of 6, 10 at least", depth)
        if width < 1:
            raise invalid("width", "a whole number of at least 1", width)
        self.depth, self.width = depth, width
        self.conv = Conv3x3(n_channels, 16)
        widths = [16, *(c * width for c in (16, 32, 64) for _ in range(blocks))]
        strides = [2 if i in (blocks, 2 * blocks) else 1 for i in range(3 * blocks)]
        pairs = zip(itertools.pairwise(widths), strides, strict=True)
        self.blocks = nn.Sequential(*(_PreActivated(a, b, stride) for (a, b), stride in pairs))
        self.norm = nn.BatchNorm2d(widths[-1])
        self.output = nn.Linear(widths[-1], n_classes)
        _start_from_he(self, self.output)

    @property
    def architecture(self) -> tuple[object, ...]:
        """What two networks must share to be trained in one stack."""
        channels, classes = self.conv.in_channels, self.output.out_features
        return ("WideResNet", self.depth, self.width, channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, K) of images (n, C, H, W) or (n, H, W)."""
        x = self.norm(self.blocks(self.conv(_with_channel(x))))
        out: Tensor = self.output(nn.functional.leaky_relu(x, _SLOPE).mean((2, 3)))
        return out
