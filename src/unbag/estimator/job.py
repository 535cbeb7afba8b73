"""The job of a classifier, with what it remembers of its data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from unbag.bags import Bags
from unbag.methods import Fit, Job

__all__ = ["ClassifierJob", "history_of_bags"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassifierJob(Job):
    """A job, and what the classifier remembers of its data.

    Parameters
    ----------
    given : Bags
        The rows before any scaling.
    scaler : StandardScaler or None
    """

    given: Bags
    scaler: StandardScaler | None


def history_of_bags(job: ClassifierJob, fit: Fit) -> dict[str, NDArray[np.float64]]:
    """History without the bags of labelled rows; NaN for bags of which all rows have labels."""
    if job.labels is None:
        return fit.history
    bags = job.bags.present()
    known = fit.history["partial_risks"]
    left = np.bincount(bags.bag_index[job.labels < 0], minlength=bags.priors.n_bags) > 0
    risks = np.full((len(known), *bags.priors.values.shape), np.nan)
    risks[:, left] = known[:, : left.sum()]
    return {**fit.history, "partial_risks": risks}
