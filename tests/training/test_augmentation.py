import numpy as np
import pytest
import torch

from unbag.training.augmentation import _signed, _warp, augment
from unbag.training.randomness import seed_keys

KEYS = seed_keys([0, 1], torch.device("cpu"))


def images(n=200, size=8, channels=3):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(2, n, channels, size, size, generator=generator, dtype=torch.float64)


def moved(image, down, across, mirrored):
    """The image as numpy would move it, reflected at its edges."""
    padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="reflect")
    h, w = image.shape[1:]
    part = padded[:, 2 + down : 2 + down + h, 2 + across : 2 + across + w]
    if not mirrored:
        return part
    # A pixel is looked up where it lies in the mirrored image, then moved.
    return padded[:, 2 + down : 2 + down + h, 2 + across : 2 + across + w][:, :, ::-1]


def test_weak_images_are_moved_by_an_eighth_at_most_and_mirrored():
    x = images()
    out = augment(x, KEYS, strong=False, flip=True)
    seen = set()
    for image, changed in zip(x[0].numpy(), out[0].numpy(), strict=True):
        result = [
            (down, across, mirrored)
            for down in (-1, 0, 1)
            for across in (-1, 0, 1)
            for mirrored in (False, True)
            if np.array_equal(moved(image, down, across, mirrored), changed)
        ]
        assert len(result) == 1
        seen.update(result)
    assert len(seen) == 18


def test_images_are_mirrored_only_where_that_is_allowed():
    column = torch.arange(8.0).expand(2, 50, 1, 8, 8)
    out = augment(column, KEYS, strong=False, flip=False)
    assert (out.diff(dim=-1)[..., 2:-2] > 0).all()


@pytest.mark.parametrize("shape", [(6,), (8, 8), (1, 8, 8), (3, 8, 8)])
@pytest.mark.parametrize("strong", [False, True])
def test_shapes_seeds_and_stacks(shape, strong):
    x = torch.rand(2, 12, *shape)
    out = augment(x, KEYS, strong=strong, flip=True)
    assert out.shape == x.shape
    assert torch.isfinite(out).all()
    torch.testing.assert_close(out, augment(x, KEYS, strong=strong, flip=True), rtol=0, atol=0)
    alone = augment(x[1:], KEYS[1:], strong=strong, flip=True)
    torch.testing.assert_close(alone, out[1:], rtol=0, atol=0)
    same = x[:1].expand(2, *x.shape[1:])
    drawn = augment(same, KEYS, strong=strong, flip=True)
    assert torch.equal(drawn[0], drawn[1]) == (len(shape) == 1 and not strong)


def test_strong_images_differ_in_place_colour_and_cover():
    x = images(n=64)
    out = augment(x, KEYS, strong=True, flip=False)
    # A quarter of the pixels or less is one colour, less where the cover lies across an edge.
    flat = out[0].flatten(2)
    repeated = torch.stack([(flat == flat.mode(-1, keepdim=True).values).all(1).sum(1)]).squeeze(0)
    assert repeated.max() <= 5 * 5
    assert repeated.double().mean() > 8
    mean = out[0].mean((1, 2, 3)) / x[0].mean((1, 2, 3))
    assert mean.min() < 0.8
    assert mean.max() > 1.2


def test_a_turn_of_a_quarter():
    x = images(n=1)[:1]
    quarter = torch.tensor([[[[0.0, 1.0], [-1.0, 0.0]]]], dtype=x.dtype)
    out = _warp(x, quarter, torch.zeros(1, 1, 2, dtype=x.dtype))
    np.testing.assert_allclose(out[0, 0], np.rot90(x[0, 0], k=1, axes=(1, 2)), atol=1e-12)


def test_half_a_pixel_is_the_mean_of_two():
    x = images(n=1)[:1]
    shift = torch.tensor([[[0.0, 0.5]]], dtype=x.dtype)
    out = _warp(x, torch.eye(2, dtype=x.dtype).expand(1, 1, 2, 2), shift)
    expected = (x[..., :-1] + x[..., 1:]) / 2
    torch.testing.assert_close(out[..., :-1], expected)


def test_rows_of_a_table_get_numbers_of_the_same_column():
    x = torch.arange(2 * 400 * 5.0).view(2, 400, 5)
    assert torch.equal(augment(x, KEYS, strong=False, flip=True), x)
    out = augment(x, KEYS, strong=True, flip=True)
    for before, after in zip(x, out, strict=True):
        for column in range(5):
            assert np.isin(after[:, column], before[:, column]).all()
    changed = (out != x).double().mean()
    assert 0.26 < changed < 0.34


def test_moves_bends_and_colours_change_with_a_chance_of_a_quarter():
    size = _signed(torch.linspace(0, 1, 40_001))
    assert abs((size != 0).float().mean() - 0.25) < 1e-3
    patches = size[size != 0]
    assert patches.min() < -0.99
    assert patches.max() > 0.99
    assert abs(patches.mean()) < 1e-3
