"""Names of methods and what each consists of."""

from dataclasses import dataclass
from typing import Any

from unbag import objectives
from unbag.exceptions import InvalidInputError
from unbag.objectives import Objective
from unbag.validation import check_choice, shorten

__all__ = ["METHODS", "Method", "get_method"]


@dataclass(frozen=True)
class Method:
    """A whole recipe.

    Parameters
    ----------
    name : str
    summary : str
        One line on what it does.
    objective : type of Objective
        Of a procedure: what it starts with.
    stop_when_negative : bool
        End training after the first epoch whose mean empirical risk is negative.
    options : tuple of str
        Hyperparameters beside those of the objective.
    is_procedure : bool
        Whether it takes more than one training.
    has_pseudo_labels : bool
        Whether it trains on augmented rows and labels of its own.
    chosen : bool
        Whether it stands for another method, which is chosen when the bags are known.
    """

    name: str
    summary: str
    objective: type[Objective]
    stop_when_negative: bool = False
    options: tuple[str, ...] = ()
    is_procedure: bool = False
    has_pseudo_labels: bool = False
    chosen: bool = False

    @property
    def needs_rank(self) -> bool:
        """Whether Θ must have full column rank."""
        return self.objective.needs_rank

    @property
    def output_prior(self) -> str:
        """``"test"`` where the softmax is a posterior under the test prior, else ``"pooled"``.

        ``biased``, ``prop`` and ``prop-cr`` have no output prior by theory; the pooled one stands
        in for it.
        """
        return "test" if self.objective.needs_rank else "pooled"

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Names of the hyperparameters, those of the objective first."""
        if self.chosen:
            return ()
        return (*self.objective.hyperparameters, *self.options)

    def check_hyperparameters(self, given: dict[str, Any]) -> None:
        """Refuse a hyperparameter that the method does not have."""
        unknown = [name for name in given if name not in self.hyperparameters]
        if unknown:
            own = shorten(self.hyperparameters, limit=20) if self.hyperparameters else "none"
            message = (
                f"method {self.name!r} has no hyperparameter {shorten(unknown)}; it has: {own}."
            )
            raise InvalidInputError(message)


_SUMMARIES = {
    "biased": "every row labelled with the largest class of its bag",
    "prop": "predicted shares of every bag matched to the known ones",
    "prop-cr": "prop with virtual adversarial consistency",
    "unbiased": "unbiased estimate of the risk",
    "u-correct": "unbiased, the risk of every class kept above zero",
    "u-flood": "unbiased, the risk kept above a flood level",
    "u-stop": "unbiased, ended when the risk turns negative",
    "u-prr": "unbiased with partial risk regularisation",
    "bag-likelihood": "likelihood of every row's bag",
    "matched-likelihood": "bag-likelihood, the mean posterior of every bag held at its shares",
}

METHODS: dict[str, Method] = {
    name: Method(name, summary, objectives.OBJECTIVES[name], stop_when_negative=name == "u-stop")
    for name, summary in _SUMMARIES.items()
} | {
    "crossfit": Method(
        "crossfit",
        "soft labels from bags, by networks of folds",
        objectives.MatchedLikelihood,
        options=(
            "folds",
            "rounds",
            "start",
            "mixup",
            "smoothing",
            "balanced",
            "calibrated",
            "augment",
        ),
        is_procedure=True,
    ),
    "consistency": Method(
        "consistency",
        "a likelihood of bags on augmented rows, with pseudo-labels of a teacher",
        objectives.MatchedLikelihood,
        options=("purity", "threshold", "teacher", "balanced", "flip", "weight"),
        has_pseudo_labels=True,
    ),
    "auto": Method(
        "auto",
        "the one of these that suits bags and network",
        objectives.MatchedLikelihood,
        chosen=True,
    ),
}


def get_method(name: str) -> Method:
    """Return the method of that name.

    Examples
    --------
    >>> get_method("u-prr").hyperparameters
    ('alpha', 'ascent_scale')
    """
    check_choice("method", name, METHODS)
    return METHODS[name]
