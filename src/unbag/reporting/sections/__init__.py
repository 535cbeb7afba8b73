"""The sections of a report.

A section is a function here that makes its part of the content, a template of the name of its key,
and a line in ``SECTIONS``. Where the function returns None, the page leaves the section out.
"""

from collections.abc import Callable
from dataclasses import dataclass

from unbag.reporting.sections.answers import answers
from unbag.reporting.sections.bags import bag_shares, inspection, priors
from unbag.reporting.sections.columns import columns
from unbag.reporting.sections.results import calibration, confusion, drift, groups, headline
from unbag.reporting.sections.settings import citation, data, hyperparameters
from unbag.reporting.sections.training import training
from unbag.reporting.sources import Part, Sources

__all__ = ["SECTIONS", "Section"]


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes
    ----------
    key : str
        Its key in the content, its id on the page and the name of its template.
    title : str
        Of its heading.
    content : callable
        Makes its part of the content, or None where there is nothing to show.
    """

    key: str
    title: str
    content: Callable[[Sources], Part | None]


SECTIONS = (
    Section("answers", "In short", answers),
    Section("headline", "Results", headline),
    Section("confusion", "Classes", confusion),
    Section("groups", "Groups", groups),
    Section("drift", "Differences between bags", drift),
    Section("bag_shares", "Predicted and known shares", bag_shares),
    Section("columns", "Columns the model uses", columns),
    Section("calibration", "Probabilities", calibration),
    Section("inspection", "Check of bags and shares", inspection),
    Section("priors", "Known shares", priors),
    Section("training", "Training", training),
    Section("hyperparameters", "Settings", hyperparameters),
    Section("data", "Data", data),
    Section("citation", "How to cite", citation),
)
