"""Predictions of the fitted classifier, and the numbers that rest on them."""

import copy
import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
    check_is_fitted,
)
from torch import nn

from unbag.bags import Bags
from unbag.estimator.inputs import CheckedInputs
from unbag.evaluation import Calibration, accuracy_warning, calibrate_log, label_free_accuracy
from unbag.exceptions import ImplausibleEstimateWarning, NotFiniteError
from unbag.ids import id_array
from unbag.priors import ClassPriors, check_test_prior, prior_shift
from unbag.training import resolve_device
from unbag.validation import invalid, shorten

__all__ = ["Predicting"]

_CPU_ROWS = 1024  # rows that go through a network at once: their activations stay in the cache


class Predicting(ClassifierMixin, CheckedInputs):  # type: ignore[misc]
    """Base of the classifier: what it does once it is fitted.

    Rows are read some thousand at a time, so that they may be memory-mapped and larger than
    memory. ``Bags`` can be given in place of rows; a selection of theirs is not copied.
    """

    test_prior: Any
    device: str
    classes_: NDArray[Any]
    priors_: ClassPriors
    module_: nn.Module
    scaler_: StandardScaler | None
    test_prior_: NDArray[np.float64]
    output_prior_: NDArray[np.float64]
    calibration_: Calibration | None

    @property
    def known_priors_(self) -> ClassPriors:
        """Priors of all bags that were given, also of those that had no rows in training."""
        return self.priors_ if self.priors is None else ClassPriors.of(self.priors)

    @property
    def predicts_most_probable(self) -> bool:
        """Whether ``predict`` gives the most probable class, as it does unless it is overridden.

        Then whoever has the probabilities of rows need not predict them again.
        """
        return type(self).predict is Predicting.predict

    def predict_proba(self, X: Any, prior: Any = None, bag_ids: Any = None) -> NDArray[np.float64]:
        r"""Class probabilities of every row, shape (n, K).

        Probabilities hold under ``prior``, the class shares where these rows come from; by default
        that is the test prior. The softmax η holds under the output prior o, so they are
        :math:`\eta_k \, \mathrm{prior}_k / o_k`, scaled to sum to 1.

        Rows of known bags have the shares of their bag as prior where ``bag_ids`` gives the bag of
        every row, (n,).

        Every number is finite. Rows for which the network overflows are a
        :class:`~unbag.exceptions.NotFiniteError`, which names them.
        """
        X = self._encoded(X)
        log_odds = self._log_odds(X, prior, bag_ids)
        return _join(X, (torch.softmax(torch.from_numpy(part), -1).numpy() for part in log_odds))

    def predict(self, X: Any, prior: Any = None, bag_ids: Any = None) -> NDArray[Any]:
        """Most probable class of every row, under ``prior`` (by default the test prior).

        With ``bag_ids``, the bag of every row, the prior of a row is the shares of its bag.
        """
        X = self._encoded(X)
        best = _join(X, (part.argmax(1) for part in self._log_odds(X, prior, bag_ids)))
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    def calibrate(self, X: Any, y: Any = None, *, labels: Any = None) -> Self:
        """Correct probabilities by held-out rows and their bag ids, without labels.

        A temperature and class biases are fitted by the bag likelihood; ``predict_proba`` and
        ``predict`` use them from then on, until the next ``fit``. Where classes of some rows are
        known, ``labels`` has them, and None or NaN for the others.
        """
        X = self._encoded(X)
        ids, table = self._ids_and_priors(X, y)
        log_eta = _join(X, self._log_softmax(X))
        self.calibration_ = calibrate_log(
            log_eta, ids, priors=table, output_prior=self.output_prior_, labels=labels
        )
        return self

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Label-free accuracy on held-out rows; ``y`` is the bag id. It is never clipped.

        It is the accuracy of :func:`unbag.evaluate`. It means nothing on rows the model was trained
        on: split first. Where ``test_prior`` is None it is the accuracy under the class shares of
        these rows. An :class:`~unbag.exceptions.ImplausibleEstimateWarning` tells where it is
        outside [0, 1] by more than its error.
        """
        X = self._encoded(X)
        predicted = _join(X, (part.argmax(1) for part in self._log_odds(X)))
        ids, table = self._ids_and_priors(X, y)
        check_consistent_length(predicted, ids)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight, predicted, dtype=np.float64, ensure_non_negative=True
            )
        pi = None
        if self.test_prior is not None:
            pi = check_test_prior(self.test_prior, self.classes_)
        inputs = (predicted, table.encode(ids), table, pi, weight)
        accuracy = label_free_accuracy(*inputs)
        if not 0 <= accuracy <= 1 and (message := accuracy_warning(*inputs)):
            warnings.warn(message, ImplausibleEstimateWarning, stacklevel=2)
        return accuracy

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted classifier to a folder that :func:`unbag.load_model` reads.

        The folder holds numbers and JSON, nothing that could run. It appears whole or not at all,
        and takes the place of an older model of unbag there; anything else is refused.
        """
        from unbag.estimator.saving import save_model  # it builds classifiers itself

        check_is_fitted(self, "module_")
        return save_model(self, path)

    def _ids_and_priors(self, X: Any, y: Any) -> tuple[NDArray[Any], ClassPriors]:
        """Bag ids of the rows and the priors of their bags; Bags hold both themselves."""
        if not isinstance(X, Bags):
            return id_array("y", y), self.known_priors_
        if y is not None:
            raise invalid("y", "left out where X is Bags, which hold the bag ids", "both")
        if list(X.priors.classes) != list(self.classes_):
            allowed = f"Bags of the classes {shorten(self.classes_)} as in training"
            raise invalid("X", allowed, f"the classes {shorten(X.priors.classes)}")
        return X.bag_ids, X.priors

    def _log_softmax(self, X: Any) -> Iterator[NDArray[np.float64]]:
        """Log-probabilities of rows under the output prior, not calibrated, in parts (c, K)."""
        check_is_fitted(self, "module_")
        device = resolve_device(self.device)
        module = self.module_
        if device.type != "cpu":
            module = copy.deepcopy(module).to(device)
        # A learner without tensors of its own leaves a model with buffers only.
        dtype = next(itertools.chain(module.parameters(), module.buffers())).dtype
        start = 0
        for part in self._parts(X):
            # Copied, because torch must not share memory that is read-only.
            rows = torch.tensor(np.ascontiguousarray(self._scale(part, self.scaler_)))
            bytes_ = rows.dtype == torch.uint8
            rows = rows.to(device, dtype) / 255 if bytes_ else rows.to(device, dtype)
            pieces = torch.split(rows, _CPU_ROWS if device.type == "cpu" else len(rows))
            with torch.no_grad():
                logits = torch.cat([module(piece) for piece in pieces]).double().cpu()
            _check_finite(torch.isfinite(logits).all(-1).numpy(), start)
            start += len(part)
            yield np.asarray(torch.log_softmax(logits, -1).numpy())

    def _log_odds(
        self, X: Any, prior: Any = None, bag_ids: Any = None
    ) -> Iterator[NDArray[np.float64]]:
        """Log-probabilities up to a constant of rows, under a prior, in parts (c, K)."""
        check_is_fitted(self, "module_")
        shift, row_shifts = self._shifts(X, prior, bag_ids)
        start = 0
        for log_odds in self._log_softmax(X):
            stop = start + len(log_odds)
            moved = shift if row_shifts is None else shift[row_shifts[start:stop]]
            with np.errstate(over="ignore", invalid="ignore"):
                if self.calibration_ is not None:
                    log_odds = self.calibration_.apply(log_odds)
                log_odds = np.asarray(log_odds + moved, dtype=np.float64)
            _check_finite(np.isfinite(log_odds.max(-1)), start)  # one class at least
            yield log_odds
            start = stop

    def _shifts(
        self, X: Any, prior: Any, bag_ids: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
        """Give what is added to log-probabilities, (K,), or of each bag (M, K) and every row's."""
        new, index = self.test_prior_, None
        if prior is not None:
            new = check_test_prior(prior, self.classes_, name="prior")
        if bag_ids is not None:
            if prior is not None:
                raise invalid("prior", "left out where bag_ids are given", "both")
            table = self.known_priors_
            new, index = table.values, table.encode(bag_ids)
            if len(index) != _num_samples(X):
                raise invalid("bag_ids", f"one for each of {_num_samples(X)} rows", len(index))
        unseen = (self.output_prior_ == 0) & (np.atleast_2d(new) > 0).any(0)
        if unseen.any():
            allowed = "zero for classes of which the model has seen nothing"
            raise invalid("prior", allowed, f"more for {shorten(self.classes_[unseen])}")
        return prior_shift(new, self.output_prior_), index


def _check_finite(finite: NDArray[np.bool_], start: int) -> None:
    """Refuse rows without finite numbers; ``start`` is the number of the first."""
    if not finite.all():
        raise NotFiniteError(tuple((start + np.flatnonzero(~finite)).tolist()))


def _join(X: Any, parts: Iterator[NDArray[Any]]) -> NDArray[Any]:
    """Join parts to one array of as many rows as X has.

    It is made first. A list of parts would lie between the blocks of memory that the network has
    freed, and keep them from being used again.
    """
    first = next(parts)
    joined = np.empty((_num_samples(X), *first.shape[1:]), first.dtype)
    end = 0
    for part in itertools.chain([first], parts):
        start, end = end, end + len(part)
        joined[start:end] = part
    return joined
