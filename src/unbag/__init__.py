"""Train classifiers from unlabeled bags of rows and the share of each class in every bag."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unbag import (
        callbacks,
        datasets,
        distributed,
        exceptions,
        methods,
        objectives,
        priors,
        processes,
        theory,
    )
    from unbag.bags import Bags, make_bags
    from unbag.estimator import UnbagClassifier, export_onnx, load_model
    from unbag.estimator.predictor import predictor
    from unbag.evaluation import (
        Evaluation,
        bag_log_loss,
        estimate_prior,
        evaluate,
        evaluate_predictions,
        permutation_importance,
    )
    from unbag.inspection import inspect
    from unbag.priors import ClassPriors
    from unbag.reporting import report
    from unbag.selection import cross_val_predict, tune

    __version__: str

__all__ = [
    "Bags",
    "ClassPriors",
    "Evaluation",
    "UnbagClassifier",
    "__version__",
    "bag_log_loss",
    "callbacks",
    "cross_val_predict",
    "datasets",
    "distributed",
    "estimate_prior",
    "evaluate",
    "evaluate_predictions",
    "exceptions",
    "export_onnx",
    "inspect",
    "load_model",
    "make_bags",
    "methods",
    "objectives",
    "permutation_importance",
    "predictor",
    "priors",
    "processes",
    "report",
    "theory",
    "tune",
]

# Where the public names are. They are imported when they are first used: torch takes seconds.
_MODULES = (
    "callbacks",
    "datasets",
    "distributed",
    "exceptions",
    "methods",
    "objectives",
    "priors",
    "processes",
    "theory",
)
_HOMES = {
    "bags": ("Bags", "make_bags"),
    "estimator": ("UnbagClassifier", "export_onnx", "load_model"),
    "estimator.predictor": ("predictor",),
    "evaluation": (
        "Evaluation",
        "bag_log_loss",
        "estimate_prior",
        "evaluate",
        "evaluate_predictions",
        "permutation_importance",
    ),
    "inspection": ("inspect",),
    "priors": ("ClassPriors",),
    "reporting": ("report",),
    "selection": ("cross_val_predict", "tune"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # for type checkers, the imports above say it all

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from unbag.version import unbag_version

            value: Any = unbag_version()
        elif name in _MODULES:
            return importlib.import_module(f"unbag.{name}")
        elif name in _HOME_OF:
            value = getattr(importlib.import_module(f"unbag.{_HOME_OF[name]}"), name)
        else:
            raise AttributeError(f"module 'unbag' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
