"""MNIST without labels on two CPU cores, in under three minutes.

Ten bags of 6,000 digits, half of each bag of one class and the rest mixed (symmetric priors,
a=0.5); the paper's MLP of five layers. `u-prr` learns; `unbiased` memorises the bags, its risk
turns negative and its error climbs.

usage: UNBAG_DATA=DIR python examples/mnist.py [PLOT.png]
"""

import sys
import time

import unbag
from unbag.demo import plot_history
from unbag.methods import Job, fit_many
from unbag.training import TestSet

data = unbag.datasets.load("mnist")
theta = unbag.priors.symmetric(n_classes=10, a=0.5)
bags = unbag.make_bags(data.X_train, data.y_train, theta, random_state=0)
test = TestSet(data.X_test, data.y_test)
jobs = {
    method: Job(bags, method=method, model_options={"depth": 5}, epochs=20, test=test)
    for method in ("u-prr", "unbiased")
}

start = time.perf_counter()
fits = fit_many(list(jobs.values()), device="cpu", verbose=True)
print(f"{time.perf_counter() - start:.0f} s")
histories = {method: fit.history for method, fit in zip(jobs, fits, strict=True)}
for method, history in histories.items():
    errors = ", ".join(f"{100 * e:.1f}" for e in history["test_error"][::3])
    print(f"{method}: test error {100 * history['test_error'][-1]:.2f} %  (by epoch: {errors})")
if len(sys.argv) > 1:
    plot_history(histories, sys.argv[1])
