"""What the paper's study consists of, and the job of every model in it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.bags import Bags, make_bags
from unbag.datasets import load
from unbag.exceptions import InvalidInputError
from unbag.methods import Job, get_method
from unbag.methods.smoothing import SMOOTHING
from unbag.priors import asymmetric, non_square, perturb, symmetric
from unbag.training import TestSet
from unbag.validation import check_choice

__all__ = [
    "ALPHAS",
    "ASCENT_SCALES",
    "BATCH_DIVISORS",
    "DATASET_NAMES",
    "FLOOD_LEVELS",
    "LEARNING_RATES",
    "METHODS",
    "N_CLASSES",
    "OURS",
    "SETTINGS",
    "STUDY",
    "TRIALS",
    "Data",
    "Run",
    "Spec",
    "our_run",
    "rows_in_bags",
]

# The grids and the order of methods are those of the paper's section 5.
LEARNING_RATES = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
BATCH_DIVISORS = (10, 20, 50, 100, 200, 500)
ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
ASCENT_SCALES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FLOOD_LEVELS = (0.0, 0.05, 0.1)
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
METHODS = (
    "biased",
    "prop",
    "prop-cr",
    "unbiased",
    "u-correct",
    "u-stop",
    "u-flood",
    "u-prr",
)
# Methods of our own, and the same networks trained on the labels of the same rows: what each is in
# the library, and its hyperparameters.
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "crossfit": ("crossfit", {"augment": "none"}),
    "crossfit-augmented": ("crossfit", {"augment": "weak"}),
    "consistency": ("consistency", {}),
    "supervised": ("crossfit", {"rounds": 0, "augment": "none"}),
    "supervised-augmented": ("crossfit", {"rounds": 0, "augment": "weak"}),
}
# On soft labels: more than the default where that is few, since they are cheap on a GPU, and where
# rows are augmented.
_OUR_EPOCHS = {"mnist": 40, "fashion-mnist": 40, "kmnist": 40}
_OUR_CHANGED_EPOCHS = 60
HELD_OUT = 0.2  # of the rows, in runs that choose hyperparameters
_THETA_SEED = 0  # one Θ for each random setting


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
        Methods of our own have their defaults of this and the next; of epochs, `our_run` says.
    batch_divisor : int, optional
        Batches hold n / batch_divisor rows.
    epochs : int, optional
    alpha, ascent_scale, flood_level : float, optional
        Hyperparameters of u-prr and u-flood.
    held_out : bool
        Whether a fifth of the rows is held out, to choose hyperparameters.
    prior_noise : float
        Rate of the noise of the class priors that the method is told.
    dropout, weight_decay : float
        The weight decay is that of the paper's methods; our own have their defaults.
    share : float
        Share of the rows that bags are made of.
    options : tuple of pairs
        Names and values of hyperparameters of our own methods, where they are not the defaults.
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
    def hyperparameters(self) -> dict[str, float]:
        """Of a method of the paper."""
        names = ("alpha", "ascent_scale", "flood_level")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}


def our_run(dataset: str, setting: str, method: str, trial: int, **options: Any) -> Run:
    """Return the run of a method of our own, or of the labels.

    Epochs on soft labels are 40 for MNIST and its like, 60 where rows are augmented; else those of
    the default.
    """
    epochs = _OUR_EPOCHS.get(dataset) if OURS[method][0] == "crossfit" else None
    if method.endswith("augmented"):
        epochs = _OUR_CHANGED_EPOCHS
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


@dataclass
class Data:
    """A dataset of the study in memory; makes the job of a run.

    Bags that runs share are made once, and all are views of the same rows.
    """

    name: str
    _bags: dict[tuple[Any, ...], tuple[Bags, Bags | None]] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Any:
        """Labelled rows, as their authors split them."""
        check_choice("dataset", self.name, STUDY)
        return load(self.name)

    @cached_property
    def test(self) -> TestSet:
        """Test rows of the dataset."""
        return TestSet(self.rows.X_test, self.rows.y_test)

    @cached_property
    def test_prior(self) -> NDArray[np.float64]:
        """π: class shares of the labelled rows that bags are drawn from."""
        labels = self.rows.y_train
        return np.bincount(labels, minlength=self.rows.n_classes) / len(labels)

    def bags(self, run: Run) -> tuple[Bags, Bags | None]:
        """Bags to train on and, where the run holds rows out, those."""
        key = (run.setting, run.trial, run.held_out, run.prior_noise, run.share)
        if key not in self._bags:
            self._bags[key] = self._make_bags(run)
        return self._bags[key]

    @cached_property
    def _labelled(self) -> Bags:
        """All training rows in bags of one class each."""
        return Bags(self.rows.X_train, self.rows.y_train, np.eye(self.rows.n_classes))

    def _make_bags(self, run: Run) -> tuple[Bags, Bags | None]:
        k = self.rows.n_classes
        theta = SETTINGS[run.setting](k)
        size = rows_in_bags(len(self.rows.y_train), k, run.share) // len(theta)
        bags = make_bags(
            self.rows.X_train, self.rows.y_train, theta, sizes=size, random_state=run.trial
        )
        if run.prior_noise:
            told = perturb(theta, rate=run.prior_noise, random_state=run.trial)
            bags = bags.with_priors(told)
        if not run.held_out:
            return bags, None
        return bags.train_test_split(test_size=HELD_OUT, random_state=run.trial)

    def job(self, run: Run) -> Job:
        """Turn a run into a job for the engine."""
        spec = STUDY[self.name]
        bags, held_out = self.bags(run)
        if run.method.startswith("supervised"):
            bags = self._labelled.take(np.asarray(bags.rows))
        options = spec.model_options
        if run.dropout:
            options = {**options, "dropout": run.dropout}
        own = self._our_settings(run) if run.method in OURS else self._paper_settings(run, bags)
        return Job(
            bags=bags,
            model=spec.model,
            model_options=options,
            learning_rate=run.learning_rate,
            epochs=run.epochs,
            seed=run.trial,
            test=self.test,
            held_out=held_out,
            **own,
        )

    def _paper_settings(self, run: Run, bags: Bags) -> dict[str, Any]:
        # The paper takes the softmax of methods without an output prior as it is; with the pooled
        # prior as the test prior, nothing is corrected.
        corrected = get_method(run.method).output_prior == "test"
        assert run.batch_divisor is not None
        return {
            "method": run.method,
            "test_prior": self.test_prior if corrected else None,
            "hyperparameters": run.hyperparameters,
            "batch_size": max(1, bags.n_rows // run.batch_divisor),
            "batching": "shuffled",
            "weight_decay": run.weight_decay,
        }

    def _our_settings(self, run: Run) -> dict[str, Any]:
        method, own = OURS[run.method]
        # No round tells a network with labels whether smoothing helps. MLPs on images have it.
        images = self.rows.X_train.ndim > 2
        if run.method == "supervised" and images and STUDY[self.name].model == "mlp":
            own = {**own, "smoothing": SMOOTHING}
        return {
            "method": method,
            "test_prior": self.test_prior,
            "hyperparameters": {**own, **dict(run.options)},
        }
