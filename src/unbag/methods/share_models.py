"""Models of the shares of bags, whose strength and kind are chosen by bags that were left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax, softmax

from unbag.methods.evidence import Slope, evidence_weights
from unbag.methods.sizes import SMALLEST_SHARE
from unbag.tabular import Features, ShareModels

__all__ = [
    "BagData",
    "SharePath",
    "fit_path",
    "mix_paths",
    "predict_left_out",
    "slope_of_paths",
]

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
# From a model that is constant on any table to one that is hardly penalised.
STRENGTHS = (100.0, 10.0, 1.0, 0.1, 0.01)
_FOLDS = 5  # of whole bags
_STEPS, _TOLERANCE = 50, 1e-6  # of one strength, which starts from the stronger one before it
_SMALLEST_START = 1e-3


@dataclass(frozen=True, eq=False)
class BagData:
    """Bags of a table, as share models see them.

    Parameters
    ----------
    bag_index : integer array of shape (n,)
    theta : array of shape (M, K)
    weight : array of shape (n,)
        Of every row.
    fold : integer array of shape (M,)
        In which of the folds a bag is left out.
    noise : array of shape (M,)
        Variance of the given shares, in units of that of shares counted in one row: 1/r where
        they were counted in r rows, 0 where they are exact.
    """

    bag_index: _Ints
    theta: _Floats
    weight: _Floats
    fold: _Ints
    noise: _Floats

    @classmethod
    def of(
        cls,
        bag_index: _Ints,
        theta: _Floats,
        weight: _Floats | None,
        seed: int,
        noise: _Floats | None = None,
    ) -> "BagData":
        """Divide bags in five folds, or in as many as there are bags."""
        weight = np.ones(len(bag_index)) if weight is None else weight
        m = len(theta)
        fold = np.random.default_rng(seed).permutation(m) % min(_FOLDS, m)
        return cls(bag_index, theta, weight, fold, np.zeros(m) if noise is None else noise)

    @property
    def sizes(self) -> _Floats:
        """Sum of the weights of each bag: (M,)."""
        sizes = np.bincount(self.bag_index, self.weight, len(self.theta))
        return np.asarray(sizes, dtype=np.float64)

    @property
    def information(self) -> _Floats:
        """How many rows with exact shares each bag is worth: (M,)."""
        return self.sizes / (1 + self.sizes * self.noise)

    @property
    def shares(self) -> _Floats:
        """Class shares of all rows: (K,)."""
        return self._pool(np.ones(len(self.theta), dtype=bool))

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.fold.max()) + 1

    def shares_without(self, fold: int) -> _Floats:
        """Class shares of all rows of the other folds: (K,)."""
        return self._pool(self.fold != fold)

    @property
    def units(self) -> _Floats:
        """Square roots of the shares of all rows; infinite for a class that no bag has: (K,)."""
        return np.where(self.shares > SMALLEST_SHARE, np.sqrt(self.shares), np.inf)

    def _pool(self, bags: NDArray[np.bool_]) -> _Floats:
        sizes = np.where(bags, self.sizes, 0)
        return np.asarray(np.maximum(sizes @ self.theta / sizes.sum(), SMALLEST_SHARE))

    @property
    def judging(self) -> NDArray[np.bool_]:
        """Bags that can be left out, since the others still tell all that all tell apart: (M,)."""
        rank = np.linalg.matrix_rank(self.theta)
        spans = [
            np.linalg.matrix_rank(self.theta[self.fold != fold]) == rank
            for fold in range(self.n_folds)
        ]
        return np.array(spans)[self.fold]

    def select(self, bags: NDArray[np.bool_]) -> tuple["BagData", NDArray[np.bool_]]:
        """Take some bags, and tell which rows are theirs."""
        rows = bags[self.bag_index]
        number = np.cumsum(bags) - 1
        index, weight = number[self.bag_index[rows]], self.weight[rows]
        chosen = BagData(index, self.theta[bags], weight, self.fold[bags], self.noise[bags])
        return chosen, rows

    def mean(self) -> csr_matrix:
        """Return the matrix (M, n) that takes the mean over the rows of every bag."""
        part = self.weight / self.sizes[self.bag_index]
        shape = len(self.theta), len(self.bag_index)
        return csr_matrix((part, (self.bag_index, np.arange(shape[1]))), shape)


@dataclass(frozen=True, eq=False)
class SharePath:
    """Models of one kind of features, from the strongest penalty to the weakest.

    Attributes
    ----------
    features : Features
    matrix, offset : arrays of shape (J, D, K) and (J, K)
    gains : array of shape (J, M)
        Log-likelihood of the shares of each bag, times its rows, by models that had not seen it;
        less that of the shares of the other bags.
    left_out : array of shape (J, n, K)
        Log-probabilities of the rows by models that had not seen their bags.
    """

    features: Features
    matrix: _Floats
    offset: _Floats
    gains: _Floats
    left_out: NDArray[np.float32]


def fit_path(features: Features, x: _Floats, data: BagData) -> SharePath:
    r"""Fit models of the shares of bags, and judge each strength by bags left out.

    .. math:: \min_{A, b} \; -\sum_m n_m \sum_k \theta_{mk}
        \log \frac1{n_m} \sum_{i \in m} \mathrm{softmax}_k(f(x_i) A + b)
        + \frac\lambda2 \lVert A \rVert^2

    Parameters
    ----------
    features : Features
    x : array of shape (n, d)
    data : BagData
    """
    with torch.no_grad():
        f = features(torch.as_tensor(x)).numpy()
    m, k = data.theta.shape
    gains = np.zeros((len(STRENGTHS), m))
    left_out = np.zeros((len(STRENGTHS), len(f), k), dtype=np.float32)
    for fold in range(data.n_folds if m > 1 else 0):
        seen, seen_rows = data.select(data.fold != fold)
        unseen, unseen_rows = data.select(data.fold == fold)
        constant = np.log(data.shares_without(fold))
        for j, (matrix, offset) in enumerate(_solve(f[seen_rows], seen)):
            log_p = log_softmax(f[unseen_rows] @ matrix + offset, axis=1)
            left_out[j, unseen_rows] = log_p
            predicted = np.log(np.maximum(unseen.mean() @ np.exp(log_p), SMALLEST_SHARE))
            by_bag = (unseen.theta * (predicted - constant)).sum(1)
            gains[j, data.fold == fold] = unseen.information * by_bag
    solutions = list(_solve(f, data))
    matrices, offsets = (np.stack(parts) for parts in zip(*solutions, strict=True))
    return SharePath(features, matrices, offsets, gains, left_out)


def _solve(f: _Floats, data: BagData) -> Sequence[tuple[_Floats, _Floats]]:
    """Minimise the penalised loss for every strength; each starts from the one before."""
    d, k = f.shape[1], data.theta.shape[1]
    mean = data.mean()
    mean_t = mean.T.tocsr()
    wanted = data.information[:, None] * data.theta  # (M, K)
    point = np.concatenate([np.log(np.maximum(data.shares, _SMALLEST_START)), np.zeros(d * k)])
    solutions = []
    for strength in STRENGTHS:

        def loss(point: _Floats, strength: float = strength) -> tuple[float, _Floats]:
            offset, matrix = point[:k], point[k:].reshape(d, k)
            eta = softmax(f @ matrix + offset, axis=1)  # (n, K)
            shares = np.maximum(mean @ eta, SMALLEST_SHARE)
            value = -(wanted * np.log(shares)).sum() + 0.5 * strength * (matrix**2).sum()
            up = mean_t @ (wanted / shares)
            gradient = -eta * (up - (up * eta).sum(1, keepdims=True))
            by_matrix = f.T @ gradient + strength * matrix
            return value, np.concatenate([gradient.sum(0), by_matrix.ravel()])

        options = {"maxiter": _STEPS, "ftol": _TOLERANCE}
        point = minimize(loss, point, jac=True, method="L-BFGS-B", options=options).x
        solutions.append((point[k:].reshape(d, k), point[:k]))
    return solutions


def mix_paths(paths: Sequence[SharePath], shares: _Floats, n_columns: int) -> ShareModels:
    """Mix all kinds and strengths, and constant shares, by the evidence of bags left out."""
    gains = np.concatenate([path.gains for path in paths])
    weights = evidence_weights(_with_constant(gains))
    kinds = [(path.features.kind, path.matrix.shape[1]) for path in paths]
    model = ShareModels(kinds, n_columns, len(STRENGTHS), len(shares))
    with torch.no_grad():
        model.mixing.copy_(torch.as_tensor(weights[:-1].reshape(model.mixing.shape)))
        model.constant.copy_(torch.as_tensor(weights[-1] * np.log(shares)))
        for number, path in enumerate(paths):
            model.features[number] = path.features
            model.matrix[number].copy_(torch.as_tensor(path.matrix))
            model.offset[number].copy_(torch.as_tensor(path.offset))
    return model


def predict_left_out(paths: Sequence[SharePath], data: BagData) -> _Floats:
    """Log-probabilities of rows by mixtures of models that had not seen their bags: (n, K).

    Rows of each fold of bags are predicted with weights from the gains of the other folds, so that
    choosing among many candidates is no advantage.
    """
    gains = _with_constant(np.concatenate([path.gains for path in paths]))
    left_out = np.concatenate([path.left_out for path in paths])
    log_p = np.empty(left_out.shape[1:])
    for fold in range(data.n_folds):
        rows = (data.fold == fold)[data.bag_index]
        weights = evidence_weights(gains[:, data.fold != fold])
        mixed = np.tensordot(weights[:-1], left_out[:, rows], 1)
        constant = np.log(data.shares_without(fold))
        log_p[rows] = log_softmax(mixed + weights[-1] * constant, axis=1)
    return log_p


def slope_of_paths(paths: Sequence[SharePath], data: BagData) -> Slope:
    r"""Slope of the shares of bags that were left out on those that the mixture predicts for them.

    Both are less the shares of the other bags, and by class in units of :math:`\sqrt{p_k}`. The
    variance of a bag is that of its rows and of its shares, and one that all bags have in common:
    how far their shares differ beyond the first. So a bag of many rows does not decide alone.
    """
    without = np.stack([data.shares_without(fold) for fold in range(data.n_folds)])[data.fold]
    shares = data.mean() @ np.exp(predict_left_out(paths, data))
    bags, by_rows = data.judging, 1 / data.information[data.judging]
    y, x = (data.theta - without)[bags] / data.units, (shares - without)[bags] / data.units
    between = max(0.0, float(((y**2).sum(1) / max(y.shape[1] - 1, 1) - by_rows).mean()))
    return Slope.of(y, x, by_rows + between)


def _with_constant(gains: _Floats) -> _Floats:
    """Add the constant shares as a candidate, whose gain is 0."""
    return np.concatenate([gains, np.zeros((1, gains.shape[1]))])
