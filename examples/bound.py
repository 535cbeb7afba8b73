"""The estimation error bound against what happens, on scikit-learn's digits; half a minute.

Ten bags with symmetric priors, an MLP of two layers, generalised cross-entropy (a bounded loss).
The class of functions is the same in all rows of the table: all networks with norms no larger
than the largest among those fitted here, one of them with labels. Measured are means of five
draws: how far the risk of the learned network is above the best one known, and how far the risk
estimate of the training rows is from the risk itself, which half of the total bounds.

usage: python examples/bound.py
"""

import itertools

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import unbag
from unbag.objectives.losses import GeneralizedCrossEntropy
from unbag.theory import NormComplexity, estimation_error_bound, mlp_complexity

torch.set_num_threads(1)
SHARES, SIZES, DRAWS = (0.9, 0.5, 0.1), (30, 120), 5
K = 10
loss, pi = GeneralizedCrossEntropy(q=0.7), np.full(K, 1 / K)
X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X / 16, y, random_state=0)  # pixels in [0, 1]
radius = np.linalg.norm(X, axis=1).max()


def learn(theta, rows, bag_ids, seed):
    """Fit the network on which the bound is tried: R_U is minimised, nothing else."""
    clf = unbag.UnbagClassifier(
        theta,
        "unbiased",
        test_prior=pi,
        loss=loss,
        depth=2,
        width=32,
        epochs=200,
        standardize=False,
        random_state=seed,
    )
    return clf.fit(rows, bag_ids).module_


def risk(module, rows, bag_index, weights):
    """Σ_mk W_mk R_mk; with the labels as bags and W = Π it is the plain risk."""
    with torch.no_grad():
        losses = loss(module(torch.tensor(rows, dtype=torch.float32))).numpy()
    partial = [losses[bag_index == m].mean(0) for m in range(len(weights))]
    return float((weights * np.stack(partial)).sum())


supervised = learn(np.eye(K), X, y, seed=0)
modules = [supervised]
best = risk(supervised, X_test, y_test, np.diag(pi))
rows = []
for a, size in itertools.product(SHARES, SIZES):
    theta = unbag.priors.symmetric(n_classes=K, a=a)
    W = unbag.priors.risk_weights(theta, pi)
    risks, estimates = [], []
    for seed in range(DRAWS):
        bags = unbag.make_bags(X, y, theta, sizes=size, sampling="iid", random_state=seed)
        modules.append(learn(theta, bags.X, bags.bag_ids, seed))
        risks.append(risk(modules[-1], X_test, y_test, np.diag(pi)))
        estimates.append(risk(modules[-1], bags.X, bags.bag_index, W))
    gap, error = np.mean(risks) - best, np.mean(np.subtract(risks, estimates))
    rows.append((a, size, theta, gap, error))

products = np.max([mlp_complexity(module, radius).products for module in modules], axis=0)
functions = NormComplexity(depth=2, products=tuple(products.tolist()))
print(f"risk of the network that saw the labels: {best:.3f}\n")
print("| a | rows a bag | condition number | C_w | complexity term | confidence term ", end="")
print("| total | tighter total | R(ĝ) − best R | R(ĝ) − R_U(ĝ) |\n" + "|---" * 10 + "|")
for a, size, theta, gap, error in rows:
    bound = estimation_error_bound(
        theta, [size] * K, loss=loss, complexity=functions, test_prior=pi
    )
    print(
        f"| {a} | {size} | {bound.condition_number:.3g} | {bound.largest_weight:.3f} "
        f"| {bound.complexity_term:,.0f} | {bound.confidence_term:.2f} | {bound.total:,.0f} "
        f"| {bound.tighter_total:,.0f} | {gap:.2f} | {error:.2f} |"
    )
needed = size * (bound.tighter_total / bound.loss_bound) ** 2
print(f"\nThe last row in full; the tighter form would reach C_ℓ at {needed:.1g} rows a bag:\n")
print(bound)
