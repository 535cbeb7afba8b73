"""What the paper's study consists of: datasets, settings, methods, and every run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unbag.exceptions import InvalidInputError
from unbag.priors import asymmetric, non_square, symmetric

if TYPE_CHECKING:
    from study.choices import Choices

# The grids and the order of methods are those of the paper's section 5.
LEARNING_RATES = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
BATCH_DIVISORS = (10, 20, 50, 100, 200, 500)
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
ASCENT_SCALES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FLOOD_LEVELS = (0.0, 0.05, 0.1)
METHODS = ("biased", "prop", "prop-cr", "unbiased", "u-correct", "u-stop", "u-flood", "u-prr")
DATASET_NAMES = {
    "pendigits": "Pendigits",
    "usps": "USPS",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "kmnist": "Kuzushiji-MNIST",
    "cifar10": "CIFAR-10",
}
TRIALS = 5
N_CLASSES = 10  # of all six datasets
_THETA_SEED = 0  # one Θ for each random setting

# Methods that are not the paper's, and the same networks trained on the labels of the same rows:
# what each is in the library, and its hyperparameters.
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "crossfit": ("crossfit", {"augment": "none"}),
    "crossfit-mixup": ("crossfit", {"augment": "none", "mixup": True}),
    "crossfit-augmented": ("crossfit", {"augment": "weak"}),
    "consistency": ("consistency", {}),
    "supervised": ("crossfit", {"rounds": 0, "augment": "none"}),
    "supervised-mixup": ("crossfit", {"rounds": 0, "augment": "none", "mixup": True}),
    "supervised-augmented": ("crossfit", {"rounds": 0, "augment": "weak"}),
}
# Epochs on soft labels: more than the default where that is few, since they are cheap on a GPU, and
# where rows are augmented.
_OUR_EPOCHS = {"mnist": 40, "fashion-mnist": 40, "kmnist": 40}
_OUR_AUGMENTED_EPOCHS = 60

# What the figures vary, on MNIST.
FIGURE_DATASET = "mnist"
DROPOUTS = (0.0, 0.2, 0.4, 0.6, 0.8)  # of one trial, like the weight decays
WEIGHT_DECAYS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1)
NOISE_RATES = (0.0, 0.01, 0.03, 0.05)
SHARES = (1 / 27, 1 / 9, 1 / 3, 1.0)
SHARE_METHODS = ("u-prr", "unbiased")


@dataclass(frozen=True)
class Spec:
    """Model and length of training of a dataset, and whether the whole grid is run on it."""

    model: str
    model_options: dict[str, Any]
    epochs: int
    has_grid: bool = True


STUDY: dict[str, Spec] = {
    "pendigits": Spec("mlp", {"depth": 3, "width": 300}, 500),
    "usps": Spec("mlp", {"depth": 3, "width": 300}, 500),
    "mnist": Spec("mlp", {"depth": 5, "width": 300}, 500),
    "fashion-mnist": Spec("mlp", {"depth": 5, "width": 300}, 500),
    "kmnist": Spec("mlp", {"depth": 5, "width": 300}, 500),
    "cifar10": Spec("resnet20", {}, 200, has_grid=False),
}

SETTINGS: dict[str, Callable[[int], NDArray[np.float64]]] = {
    "symmetric-0.5": lambda k: symmetric(k, a=0.5),
    "symmetric-0.1": lambda k: symmetric(k, a=0.1),
    "asymmetric": lambda k: asymmetric(k, random_state=_THETA_SEED),
    "non-square": lambda k: non_square(k, random_state=_THETA_SEED),
}


@dataclass(frozen=True)
class Run:
    """Everything that one trained model of the study depends on.

    Parameters
    ----------
    dataset, setting, method : str
    trial : int
        Seed of bags, initial weights and batches.
    learning_rate : float, optional
        Methods that are not the paper's use the library's defaults for this and for the batch size;
        `our_run` sets their epochs.
    batch_divisor : int, optional
        Batches hold n / batch_divisor rows.
    epochs : int, optional
    alpha, ascent_scale, flood_level : float, optional
        Hyperparameters of u-prr and u-flood.
    held_out : bool
        Whether a fifth of the rows is held out, to choose hyperparameters.
    prior_noise : float
        Rate of the noise in the class priors that the method is given.
    dropout, weight_decay : float
        The weight decay is that of the paper's methods; the others use their defaults.
    share : float
        Share of the rows that bags are made of.
    options : tuple of pairs
        Names and values of the settings of `crossfit` and `consistency` that are not the defaults.
    """

    dataset: str
    setting: str
    method: str
    trial: int
    learning_rate: float | None = None
    batch_divisor: int | None = None
    epochs: int | None = None
    alpha: float | None = None
    ascent_scale: float | None = None
    flood_level: float | None = None
    held_out: bool = False
    prior_noise: float = 0.0
    dropout: float = 0.0
    weight_decay: float = 1e-5
    share: float = 1.0
    options: tuple[tuple[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Fields that are not at their default."""
        defaults = {f.name: f.default for f in fields(self)}
        return {k: v for k, v in asdict(self).items() if v != defaults[k]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Run":
        """Undo :meth:`to_dict`."""
        options = tuple((str(name), value) for name, value in values.get("options", ()))
        try:
            return cls(**{**values, "options": options})
        except TypeError as error:
            raise InvalidInputError(f"not a run of the study: {dict(values)} ({error})") from None

    @property
    def first(self) -> "Run":
        """The same run in trial 0, which stands for all trials."""
        return replace(self, trial=0)

    @property
    def hyperparameters(self) -> dict[str, float]:
        """Of a method of the paper."""
        names = ("alpha", "ascent_scale", "flood_level")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}


def our_run(dataset: str, setting: str, method: str, trial: int, **options: Any) -> Run:
    """Return the run of a method that is not the paper's, or of a network with labels.

    Epochs on soft labels are 40 for MNIST and its like, 60 where rows are augmented; else those of
    the default.
    """
    epochs = _OUR_EPOCHS.get(dataset) if OURS[method][0] == "crossfit" else None
    if method.endswith("augmented"):
        epochs = _OUR_AUGMENTED_EPOCHS
    return Run(dataset, setting, method, trial, epochs=epochs, options=tuple(options.items()))


def rows_in_bags(n_rows: int, n_classes: int, share: float = 1.0) -> int:
    """How many of the training rows the bags of a run hold, whatever its setting.

    A multiple of 2K, the largest number of bags.

    Examples
    --------
    >>> rows_in_bags(7494, 10), rows_in_bags(60_000, 10, share=1 / 27)
    (7480, 2220)
    """
    return int(share * n_rows) // (2 * n_classes) * (2 * n_classes)


# What is changed in an ablation, in words and as options.
_Change = tuple[str, dict[str, Any]]
_CROSSFIT: tuple[_Change, ...] = (
    ("no rounds", {"rounds": 0}),
    ("one round", {"rounds": 1}),
    ("two folds", {"folds": 2}),
    ("ten folds", {"folds": 10}),
    ("start by `bag-likelihood`", {"start": "bag-likelihood"}),
    ("start by `u-prr`", {"start": "u-prr"}),
    ("no temperature", {"calibrated": False}),
    ("labels not balanced", {"balanced": False}),
    ("no mixup", {"mixup": False}),
    ("no smoothing", {"smoothing": 0.0}),
)
_CONSISTENCY: tuple[_Change, ...] = (
    ("no pseudo-labels", {"weight": 0.0}),
    ("no teacher", {"teacher": False}),
    ("threshold 0.95", {"threshold": 0.95}),
    ("labels not balanced", {"balanced": False}),
)
ABLATIONS: dict[tuple[str, str, str], tuple[_Change, ...]] = {  # by dataset, setting and method
    ("mnist", "symmetric-0.5", "crossfit-mixup"): _CROSSFIT,
    ("mnist", "symmetric-0.1", "crossfit-mixup"): _CROSSFIT,
    ("cifar10", "symmetric-0.5", "consistency"): _CONSISTENCY,
}


def cell_runs(
    choices: "Choices",
    settings: Iterable[str] = tuple(SETTINGS),
    methods: Iterable[str] = METHODS,
    trials: int = TRIALS,
    *,
    oracle: bool = False,
) -> list[Run]:
    """List the runs of the cells of a dataset.

    ``oracle`` means those best by test error, of the methods that have a grid.
    """
    return [
        choices.run(setting, method, trial, oracle=oracle)
        for setting in settings
        for method in methods
        if not oracle or method in choices.by_test_error[setting]
        for trial in range(trials)
    ]


def regularised_runs(choices: "Choices") -> dict[str, list[Run]]:
    """List the runs of `unbiased` with dropout or weight decay, trial 0."""
    plain = choices.run("asymmetric", "unbiased", 0)
    return {
        "dropout": [replace(plain, dropout=rate) for rate in DROPOUTS],
        "weight decay": [replace(plain, weight_decay=decay) for decay in WEIGHT_DECAYS],
    }


def noisy_runs(choices: "Choices", trial: int = 0) -> dict[str, list[Run]]:
    """List the runs of `u-prr` with noise in the class priors, by setting."""
    return {
        setting: [replace(choices.run(setting, "u-prr", trial), prior_noise=r) for r in NOISE_RATES]
        for setting in SETTINGS
    }


def share_runs(choices: "Choices", trial: int = 0) -> dict[str, list[Run]]:
    """List the runs with fewer rows, by method."""
    return {
        method: [replace(choices.run("symmetric-0.5", method, trial), share=s) for s in SHARES]
        for method in SHARE_METHODS
    }


def grid_runs(choices: "Choices") -> dict[str, list[Run]]:
    """List the runs that chose α and s_GA, by setting; s_GA varies fastest."""
    return {
        setting: [
            replace(
                choices.run(setting, "u-prr", 0), alpha=alpha, ascent_scale=scale, held_out=True
            )
            for alpha in ALPHAS
            for scale in ASCENT_SCALES
        ]
        for setting in SETTINGS
    }


def figure_runs(choices: "Choices", trials: int) -> list[Run]:
    """List the runs that only the figures need."""
    groups = [regularised_runs(choices)]
    for trial in range(trials):
        groups += [noisy_runs(choices, trial), share_runs(choices, trial)]
    return [run for group in groups for runs in group.values() for run in runs]


def ablation_runs(datasets: Iterable[str]) -> list[Run]:
    """List the runs of the ablations, trial 0 of each."""
    wanted = set(datasets)
    return [
        our_run(*where, 0, **options)
        for where, changes in ABLATIONS.items()
        if where[0] in wanted
        for _, options in (("as it is", {}), *changes)
    ]


def noise_runs(trials: int) -> list[Run]:
    """List the runs of `crossfit-mixup` with noise in the class priors."""
    return [
        replace(our_run(FIGURE_DATASET, setting, "crossfit-mixup", trial), prior_noise=rate)
        for setting in SETTINGS
        for rate in NOISE_RATES
        for trial in range(trials)
    ]
