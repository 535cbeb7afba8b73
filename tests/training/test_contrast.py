"""Features from views of rows: the loss against a loop, views of images, and what is trained."""

import math

import numpy as np
import pytest
import torch

import unbag
from unbag.exceptions import InvalidInputError
from unbag.models import LeNet5, take_features, with_projector
from unbag.training import Contrast, Replica, train
from unbag.training.augmentation import view
from unbag.training.contrast import _VIEWS, _contrast
from unbag.training.engine import Stack
from unbag.training.randomness import derive, seed_keys

KEYS = seed_keys([0, 1], torch.device("cpu"))


def make_replica(seed=0, n=24, **settings):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3, 3)).repeat(4, 1).repeat(4, 2).astype(np.float32)
    bags = unbag.Bags(X, np.arange(n) % 2, [[0.6, 0.4], [0.3, 0.7]])
    torch.manual_seed(seed)
    defaults = {
        "bags": bags,
        "objective": None,
        "contrast": Contrast(),
        "module": with_projector(LeNet5(1, 2, size=(12, 12)), seed),
        "seed": seed,
        "epochs": 1,
        "batch_size": 8,
        "learning_rate": 0.01,
        "batching": "shuffled",
    }
    return Replica(**{**defaults, **settings})


def test_the_loss_is_that_of_a_loop():
    z = torch.nn.functional.normalize(torch.randn(2, 10, 3, dtype=torch.float64), dim=-1)
    expected = torch.zeros(2, dtype=torch.float64)
    for r in range(2):
        for i in range(10):
            other = (i + 5) % 10
            all_but_itself = [math.exp(z[r, i] @ z[r, j] / 0.3) for j in range(10) if j != i]
            expected[r] -= (
                math.log(math.exp(z[r, i] @ z[r, other] / 0.3) / sum(all_but_itself)) / 10
            )
    torch.testing.assert_close(_contrast(z, 0.3), expected)


def test_a_step_compares_two_views_of_every_row():
    stacked = Stack([make_replica()], torch.device("cpu"), "float64")
    positions = torch.arange(8)[None]
    value, risks, presence = stacked.loss(positions)
    x = stacked.rows.batch(positions)
    network = stacked.network.extract(0).train().double()
    views = [view(x, derive(stacked.keys, number, 0), flip=False) for number in _VIEWS]
    assert (views[0] - views[1]).abs().mean() > 0.05
    z = torch.cat([torch.nn.functional.normalize(network(v[0]), dim=-1) for v in views])
    torch.testing.assert_close(value, _contrast(z[None], 0.2))
    assert risks.shape == (1, 2, 1)
    assert not risks.any()
    assert not presence.any()


def test_views_of_a_row_come_to_look_alike():
    (fit,) = train([make_replica(epochs=100)], device="cpu", precision="float32")
    objective = fit.history["objective"]
    assert objective[0] == pytest.approx(math.log(15), abs=0.2)  # of 15 other views, by chance
    assert objective[-20:].mean() < objective[0] - 0.15


@pytest.mark.parametrize("shape", [(6,), (8, 8), (1, 8, 8), (3, 8, 8)])
def test_views_have_the_shape_of_rows_and_follow_their_key(shape):
    x = torch.rand(2, 12, *shape)
    out = view(x, KEYS, flip=True)
    assert out.shape == x.shape
    torch.testing.assert_close(view(x[1:], KEYS[1:], flip=True), out[1:], rtol=0, atol=0)
    same = x[:1].expand(2, *x.shape[1:])
    drawn = view(same, KEYS, flip=True)
    assert not torch.equal(drawn[0], drawn[1])


def test_a_view_is_a_part_of_the_image():
    ramp = torch.arange(16.0, dtype=torch.float64).expand(2, 300, 1, 16, 16) / 16 + 1
    out = view(ramp, KEYS, flip=False)[0, :, 0]
    steps = (out / out.mean((1, 2), keepdim=True)).diff(dim=-1)
    assert (steps >= -1e-9).all()  # not mirrored, and nothing from beyond the edge
    assert out.diff(dim=1).abs().max() < 1e-9  # nor turned
    whole = (ramp[0, 0, 0] / ramp[0, 0, 0].mean()).diff(dim=-1).mean()
    ratio = steps.mean((1, 2)) / whole  # contrast changes it by 40 % at most, and the mean too
    assert 0.2 < ratio.min() < 0.6
    assert ratio.max() < 1.6
    mirrored = view(ramp, KEYS, flip=True)[0, :, 0].diff(dim=-1).mean((1, 2)) < 0
    assert 0.35 < mirrored.double().mean() < 0.65


def test_colours_change_and_some_views_are_grey():
    x = torch.rand(2, 400, 3, 8, 8, dtype=torch.float64)
    out = view(x, KEYS, flip=False)[0]
    spread = (out - out.mean(1, keepdim=True)).abs().amax((1, 2, 3))
    assert 0.1 < (spread < 1e-9).double().mean() < 0.3
    shares = out.mean((2, 3)) / out.mean((1, 2, 3))[:, None]
    assert shares.std(0).min() > 0.03


def test_only_the_features_are_taken():
    module = LeNet5(1, 2, size=(12, 12))
    projected = with_projector(module, seed=0)
    assert projected(torch.zeros(3, 12, 12)).shape == (3, 128)
    with torch.no_grad():
        for p in projected.parameters():
            p.add_(1.0)
    taken = take_features(module, projected)
    for name, value in taken.state_dict().items():
        before, is_last = module.state_dict()[name], name.startswith("output.")
        torch.testing.assert_close(value, before if is_last else before + 1)


def test_networks_without_a_linear_layer_at_the_end_have_no_features():
    own = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 4), torch.nn.BatchNorm1d(4))
    assert with_projector(own, seed=0) is None
    assert with_projector(torch.nn.Linear(9, 4), seed=0) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"contrast": None}, "objective must be exactly one of objective, targets and contrast"),
        ({"targets": np.ones((24, 2))}, "exactly one of objective, targets and contrast, got 2"),
    ],
)
def test_a_training_has_one_aim(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        make_replica(**settings)


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"flip": 1}])
def test_settings_of_views_are_checked(settings):
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        Contrast(**settings)
