"""Whether intervals hold where class shares have errors that are told, over repeats of known truth.

usage: python -m study.checks share_errors [--repeats 2000] [--processes 1] [--seconds LIMIT]
           [--record FILE.json]
       python -m study.checks share_errors --table FILE.json

Each case draws class shares and a confusion matrix once. Each repeat draws the predictions of rows
and the shares that are told: counted in a sample of rows, with Laplace noise, or exact for whole
bags of which a part is held out. In cases of shares that are known in part, each repeat draws the
shares of the bags as well, and which are not known. The method was developed on other cases and
seeds. A run that is stopped goes on from its record.
"""

import datetime
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from study.checks.coverage import exact_counts, make_confusion, make_priors
from study.checks.processes import results_of
from unbag.evaluation import Estimate, estimate_prior
from unbag.evaluation.core import Core
from unbag.evaluation.metrics import CLASS_METRICS, OVERALL_METRICS
from unbag.evaluation.variances import BagSample
from unbag.priors import ClassPriors, ShareErrors
from unbag.priors.errors import GivenErrors
from unbag.priors.partial import complete

LEVEL, SEED = 0.95, 2311
NUMBERS = ("accuracy", "macro_f1", "recall", "precision", "predicted_share")
INSIDE = (0.93, 0.97)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """Bags, a model, and how their shares are known."""

    bags: int
    classes: int
    size: int
    accuracy: float
    condition: float
    rows: int | None = None  # that shares are counted in
    noise: float | None = None  # scale of the Laplace noise, in shares
    held_out: float | None = None  # share of whole bags with exact counts
    shifted: bool = False  # whether the test prior differs from that of the rows
    without: int | None = None  # bags of which no share is known
    merged: int | None = None  # bags that do not tell the first two classes apart


PARTLY_KNOWN = (
    Case(12, 2, 300, 0.85, 3, without=3),
    Case(40, 2, 100, 0.9, 3, without=20),
    Case(20, 3, 300, 0.8, 4, without=5, merged=5),
    Case(40, 3, 100, 0.9, 4, merged=20),
    Case(20, 5, 500, 0.9, 5, merged=8),
    Case(30, 5, 300, 0.85, 5, without=10),
    Case(40, 10, 500, 0.9, 8, without=8, merged=8),
)
CASES = (
    # Shares counted in samples.
    Case(8, 2, 500, 0.85, 3, rows=50),
    Case(30, 2, 200, 0.7, 4, rows=100),
    Case(60, 2, 20, 0.9, 3, rows=200),
    Case(4, 2, 2000, 0.95, 3, rows=400),
    Case(3, 3, 500, 0.8, 4, rows=400),
    Case(5, 3, 200, 0.9, 4, rows=100),
    Case(12, 3, 100, 0.6, 4, rows=50),
    Case(40, 3, 200, 0.8, 4, rows=50),
    Case(40, 3, 500, 0.95, 5, rows=200),
    Case(60, 3, 50, 0.75, 4, rows=100),
    Case(4, 4, 1000, 0.9, 5, rows=1000),
    Case(8, 4, 500, 0.8, 5, rows=200),
    Case(25, 4, 300, 0.95, 6, rows=100),
    Case(50, 4, 1000, 0.9, 8, rows=400),
    Case(10, 5, 500, 0.8, 5, rows=100),
    Case(10, 5, 2000, 0.95, 6, rows=400),
    Case(20, 5, 300, 0.9, 5, rows=50),
    Case(20, 5, 1000, 0.7, 6, rows=100),
    Case(45, 5, 150, 0.85, 5, rows=200),
    Case(15, 7, 800, 0.9, 6, rows=400),
    Case(30, 7, 400, 0.8, 6, rows=200),
    Case(10, 10, 1000, 0.9, 8, rows=2000),
    Case(20, 10, 500, 0.85, 8, rows=400),
    Case(40, 10, 500, 0.95, 8, rows=200),
    Case(60, 10, 100, 0.9, 6, rows=1000),
    Case(30, 15, 1000, 0.9, 8, rows=1000),
    Case(20, 20, 1000, 0.9, 8, rows=5000),
    Case(40, 20, 500, 0.85, 8, rows=2000),
    Case(6, 3, 2000, 0.99, 4, rows=5000),
    Case(30, 4, 500, 0.99, 5, rows=1000),
    Case(12, 3, 500, 0.5, 4, rows=200),
    Case(30, 5, 300, 0.5, 5, rows=100),
    # Another test prior.
    Case(12, 3, 500, 0.85, 4, rows=200, shifted=True),
    Case(30, 4, 300, 0.9, 5, rows=100, shifted=True),
    Case(20, 6, 1000, 0.8, 6, rows=400, shifted=True),
    Case(15, 3, 400, 0.9, 4, shifted=True),
    Case(10, 5, 400, 0.8, 5, shifted=True),
    # Laplace noise: b = 1 / (εN) for bags of N rows.
    Case(10, 2, 500, 0.9, 3, noise=0.02),
    Case(20, 3, 300, 0.8, 4, noise=0.04),
    Case(40, 4, 200, 0.9, 5, noise=0.03),
    Case(15, 5, 1000, 0.85, 5, noise=0.01),
    Case(30, 8, 500, 0.9, 6, noise=0.01),
    # A part of bags whose shares are exact as wholes.
    Case(6, 3, 200, 0.8, 4, held_out=0.25),
    Case(10, 4, 500, 0.95, 5, held_out=0.5),
    Case(20, 5, 100, 0.9, 5, held_out=0.2),
    Case(12, 2, 300, 0.995, 4, held_out=0.5),
    Case(12, 6, 400, 0.85, 6, held_out=0.3, shifted=True),
)


def measure_case(case: Case, repeats: int, seed: int = SEED) -> dict[str, Any]:
    """Coverage and width of each number, and the width where the shares are exact."""
    settings = (value for value in asdict(case).values() if value is not None)
    rng = np.random.default_rng([seed, *(round(1000 * value) for value in settings)])
    theta = make_priors(case.bags, case.classes, case.condition, rng)
    confusion = make_confusion(case.classes, case.accuracy, rng)
    shift = rng.dirichlet(np.full(case.classes, 2.0)) if case.shifted else None
    hits, widths = np.zeros(len(NUMBERS)), np.zeros(len(NUMBERS))
    exact = np.zeros(len(NUMBERS))
    few = max(1, repeats // 20)
    for i in range(repeats):
        if case.without or case.merged:  # which bags are not known must say nothing of their shares
            theta = rng.permutation(theta)
            while np.linalg.cond(theta[_n_unknown(case) :]) > 3 * case.condition:
                theta = rng.permutation(theta)
        table, priors, held_out = _draw(case, theta, confusion, rng)
        estimates, truth = _numbers(table, priors, held_out, confusion, shift)
        pairs = zip(estimates, truth, strict=True)
        hits += [e.low - 1e-12 <= true <= e.high + 1e-12 for e, true in pairs]
        widths += [e.high - e.low for e in estimates]
        if i < few:
            told = ClassPriors(theta) if case.held_out is None else priors
            estimates, _ = _numbers(table, told, held_out, confusion, shift)
            exact += [e.high - e.low for e in estimates]
    named = [dict(zip(NUMBERS, v, strict=True)) for v in (hits / repeats, widths / repeats)]
    coverage, width = named
    exact_width = dict(zip(NUMBERS, exact / few, strict=True))
    return asdict(case) | {"coverage": coverage, "width": width, "exact_width": exact_width}


def _draw(
    case: Case, theta: Floats, confusion: Floats, rng: np.random.Generator
) -> tuple[NDArray[np.int64], ClassPriors, Floats | None]:
    """Draw counts of predictions, the priors as they are told, and shares held out."""
    if case.held_out is not None:
        whole = np.full(case.bags, round(case.size / case.held_out))
        counts = exact_counts(theta, whole)
        drawn = [rng.multivariate_hypergeometric(row, case.size) for row in counts]
        table = np.array([rng.multinomial(row, confusion).sum(0) for row in drawn])
        priors = ClassPriors(counts, normalize=True, shares_of="rows")
        return table, priors, np.full(case.bags, case.size) / whole
    table = rng.multinomial(case.size, theta @ confusion)
    if case.rows is not None:
        told = rng.multinomial(case.rows, theta) / case.rows
        return table, ClassPriors(told, errors=ShareErrors.from_rows(case.rows)), None
    if case.noise is not None:
        told = np.maximum(theta + rng.laplace(0, case.noise, theta.shape), 0)
        errors = ShareErrors.laplace(case.noise)
        return table, ClassPriors(told, normalize=True, errors=errors), None
    if case.without or case.merged:
        shares, bag_ids = theta.copy(), range(case.bags)
        merged = np.full(case.bags, np.nan)
        shares[: case.without or 0] = np.nan
        some = slice(case.without or 0, _n_unknown(case))
        merged[some], shares[some, :2] = theta[some, :2].sum(1), np.nan
        filled, errors = complete(shares, bag_ids, range(case.classes), [([0, 1], merged)])
        return table, ClassPriors(filled, errors=GivenErrors("guessed", errors)), None
    return table, ClassPriors(theta), None


def _n_unknown(case: Case) -> int:
    """Bags of which not all shares are known; they come first."""
    return (case.without or 0) + (case.merged or 0)


def _numbers(
    table: NDArray[np.int64],
    priors: ClassPriors,
    held_out: Floats | None,
    confusion: Floats,
    shift: Floats | None,
) -> tuple[list[Estimate], list[float]]:
    """Estimates in the order of ``NUMBERS``, those of class 0, and the truth about them."""
    sample = BagSample.of(priors, table.sum(1), held_out)
    core = Core(table, priors, sample, shift)
    z = float(stats.norm.ppf(0.5 + LEVEL / 2))
    estimates, truth = [], []
    for name in NUMBERS:
        if name in OVERALL_METRICS:
            metric = OVERALL_METRICS[name]
            estimates.append(core.overall(metric, z))
            truth.append(float(metric.value(confusion, core.pi)))
        else:
            of_class = CLASS_METRICS[name]
            value = float(of_class.value(core.raw, core.pi)[0])
            estimates.append(core.of_class(name, 0, value, of_class, z))
            truth.append(float(of_class.value(confusion, core.pi)[0]))
    return estimates, truth


@dataclass(frozen=True)
class TargetCase:
    """Held-out bags, rows from elsewhere, and a model of Gaussian classes.

    Attributes
    ----------
    target : int
        Rows from elsewhere.
    spread : float
        Distance of the class means from 0, in standard deviations.
    sharpness : float
        What the right logits are multiplied by: above 1 for a model that is too sure.
    """

    bags: int
    classes: int
    size: int
    condition: float
    target: int
    spread: float
    sharpness: float
    rows: int | None = None


TARGET_CASES = (
    TargetCase(3, 3, 400, 3, 800, 2.0, 1),
    TargetCase(6, 3, 200, 4, 500, 1.5, 5),
    TargetCase(5, 5, 500, 5, 1000, 2.0, 3),
    TargetCase(15, 5, 200, 5, 600, 2.0, 4),
    TargetCase(10, 10, 500, 10, 1000, 3.0, 2),
    TargetCase(20, 3, 100, 4, 300, 2.0, 3, rows=100),
    TargetCase(12, 4, 300, 5, 500, 1.5, 4, rows=400),
    TargetCase(30, 2, 100, 4, 400, 1.5, 5, rows=50),
)


@dataclass(eq=False)
class _Gaussians:
    """A classifier of classes with normal features."""

    centres: Floats
    sharpness: float
    known_priors_: ClassPriors

    @property
    def classes_(self) -> NDArray[np.int64]:
        return np.arange(len(self.centres))

    @property
    def test_prior_(self) -> Floats:
        return np.full(len(self.centres), 1 / len(self.centres))

    def predict_proba(self, X: Floats) -> Floats:
        logits = self.sharpness * (X @ self.centres.T)
        chances = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(chances / chances.sum(1, keepdims=True))

    def predict(self, X: Floats) -> NDArray[np.int64]:
        return np.asarray((X @ self.centres.T).argmax(1))


def measure_target(case: TargetCase, repeats: int, seed: int = SEED) -> dict[str, Any]:
    """Coverage and width of estimated class shares, by method."""
    rng = np.random.default_rng([seed, case.bags, case.classes, case.size])
    k = case.classes
    theta = make_priors(case.bags, k, case.condition, rng)
    shares = rng.dirichlet(np.full(k, 1.5))
    model = _Gaussians(case.spread * np.eye(k), case.sharpness, ClassPriors(theta))
    bag = np.repeat(np.arange(case.bags), case.size)
    methods = ("confusion", "em")
    hits, widths = np.zeros((2, k)), np.zeros(2)

    def draw(labels: NDArray[np.int64]) -> Floats:
        return np.asarray(model.centres[labels] + rng.normal(size=(len(labels), k)))

    for _ in range(repeats):
        if case.rows is not None:
            told = rng.multinomial(case.rows, theta) / case.rows
            model.known_priors_ = ClassPriors(told, errors=ShareErrors.from_rows(case.rows))
        X = draw(np.concatenate([rng.choice(k, case.size, p=row) for row in theta]))
        target = draw(rng.choice(k, case.target, p=shares))
        for i, method in enumerate(methods):
            found = estimate_prior(model, target, X=X, bag_ids=bag, method=method).shares
            hits[i] += [e.low <= t <= e.high for e, t in zip(found, shares, strict=True)]
            widths[i] += np.mean([e.high - e.low for e in found])
    share = hits / repeats
    return asdict(case) | {
        method: {"mean": s.mean(), "least": s.min(), "width": w / repeats}
        for method, s, w in zip(methods, share, widths, strict=True)
    }


def measure(
    repeats: int = 2000,
    processes: int = 1,
    seconds: float = 0.0,
    done: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Measure the cases that have fewer repeats; the record grows by one case at a time."""
    new = {"date": datetime.date.today().isoformat(), "level": LEVEL}
    old: dict[str, Any] = done or {}
    runs = [
        *(("cases", measure_case, case) for case in CASES),
        *(("targets", measure_target, case) for case in TARGET_CASES),
        *(("partial", measure_case, case) for case in PARTLY_KNOWN),
    ]
    known: list[dict[str, Any] | None] = [_known(case, old.get(name, [])) for name, _, case in runs]
    todo = [i for i, found in enumerate(known) if found is None or found["repeats"] < repeats]
    tasks = [(runs[i][1], (runs[i][2], repeats)) for i in todo]
    start = time.perf_counter()
    for position, found in results_of(tasks, processes, seconds):
        known[todo[position]] = found | {"repeats": repeats}
        print(f"{time.perf_counter() - start:.0f} s: {known[todo[position]]}", flush=True)
        kept: dict[str, list[Any]] = {"cases": [], "targets": [], "partial": []}
        for (name, _, _), case in zip(runs, known, strict=True):
            kept[name] += [] if case is None else [case]
        yield {**new, **kept}


def _known(case: Any, records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Find the record of a case, if there is one."""
    return next((r for r in records if asdict(case).items() <= r.items()), None)


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    lines = [
        f"Coverage in percent of {record['level']:.0%} intervals, {record['date']}; in brackets "
        "the mean width in points, and that with exact shares. Recall, precision and predicted "
        "share are those of one class.",
        "",
        "| M, K | rows per bag | true accuracy | shares | repeats | accuracy | macro F1 | recall "
        "| precision | predicted share |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += _rows(record["cases"])
    lines += [
        "",
        "Shares that are known in part; which bags these are is drawn in every repeat.",
        "",
        *lines[2:4],
        *_rows(record.get("partial", [])),
        "",
        "Class shares of rows from elsewhere, by `estimate_prior`: mean over the classes, the "
        "class that is covered least, and the mean width. The probabilities are too sure of "
        "themselves where sharpness is above 1.",
        "",
        "| M, K | rows per bag | target | sharpness | shares | repeats | confusion | em |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in record["targets"]:
        cells = " | ".join(
            f"{100 * c['mean']:.1f}, least {100 * c['least']:.1f} ({100 * c['width']:.1f})"
            for c in (case["confusion"], case["em"])
        )
        lines.append(
            f"| {case['bags']}, {case['classes']} | {case['size']} | {case['target']} "
            f"| {case['sharpness']:g} | {_told(case)} | {case['repeats']:,} | {cells} |"
        )
    return "\n".join(lines)


def _rows(cases: list[dict[str, Any]]) -> list[str]:
    """Rows of the table of coverage, and how many numbers are as they should be."""
    lines = []
    for case in cases:
        cells = " | ".join(
            _shown(case["coverage"][n], 100 * case["width"][n], 100 * case["exact_width"][n])
            for n in NUMBERS
        )
        lines.append(
            f"| {case['bags']}, {case['classes']} | {case['size']} | {case['accuracy']} "
            f"| {_told(case)} | {case['repeats']:,} | {cells} |"
        )
    values = [case["coverage"][n] for case in cases for n in NUMBERS]
    inside = sum(INSIDE[0] <= value <= INSIDE[1] for value in values)
    if values:
        lines += [
            "",
            f"{inside} of {len(values)} ({inside / len(values):.0%}) lie between 93 and 97 %; "
            f"those outside are bold. Least {100 * min(values):.1f}, most "
            f"{100 * max(values):.1f}.",
        ]
    return lines


def _told(case: dict[str, Any]) -> str:
    shift = ", other test prior" if case.get("shifted") else ""
    if case["rows"] is not None:
        return f"of {case['rows']:,} rows{shift}"
    if case.get("noise") is not None:
        return f"Laplace noise {case['noise']:g}{shift}"
    partly = [
        f"{count} bags {what}"
        for count, what in (
            (case.get("without"), "without"),
            (case.get("merged"), "with two classes merged"),
        )
        if count
    ]
    if partly:
        return ", ".join(partly)
    if case.get("held_out") is not None:
        return f"{case['held_out']:.0%} of exact bags{shift}"
    return f"exact{shift}"


def _shown(share: float, width: float, exact: float) -> str:
    text = f"{100 * share:.1f} ({width:.1f}; {exact:.1f})"
    return text if INSIDE[0] <= share <= INSIDE[1] else f"**{text}**"
