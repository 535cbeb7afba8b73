"""What the model was made with: settings, data, and whom to cite."""

import importlib.metadata
import platform
from typing import Any

import numpy as np

from unbag.methods import METHODS
from unbag.reporting.sources import Part, Sources

__all__ = ["citation", "data", "hyperparameters", "versions"]

_NOT_SHOWN = {"priors", "method", "verbose", "checkpoint"}
_OF_NETWORKS = {
    *("model", "depth", "width", "dropout", "loss", "batching", "batch_size", "effort", "epochs"),
    *("learning_rate", "backbone_rate", "weight_decay", "early_stopping", "n_iter_no_change"),
    *("validation_fraction", "warm_start", "standardize", "precision", "device"),
}
_SHOWN_IF_GIVEN = {"learner", "time_limit", "callbacks"}  # None leaves nothing to choose
_PACKAGES = ("unbag", "torch", "numpy", "scipy", "scikit-learn", "pyarrow")
_PAPER = (
    "Y. Tang, N. Lu, T. Zhang, M. Sugiyama. Multi-class Classification from Multiple Unlabeled "
    "Datasets with Partial Risk Regularization. ACML 2022."
)
_PAPER_BIBTEX = """\
@inproceedings{tang2022multi,
  title     = {Multi-class Classification from Multiple Unlabeled Datasets
               with Partial Risk Regularization},
  author    = {Tang, Yuting and Lu, Nan and Zhang, Tianyi and Sugiyama, Masashi},
  booktitle = {Proceedings of the 14th Asian Conference on Machine Learning},
  year      = {2022},
  eprint    = {2207.01555},
  archiveprefix = {arXiv}
}"""
_SOFTWARE_BIBTEX = """\
@software{{unbag,
  title   = {{unbag: classifiers from unlabeled bags and class shares}},
  author  = {{{{The unbag developers}}}},
  version = {{{version}}},
  year    = {{{year}}}
}}"""


def hyperparameters(sources: Sources) -> Part:
    """Give the settings that were used, and the names of those that were chosen automatically."""
    clf = sources.clf
    parameters = clf.get_params(deep=False)
    hidden = _NOT_SHOWN | {n for n in _SHOWN_IF_GIVEN if parameters[n] is None}
    if not sources.is_network:
        hidden |= _OF_NETWORKS
    known = {**parameters, **getattr(clf, "training_settings_", {})}
    settings = {n: v for n, v in known.items() if n not in hidden}
    settings |= {n: v for n, v in clf.settings_.items() if n not in hidden}
    settings["test_prior"] = getattr(clf, "test_prior_", settings["test_prior"])
    if sources.is_network:
        settings["epochs"] = getattr(clf, "n_iter_", settings["epochs"])
    automatic = {
        n for n, v in settings.items() if v is None or (isinstance(v, str) and v == "auto")
    }
    return {
        "method_summary": METHODS[clf.method_].summary,
        "values": {n: _describe(v) for n, v in settings.items() if n not in automatic},
        "chosen_automatically": sorted(automatic),
    }


def _describe(value: Any) -> Any:
    """Keep plain values, and name objects by their kind: an address means nothing to a reader."""
    if isinstance(value, bool | int | float | str | np.number):
        return value
    if isinstance(value, dict | list | tuple | np.ndarray):
        return value
    return getattr(value, "__name__", type(value).__name__)


def data(sources: Sources) -> Part | None:
    """Say where the rows come from."""
    if not any(sources.data.values()):
        return None
    told = {
        f"Column {name!r} is left out: {why}." for name, why in sources.data["left_out"].items()
    }
    return {**sources.data, "notes": [note for note in sources.data["notes"] if note not in told]}


def citation(sources: Sources) -> Part:
    """Say how to cite."""
    return {
        "paper": _PAPER,
        "paper_bibtex": _PAPER_BIBTEX,
        "software_bibtex": _SOFTWARE_BIBTEX.format(
            version=versions()["unbag"], year=sources.date.year
        ),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that the numbers depend on, and of Python."""
    installed = {}
    for name in _PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "unknown"
    return {**installed, "Python": platform.python_version()}
