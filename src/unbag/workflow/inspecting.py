"""The check before training, from files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unbag.inspection import Inspection
from unbag.priors import SharesOf
from unbag.validation import check_number
from unbag.workflow.reading import inspect_rows, read_training_inputs
from unbag.workflow.settings import check_intervals

__all__ = ["InspectedFiles", "inspect_files"]


@dataclass(frozen=True, eq=False)
class InspectedFiles:
    """What :func:`inspect_files` found.

    Attributes
    ----------
    inspection : Inspection
    features : tuple of str
        What the columns become.
    notes : tuple of str
        What a user should know, one sentence each.
    """

    inspection: Inspection
    features: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return {
            **self.inspection.to_dict(),
            "features": list(self.features),
            "input_notes": list(self.notes),
        }


def inspect_files(
    rows: Any,
    *,
    bag: str | None = None,
    priors: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    keep: Sequence[str] = (),
    images: str | os.PathLike[str] | None = None,
    where: str | None = None,
    shares_of: SharesOf | None = None,
    level: float = 0.95,
    seed: int = 0,
    verbose: bool = False,
    sampling: str | None = None,
) -> InspectedFiles:
    """Tell whether rows and priors in files can work at all, before anything is trained.

    Parameters are those of :func:`unbag.workflow.fit_files` and :func:`unbag.inspect`; the test
    of the assumption uses at most 50,000 rows, which are drawn by ``seed``.
    """
    check_number("seed", seed, low=0, integer=True)
    told = check_intervals(shares_of, sampling, level)
    options = {"images": images, "where": where, "shares_of": told, "verbose": verbose}
    inputs = read_training_inputs(rows, bag, priors, columns, leave_out, keep, seed, **options)
    inspection = inspect_rows(inputs, seed, level=level)
    features = tuple(getattr(inputs.rows.encoding, "feature_names", ()))
    return InspectedFiles(inspection, features, inputs.notes)
