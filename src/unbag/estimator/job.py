"""The job of a classifier, with what it remembers of its data."""

from dataclasses import dataclass

from sklearn.preprocessing import StandardScaler

from unbag.bags import Bags
from unbag.methods import Job

__all__ = ["ClassifierJob"]


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
