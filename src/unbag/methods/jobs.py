"""Jobs by method name: what each model is fitted to, and how."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from unbag.bags import Bags
from unbag.evaluation import Calibration
from unbag.methods.consistency import add_pseudo_labels
from unbag.methods.recipes import DESCENT_BATCH, descends
from unbag.methods.registry import get_method
from unbag.models import ModuleFactory, build_model
from unbag.objectives import BagLikelihood, Biased, MatchedLikelihood
from unbag.objectives.losses import LossOfEveryClass
from unbag.priors import check_test_prior, risk_weights
from unbag.training import Outcome, Replica, TestSet
from unbag.training.batches import BATCHINGS
from unbag.validation import as_float_array, check_choice, check_number, invalid, shorten

__all__ = [
    "Fit",
    "Job",
    "choose_batching",
    "default_batch_size",
    "default_epochs",
    "default_learning_rate",
    "matching_batch_size",
    "noise_of_shares",
    "prepare",
    "says_little",
    "tells_labels",
    "whole_bag_batch_size",
]

# Bags are small where there are so many of them, of so many rows or fewer in the mean.
_MANY_BAGS, _FEW_ROWS = 30, 600
_BAGS_IN_BATCH = 2
_NOISY = 10.0
_DECAY = 1e-5


def default_batch_size(n_rows: int) -> int:
    """Batch size for n rows: about a tenth, but near 512 to 2,048, in batches of equal size.

    The zero-one partial risks of u-prr are shares of a bag in a batch; of few rows they say
    little, so small tables are trained in one batch.

    Examples
    --------
    >>> [default_batch_size(n) for n in (50, 1_300, 7_490, 60_000)]
    [50, 433, 749, 2068]
    """
    target = float(np.clip(n_rows / 10, 512, 2048))
    return n_rows // max(1, round(n_rows / target))


def noise_of_shares(theta: NDArray[np.float64]) -> float:
    r"""How far rows of a bag differ from each other, against how far bags do.

    .. math:: \sum_{mk} \theta_{mk} (1 - \theta_{mk}) \Big/
        \sum_{mk} (\theta_{mk} - \overline{\theta_k})^2

    The shares of so many rows of a bag have as much noise as there is to learn from bags.

    Examples
    --------
    >>> from unbag.priors import symmetric
    >>> [round(noise_of_shares(symmetric(10, a)), 1) for a in (0.9, 0.5, 0.1)]
    [0.2, 3.0, 99.0]
    """
    signal = ((theta - theta.mean(0)) ** 2).sum()
    return float((theta * (1 - theta)).sum() / signal) if signal > 0 else np.inf


def says_little(theta: NDArray[np.float64]) -> bool:
    """Whether bags differ by less than the shares of ten rows of a bag do by chance.

    Examples
    --------
    >>> from unbag.priors import symmetric
    >>> [says_little(symmetric(10, a)) for a in (0.5, 0.1)]
    [False, True]
    """
    return noise_of_shares(theta) > _NOISY


def tells_labels(theta: NDArray[np.float64]) -> bool:
    """Whether every bag has one class, so that the bags of rows are their labels.

    Examples
    --------
    >>> tells_labels(np.array([[1.0, 0.0], [0.0, 1.0]])), tells_labels(np.array([[0.9, 0.1]]))
    (True, False)
    """
    return bool((theta.max(1) == 1).all())


def matching_batch_size(n_rows: int, theta: NDArray[np.float64]) -> int:
    """Batch size where the shares of bags are compared with the known ones.

    200 rows of a bag, or 60 times :func:`noise_of_shares` where that is more; but at most a third
    of the rows and at most 20,480 or four rows a bag; and at least 512.

    Examples
    --------
    >>> from unbag.priors import symmetric
    >>> clear, faint = symmetric(10, a=0.5), symmetric(10, a=0.1)
    >>> [matching_batch_size(n, clear) for n in (50, 7_480, 60_000)]
    [50, 1870, 2000]
    >>> [matching_batch_size(n, faint) for n in (50, 7_480, 60_000)]
    [50, 2493, 20000]
    """
    m = len(theta)
    rows = max(200.0, 60 * noise_of_shares(theta))
    target = min(max(512, min(rows * m, n_rows // 3)), max(20_480, 4 * m))
    return max(1, n_rows // max(1, round(n_rows / target)))


def choose_batching(counts: NDArray[np.int64]) -> str:
    """``"whole-bags"`` for 30 bags or more with 600 rows or fewer in the mean, else stratified.

    The shares of a bag are known of all its rows. Of a part of a small bag they say little, and
    of a part of a large one nearly as much.

    Parameters
    ----------
    counts : array of shape (M,)
        Rows of every bag.

    Examples
    --------
    >>> choose_batching(np.full(100, 64)), choose_batching(np.full(10, 64))
    ('whole-bags', 'stratified')
    """
    sizes = counts[counts > 0]
    small = len(sizes) >= _MANY_BAGS and sizes.mean() <= _FEW_ROWS
    return "whole-bags" if small else "stratified"


def whole_bag_batch_size(counts: NDArray[np.int64]) -> int:
    """Batch size where bags are kept whole: 512 rows, but two of the largest bags at least.

    Where all bags have the same size it is a multiple of that, so that no bag is cut.

    Examples
    --------
    >>> whole_bag_batch_size(np.full(1000, 60)), whole_bag_batch_size(np.arange(1, 300))
    (540, 598)
    """
    largest, n = int(counts.max()), int(counts.sum())
    target = max(512, _BAGS_IN_BATCH * largest)
    if len(set(counts[counts > 0].tolist())) == 1:
        target = -(-target // largest) * largest
    return min(n, target)


def default_epochs(n_rows: int) -> int:
    """Epochs for n rows: 1,000 steps of the default batch, but 20 to 100 epochs.

    Examples
    --------
    >>> [default_epochs(n) for n in (50, 7_490, 60_000)]
    [100, 100, 34]
    """
    steps = n_rows // default_batch_size(n_rows)
    return int(np.clip(1000 // steps, 20, 100))


def default_learning_rate(n_rows: int) -> float:
    """Adam's learning rate for n rows: 0.001, and more where the default batch is above 512.

    Examples
    --------
    >>> [round(default_learning_rate(n), 5) for n in (50, 7_490, 60_000)]
    [0.001, 0.00121, 0.00201]
    """
    return 1e-3 * float(np.sqrt(max(default_batch_size(n_rows), 512) / 512))


@dataclass(frozen=True, eq=False)
class Job:
    """One model to fit: data, method, network, settings. ``None`` means a default from the data.

    Parameters
    ----------
    bags : Bags
        Training rows with bag ids and class priors.
    method : str
        A key of ``unbag.methods.METHODS``.
    test_prior : array of shape (K,) or dict, optional
        π; by default the pooled prior of the rows.
    hyperparameters : dict
        Of the method: ``alpha`` and ``ascent_scale`` (u-prr), ``flood_level`` (u-flood),
        ``consistency`` (prop-cr), ``matching`` (matched-likelihood); of crossfit ``matching``,
        ``folds``, ``rounds``, ``start``, ``mixup``, ``smoothing`` (a share of the spread of rows,
        0 for none), ``balanced``, ``calibrated`` and ``augment`` ("none", "weak", "strong";
        "weak" for residual networks); of consistency ``matching``, ``purity``, ``threshold``,
        ``teacher``, ``balanced``, ``flip`` and ``weight``.
    loss : str or callable
        The loss ℓ of every class.
    model : str, nn.Module or factory
    model_options : dict
        ``depth``, ``width`` and ``dropout`` of the MLP.
    learning_rate : float, optional
        Of Adam. Left out, residual networks learn labels of their own making by gradient descent,
        from 10,000 rows on.
    weight_decay : float, optional
        In Adam's L2 form. Left out it is 1e-5, and more where MLPs learn soft labels, or start
        crossfit while priors say little.
    batch_size, epochs : int, optional
    batching : {"auto", "stratified", "shuffled", "whole-bags"}
        How batches are drawn; "auto" keeps small bags whole.
    seed : int
        Seed of initial weights, batches and dropout.
    sample_weight : array of shape (n,), optional
    test : TestSet, optional
        Labelled rows whose error is recorded, for research.
    held_out : Bags, optional
        Other rows of bags whose label-free error is recorded. Its priors must have full column
        rank.
    patience : int, optional
        End after so many epochs without a smaller label-free error of ``held_out``, and keep the
        weights of the best epoch.
    """

    bags: Bags
    method: str = "auto"
    test_prior: Any = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    loss: str | LossOfEveryClass = "cross-entropy"
    model: str | nn.Module | ModuleFactory = "mlp"
    model_options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    batching: str = "auto"
    seed: int = 0
    sample_weight: NDArray[np.float64] | None = None
    test: TestSet | None = None
    held_out: Bags | None = None
    patience: int | None = None


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model with the priors that its probabilities rest on.

    Attributes
    ----------
    outcome : Outcome
        Network, history, why training stopped.
    pooled_prior, test_prior, output_prior : arrays of shape (K,)
        Class shares of the rows, where the model will be used, and under which its softmax is a
        posterior.
    calibration : Calibration or None
        Of its probabilities, where the method made one.
    """

    outcome: Outcome
    pooled_prior: NDArray[np.float64]
    test_prior: NDArray[np.float64]
    output_prior: NDArray[np.float64]
    calibration: Calibration | None = None


Priors = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def prepare(job: Job, precision: str) -> tuple[Replica, Priors]:
    """Turn a job into what the engine takes, and its three priors."""
    check_number("seed", job.seed, low=0, high=2**63 - 1, integer=True)
    method = get_method(job.method)
    method.check_hyperparameters(job.hyperparameters)
    bags = job.bags.present()
    n = bags.n_rows
    weight = None if job.sample_weight is None else _check_weight(job.sample_weight, n)
    counts = np.bincount(bags.bag_index, weights=weight, minlength=bags.priors.n_bags)
    priors = bags.priors
    check_choice("batching", job.batching, ("auto", *BATCHINGS))
    batching = choose_batching(bags.counts) if job.batching == "auto" else job.batching
    pooled = priors.pooled(counts)
    pi = pooled if job.test_prior is None else check_test_prior(job.test_prior, priors.classes)
    output = pi if method.output_prior == "test" else pooled

    module = build_model(job.model, bags.row_shape, priors.n_classes, job.seed, **job.model_options)
    own = {k: v for k, v in job.hyperparameters.items() if k not in method.options}
    by_descent = (
        method.has_pseudo_labels
        and descends(module, n, job.learning_rate)
        and "matching" not in own
        and batching != "whole-bags"
        and not says_little(priors.values)
    )
    if by_descent:  # its steps are too large for the gradient of the matching term
        own = {**own, "matching": 0.0}
    arguments: dict[str, Any] = {"loss": job.loss, **own}
    if method.needs_rank:
        arguments["test_prior"] = pi
    if issubclass(method.objective, BagLikelihood) or (
        method.objective is Biased and batching != "shuffled"
    ):
        arguments["bag_shares"] = counts / counts.sum()
    objective = method.objective(priors, **arguments)
    if job.held_out is not None and list(job.held_out.priors.classes) != list(priors.classes):
        allowed = f"Bags of the classes {shorten(priors.classes)} as in training"
        raise invalid("held_out", allowed, f"the classes {shorten(job.held_out.priors.classes)}")
    full_rank = priors.rank == priors.n_classes
    with np.errstate(divide="ignore"):  # a class that π excludes gets −inf: it is never predicted
        shift = np.log(pi) - np.log(np.where(output > 0, output, 1))
    batch_size = default_batch_size(n)
    if batching == "whole-bags":
        batch_size = whole_bag_batch_size(bags.counts)
    elif isinstance(objective, MatchedLikelihood):
        batch_size = max(batch_size, matching_batch_size(n, priors.values))
    replica = Replica(
        bags=bags,
        objective=objective,
        # The trained weights come back in a copy of this module, so it must hold all their digits.
        module=module.double() if precision == "float64" else module,
        seed=job.seed,
        epochs=default_epochs(n) if job.epochs is None else job.epochs,
        batch_size=batch_size if job.batch_size is None else job.batch_size,
        learning_rate=(
            default_learning_rate(n) if job.learning_rate is None else job.learning_rate
        ),
        weight_decay=_DECAY if job.weight_decay is None else job.weight_decay,
        batching=batching,
        sample_weight=weight,
        risk_weights=risk_weights(priors, pi, warn=False) if full_rank else None,
        stop_when_negative=method.stop_when_negative,
        test=job.test,
        held_out=job.held_out,
        test_prior=pi,
        patience=job.patience,
        logit_shift=shift,
    )
    if method.has_pseudo_labels:
        options = {k: v for k, v in job.hyperparameters.items() if k in method.options}
        given = {k: getattr(job, k) for k in ("batch_size", "epochs", "learning_rate")}
        if by_descent:
            batch_size = DESCENT_BATCH
        elif batching != "whole-bags":
            batch_size = max(512, min(matching_batch_size(n, priors.values), n // 10))
        replica = add_pseudo_labels(
            replica, options, batch_size=batch_size, given=given, by_descent=by_descent
        )
    return replica, (pooled, pi, output)


def _check_weight(sample_weight: Any, n: int) -> NDArray[np.float64]:
    weight = as_float_array("sample_weight", sample_weight, ndim=1)
    if len(weight) != n:
        raise invalid("sample_weight", f"a positive number for each of {n} rows", len(weight))
    if not (np.isfinite(weight).all() and (weight > 0).all()):
        got = f"numbers from {weight.min():g} to {weight.max():g}"
        raise invalid(
            "sample_weight", "a positive number for each row", got, "leave out rows of 0."
        )
    return weight
