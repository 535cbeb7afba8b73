import numpy as np
import pytest
import torch

from unbag.tabular import FEATURES, Features, ShareModels, TabularModel


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 4)) * [1, 10, 1, 1] + [0, 5, 0, 0]
    x[:, 2] = 3.0  # constant
    x[:, 3] = rng.integers(0, 2, 500)
    return x


@pytest.mark.parametrize("kind", FEATURES)
def test_features_are_centred_and_of_one_length_in_all(kind, x):
    features = Features.learn(kind, x, np.random.default_rng(0))
    f = features(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(f.mean(0), 0, atol=1e-12)
    assert (f**2).sum(1).mean() == pytest.approx(1)
    assert np.isfinite(f).all()


def test_steps_are_octiles_and_fewer_where_columns_are_many(x):
    features = Features.learn("steps", x, np.random.default_rng(0))
    counts = np.bincount(features.column, minlength=4)
    assert counts.tolist() == [7, 7, 0, 1]
    np.testing.assert_allclose(features.cut[:7], np.quantile(x[:, 0], np.arange(1, 8) / 8))
    wide = np.random.default_rng(0).normal(size=(50, 400))
    assert len(Features.learn("steps", wide, np.random.default_rng(0)).cut) == 800
    assert Features.learn("steps", np.ones((9, 2)), np.random.default_rng(0)) is None
    assert Features.learn("steps", np.ones((9, 2000)), np.random.default_rng(0)) is None


def test_linear_features_do_not_follow_far_numbers(x):
    features = Features.learn("linear", x, np.random.default_rng(0))
    far = torch.tensor([[1e6, 5.0, 3.0, 0.0]], dtype=torch.float64)
    farther = torch.tensor([[1e9, 5.0, 3.0, 0.0]], dtype=torch.float64)
    assert torch.equal(features(far), features(farther))


def test_waves_follow_the_seed(x):
    one, again, other = (
        Features.learn("waves", x, np.random.default_rng(seed)).direction for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_models_of_shares_are_mixed_with_the_constant(x):
    kinds = [(k, len(Features.learn(k, x, np.random.default_rng(0)).center)) for k in FEATURES]
    model = ShareModels(kinds, 4, 2, 3)
    shares = np.array([0.2, 0.3, 0.5])
    model.constant.copy_(torch.as_tensor(np.log(shares)))  # all the weight is on the constant
    chances = model(torch.as_tensor(x[:5])).exp().detach().numpy()
    np.testing.assert_allclose(chances, np.tile(shares, (5, 1)))


class Sure(torch.nn.Module):
    def forward(self, x):
        return torch.tensor([[0.9, 0.1]], dtype=torch.float64).log().expand(len(x), -1)


@pytest.mark.parametrize(("trust", "expected"), [(0.0, [0.3, 0.7]), (1.0, [0.9, 0.1])])
def test_trust_moves_between_the_shares_and_the_parts(trust, expected):
    model = TabularModel({"sure": Sure()}, [1.0], np.array([0.3, 0.7]), trust)
    np.testing.assert_allclose(model(torch.zeros(2, 3)).exp(), [expected, expected])


def test_an_empty_model_of_the_same_sizes_takes_the_tensors(x):
    rng = np.random.default_rng(0)
    kinds = [(k, len(Features.learn(k, x, rng).center)) for k in FEATURES]
    trees = {"kind": "trees", "n_trees": 3, "n_nodes": 5, "depth": 2}
    layers = {"kind": "layers", "hidden": [7], "activation": "tanh"}
    sizes = {
        "shares": {"kind": "shares", "features": [list(kind) for kind in kinds], "strengths": 2},
        "forest": {**trees, "is_boosted": False, "in_float32": True},
        "boosting": {**trees, "is_boosted": True, "in_float32": False},
        "learner": {"kind": "scaled", "inner": layers},
        "networks": {"kind": "networks", "count": 2, "depth": 3, "width": 8},
    }
    model = TabularModel.of_sizes(4, 3, sizes)
    assert model.sizes == sizes
    assert model(torch.zeros(5, 4)).shape == (5, 3)
    assert model.find_problem(4) == ""
    model.parts["shares"].features[1].column[0] = 4
    assert "none of the 4 columns" in model.find_problem(4)
