"""The recorded step on a GPU, compiled or not, against the same lines on the CPU."""

import numpy as np
import pytest
import torch
from torch import nn

import unbag
from unbag.exceptions import SlowTrainingWarning
from unbag.methods import METHODS, CrossFit, Job, fit_many
from unbag.training import TestSet, engine

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("default"),  # torch's compiler has many remarks
]

K = 3


@pytest.fixture(params=[0, np.inf], ids=["compiled", "as they stand"], autouse=True)
def _compiled_from(request, monkeypatch):
    monkeypatch.setattr(engine, "_COMPILED_FROM", request.param)


def make_jobs(methods, row_shape=(5,), **settings):
    rng = np.random.default_rng(0)
    y = np.arange(240) % K
    X = rng.normal(size=(240, *row_shape))
    X[np.arange(240), ..., y] += 2
    test = TestSet(X[:60], y[:60])
    thetas = [unbag.priors.asymmetric(K, 0), unbag.priors.non_square(K, 1)]
    return [
        Job(
            unbag.make_bags(X, y, thetas[i % 2], random_state=i),
            method=method,
            seed=i,
            test=test,
            **{"epochs": 12, "batch_size": 60, "learning_rate": 1e-2, **settings},
        )
        for i, method in enumerate(methods)
    ]


def assert_same_on_both(jobs, tolerance=1e-7, **options):
    pair = [
        fit_many(jobs, device=device, precision="float64", **options) for device in ("cpu", "cuda")
    ]
    for cpu, gpu in zip(*pair, strict=True):
        assert cpu.n_epochs == gpu.n_epochs
        assert cpu.stop_reason == gpu.stop_reason
        for name, values in cpu.history.items():
            np.testing.assert_allclose(gpu.history[name], values, rtol=tolerance, atol=tolerance)
        weights = zip(cpu.module.parameters(), gpu.module.parameters(), strict=True)
        for weight, other in weights:
            torch.testing.assert_close(other, weight, rtol=10 * tolerance, atol=10 * tolerance)


def test_a_stack_of_all_methods():
    options = {"depth": 3, "width": 6, "dropout": 0.2}
    of_one_training = [name for name, m in METHODS.items() if m.is_single and name != "auto"]
    assert_same_on_both(make_jobs([*of_one_training, "u-prr"], model_options=options))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_rounds_on_soft_labels(smoothing):
    # Soft labels are rounded to single precision between trainings.
    method = CrossFit(adversarial_smoothing=smoothing)
    jobs = make_jobs([method, method], (9,), batch_size=None)
    assert_same_on_both(jobs, tolerance=1e-4)


def test_a_module_of_the_users():
    def model(row_shape, n_classes):
        return nn.Sequential(nn.Linear(row_shape[0], 4), nn.Tanh(), nn.Linear(4, n_classes))

    assert_same_on_both(make_jobs(["u-prr", "prop"], model=model))


class _Asks(nn.Module):
    """A network that looks at a number, which no recorded step can."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(5, K)

    def forward(self, x):
        return self.output(x if x.sum().item() < np.inf else -x)


def test_a_module_that_cannot_be_recorded_is_trained_as_it_stands():
    with pytest.warns(SlowTrainingWarning, match="cannot be recorded as a CUDA graph"):
        assert_same_on_both(make_jobs(["prop"], model=lambda *_: _Asks()))


def test_a_residual_network():
    for method in ("u-prr", "prop-cr", "consistency"):
        jobs = make_jobs([method], (1, 8, K), model="resnet20", epochs=2)
        assert_same_on_both(jobs)


def test_a_checkpoint_gives_the_result_back(tmp_path):
    jobs = make_jobs(["unbiased", "u-stop"])
    whole = fit_many(jobs, device="cuda")
    fit_many(jobs, device="cuda", checkpoint=tmp_path)
    again = fit_many(jobs, device="cuda", checkpoint=tmp_path)
    for one, other in zip(whole, again, strict=True):
        np.testing.assert_array_equal(one.history["test_error"], other.history["test_error"])
