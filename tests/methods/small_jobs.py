"""Rows of three Gaussians in bags, and jobs on them that are trained in no time."""

import numpy as np

import unbag
from unbag.methods import CrossFit, Job
from unbag.methods.crossfit import CrossFitting
from unbag.training import train

K = 3
THETA = np.array([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]])
WEAK = np.full((K, K), 0.3) + 0.1 * np.eye(K)
TINY = {"epochs": 2, "model": "linear"}


def gaussians(n, seed=0, spread=1.5, d=4):
    """Rows whose class means are that far from the origin, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return (rng.normal(size=(n, d)) + spread * np.eye(K, d)[y]).astype(np.float32), y


def make(n=300, seed=0, theta=THETA, **options):
    return unbag.make_bags(*gaussians(n, seed, **options), theta, random_state=seed)


def small_bags(n=960, size=12):
    """Many bags whose shares are those of their rows."""
    X, y = gaussians(n)
    bag = np.arange(n) // size
    theta = np.zeros((n // size, K))
    np.add.at(theta, (bag, y), 1 / size)
    return unbag.Bags(X, bag, theta)


def crossfitting(bags=None, method=None, **settings):
    """Return the trainings of a job, before its start."""
    method = CrossFit() if method is None else method
    return CrossFitting(method, Job(make() if bags is None else bags, method, **TINY | settings))


def started(*arguments, **settings):
    """Return the trainings of a job, after its start."""
    fitting = crossfitting(*arguments, **settings)
    fitting.use_start(train(fitting.start(), device="cpu"))
    return fitting


def run_to_end(trainings, change):
    """Run all trainings of a job; return its fit and the radius of smoothing at each stage.

    ``change`` makes other fits of those of a stage, counted from 1.
    """
    wanted, radii = next(trainings), []
    while True:
        radii.append(wanted[0].adversarial_smoothing)
        try:
            wanted = trainings.send(change(len(radii), train(wanted, device="cpu")))
        except StopIteration as end:
            return end.value, radii
