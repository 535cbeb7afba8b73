"""What other people would use on a table with bags, in a few lines each.

Every function takes a ``Cell`` of ``bagged_tables.py`` and a seed, and returns class
probabilities of the test rows. The networks have two hidden layers of 64 units.

- ``majority``: the class shares of all rows in bags.
- ``proportion_loss``: cross-entropy between the shares of a bag and the mean probabilities of its
  rows in the batch; batches are of shuffled rows, or of whole bags where bags are small.
- ``dllp``: the same loss, one bag per batch (Ardehaly and Culotta, "Co-training for demographic
  classification using deep learning from label proportions", 2017).
- ``mixbag``: one bag and one mixture of two sampled bags per batch; shares of a mixture cost
  nothing within their confidence interval (Asanomi, Matsuo, Suehiro and Bise, "MixBag: bag-level
  data augmentation for learning from label proportions", 2023).
- ``em_forest``: soft labels start as the shares of the bag; a random forest predicts rows out of
  bag, and its probabilities, balanced to the shares, are the next soft labels.
- ``boosting``, ``forest``, ``network``: supervised, on the labels of the rows in bags.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagged_tables import Cell

__all__ = ["SUPERVISED", "UNSUPERVISED"]

_HIDDEN, _RATE, _DECAY = 64, 2e-3, 1e-4
_EPOCHS, _BATCH, _SMALL_BAG = 200, 256, 60
_BAG_EPOCHS, _LEAST_STEPS = 40, 1500  # of batches of one bag
_WITHIN = 1.96  # standard errors of the shares of a sampled bag
_SMALLEST = 1e-7
_ROUNDS, _TREES, _SHARPENING = 8, 150, 1.5


def majority(cell: Cell, seed: int) -> Any:
    del seed
    return np.tile(cell.shares, (len(cell.y_test), 1))


# --------------------------------------------------------------------------------------- networks


def _learn(cell: Cell, seed: int, losses: Callable[[Any, Any], Iterator[Any]]) -> Any:
    """Minimise losses, each of them a function of logits; ``losses`` gets the network and rows."""
    torch.manual_seed(seed)
    mean, deviation = cell.X.mean(0), cell.X.std(0)
    X, X_test = (
        torch.tensor((part - mean) / deviation, dtype=torch.float32)
        for part in (cell.X, cell.X_test)
    )
    layers = [X.shape[1], _HIDDEN, _HIDDEN]
    hidden = [
        layer
        for width, following in itertools.pairwise(layers)
        for layer in (torch.nn.Linear(width, following), torch.nn.ReLU())
    ]
    network = torch.nn.Sequential(*hidden, torch.nn.Linear(_HIDDEN, cell.n_classes))
    optimizer = torch.optim.Adam(network.parameters(), _RATE, weight_decay=_DECAY)
    for loss in losses(network, X):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return torch.softmax(network(X_test), 1).numpy()


def proportion_loss(cell: Cell, seed: int) -> Any:
    rng, m, n = np.random.default_rng(seed), len(cell.theta), len(cell.bag)
    theta, bag = torch.tensor(cell.theta, dtype=torch.float32), torch.tensor(cell.bag)

    def batches() -> list[Any]:
        if n / m >= _SMALL_BAG:
            return np.array_split(rng.permutation(n), max(1, n // _BATCH))
        groups = np.array_split(rng.permutation(m), max(1, n // _BATCH))
        return [np.flatnonzero(np.isin(cell.bag, group)) for group in groups]

    def losses(network: Any, X: Any) -> Iterator[Any]:
        for _ in range(_EPOCHS):
            for rows in batches():
                p = torch.softmax(network(X[rows]), 1)
                counts = torch.bincount(bag[rows], minlength=m).clamp(min=1)
                total = torch.zeros_like(theta).index_add(0, bag[rows], p)
                log_means = torch.log(total / counts[:, None] + _SMALLEST)
                yield -(theta[bag[rows]] * log_means[bag[rows]]).sum(1).mean()

    return _learn(cell, seed, losses)


def _bags_in_turn(cell: Cell, rng: Any) -> Iterator[int]:
    m = len(cell.theta)
    for _ in range(max(_BAG_EPOCHS, -(-_LEAST_STEPS // m))):
        yield from rng.permutation(m)


def _share_loss(logits: Any, shares: Any, margin: Any = 0.0) -> Any:
    """Cross-entropy of shares; classes whose shares are within the margin cost nothing."""
    mean = torch.softmax(logits, 1).mean(0)
    outside = (mean.detach() - shares).abs() > margin
    return -(outside * shares * torch.log(mean + _SMALLEST)).sum()


def dllp(cell: Cell, seed: int) -> Any:
    rng, theta = np.random.default_rng(seed), torch.tensor(cell.theta, dtype=torch.float32)
    members = [np.flatnonzero(cell.bag == m) for m in range(len(theta))]

    def losses(network: Any, X: Any) -> Iterator[Any]:
        for m in _bags_in_turn(cell, rng):
            yield _share_loss(network(X[members[m]]), theta[m])

    return _learn(cell, seed, losses)


def mixbag(cell: Cell, seed: int) -> Any:
    rng, theta = np.random.default_rng(seed), torch.tensor(cell.theta, dtype=torch.float32)
    members = [np.flatnonzero(cell.bag == m) for m in range(len(theta))]

    def sample(m: int, part: float) -> Any:
        count = max(1, round(part * len(members[m])))
        return rng.choice(members[m], count, replace=False)

    def losses(network: Any, X: Any) -> Iterator[Any]:
        for m in _bags_in_turn(cell, rng):
            pair, part = (m, rng.integers(len(theta))), rng.uniform()
            rows = [sample(m, share) for m, share in zip(pair, (part, 1 - part), strict=True)]
            total = sum(map(len, rows))
            shares, variance = torch.zeros(cell.n_classes), torch.zeros(cell.n_classes)
            for number, chosen in zip(pair, rows, strict=True):
                shares += len(chosen) / total * theta[number]
                left = 1 - len(chosen) / len(members[number])  # a whole bag has no sampling error
                spread = theta[number] * (1 - theta[number]) * len(chosen) * left
                variance += spread / total**2
            mixed = _share_loss(network(X[np.concatenate(rows)]), shares, _WITHIN * variance.sqrt())
            yield _share_loss(network(X[members[m]]), theta[m]) + mixed

    return _learn(cell, seed, losses)


# ------------------------------------------------------------------------------------------ trees


def _balanced(p: Any, bag: Any, theta: Any, steps: int = 30) -> Any:
    """Probabilities times a factor per bag and class, so that means over bags are their shares."""
    q, counts = np.clip(p, 1e-6, 1), np.bincount(bag, minlength=len(theta))
    for _ in range(steps):
        q = q / q.sum(1, keepdims=True)
        means = np.zeros_like(theta)
        np.add.at(means, bag, q)
        means /= np.maximum(counts, 1)[:, None]
        q = q * ((theta + 1e-4) / (means + 1e-4))[bag]
    return q / q.sum(1, keepdims=True)


def em_forest(cell: Cell, seed: int) -> Any:
    known = np.where(cell.shares > 0, cell.shares, 1)  # a class may be in no bag
    labels, odds = cell.theta[cell.bag], (cell.theta / known)[cell.bag]
    for number in range(_ROUNDS + 1):
        is_last = number == _ROUNDS
        forest = RandomForestRegressor(
            _TREES,
            min_samples_leaf=3,
            max_features="sqrt",
            oob_score=not is_last,
            random_state=seed + number,
        ).fit(cell.X, labels)
        if not is_last:
            p = np.nan_to_num(forest.oob_prediction_, nan=1 / cell.n_classes)
            sharper = (np.clip(p, 1e-4, 1) * odds) ** _SHARPENING
            labels = _balanced(sharper, cell.bag, cell.theta)
    return forest.predict(cell.X_test)


# ------------------------------------------------------------------------------------- supervised


def _supervised(model: Any, cell: Cell) -> Any:
    p = np.zeros((len(cell.X_test), cell.n_classes))
    model.fit(cell.X, cell.labels)
    p[:, model.classes_] = model.predict_proba(cell.X_test)
    return p


def boosting(cell: Cell, seed: int) -> Any:
    model = HistGradientBoostingClassifier(
        max_iter=150, learning_rate=0.07, early_stopping=False, random_state=seed
    )
    return _supervised(model, cell)


def forest(cell: Cell, seed: int) -> Any:
    model = RandomForestClassifier(200, min_samples_leaf=2, random_state=seed)
    return _supervised(model, cell)


def network(cell: Cell, seed: int) -> Any:
    stops = len(cell.labels) > 400
    model = MLPClassifier(
        (_HIDDEN, _HIDDEN), alpha=1e-2, early_stopping=stops, max_iter=150, random_state=seed
    )
    return _supervised(make_pipeline(StandardScaler(), model), cell)


UNSUPERVISED = {
    "majority": majority,
    "EM-forest": em_forest,
    "proportion loss": proportion_loss,
    "MixBag": mixbag,
    "DLLP": dllp,
}
SUPERVISED = {
    "supervised boosting": boosting,
    "supervised forest": forest,
    "supervised MLP": network,
}
