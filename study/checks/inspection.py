"""What ``inspect`` says in ten cases, and how often its test of the assumption is right.

usage: python -m study.checks inspection [--repeats N]

Prints the Markdown tables of docs/records/inspection.md; about two minutes on one core.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.inspection import Inspection, alike_test, inspect
from unbag.inspection.rules import ALARM
from unbag.priors import ClassPriors, ShareErrors, SharesOf, non_square

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLASSES = ("a", "b", "c")
BAGS = {
    "north": [0.7, 0.2, 0.1],
    "south": [0.2, 0.6, 0.2],
    "east": [0.1, 0.2, 0.7],
    "west": [0.4, 0.4, 0.2],
}
SHAPES = ((20, 10), (6, 3))
SHIFTS = (0.25, 0.5, 1.0)
SURVEY = 400  # people asked in each bag, where priors are estimates


class Problem:
    """Rows of correlated features: class means plus Gaussian or lognormal noise, mixed."""

    def __init__(self, n_classes: int, *, skewed: bool, n_features: int = 8, seed: int = 5) -> None:
        rng = np.random.default_rng(seed)
        self.means = 0.7 * rng.normal(size=(n_classes, n_features))
        self.mix = np.eye(n_features) + 0.5 * rng.normal(size=(n_features, n_features))
        self.skewed = skewed

    def draw(
        self,
        theta: Floats,
        size: int,
        rng: np.random.Generator,
        *,
        exact: bool = False,
        shift: float = 0.0,
    ) -> tuple[Floats, Ints]:
        """Rows and bags; in a third of the bags all rows are shifted by ``shift`` deviations."""
        n_bags, n_classes = theta.shape
        bag = np.repeat(np.arange(n_bags), size)
        if exact:
            edges = np.rint(size * np.cumsum(theta, axis=1)).astype(int)
            counts = np.diff(edges, axis=1, prepend=0)
        else:
            counts = rng.multinomial(size, theta)
        y = np.repeat(np.tile(np.arange(n_classes), n_bags), counts.ravel())
        z = rng.standard_normal((len(y), len(self.mix)))
        if self.skewed:
            z = (np.exp(z) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
        direction = rng.normal(size=len(self.mix))
        z[bag < n_bags // 3] += shift * direction / np.linalg.norm(direction)
        return z @ self.mix + self.means[y], bag


def named(*rows: str, **others: list[float]) -> dict[str, dict[str, float]]:
    """Priors of some of the bags above, and of others."""
    table = {name: BAGS[name] for name in rows} | others
    return {bag: dict(zip(CLASSES, shares, strict=True)) for bag, shares in table.items()}


def with_rows(shift: float) -> Inspection:
    """Inspect eight bags of 500 rows with their rows, the first two bags shifted."""
    theta = np.random.default_rng(0).dirichlet(np.ones(3), size=8)
    problem = Problem(3, skewed=False)
    X, bag = problem.draw(theta, 500, np.random.default_rng(0), shift=shift)
    return inspect(theta, X=X, bag_ids=bag)


def cases() -> dict[str, Inspection]:
    """Inspect the cases of the page, by name."""
    four, three = ("north", "south", "east", "west"), ("north", "south", "east")
    return {
        "fine: four bags of 3,000 rows": inspect(named(*four), 3000),
        "fine, with rows: eight bags of 500": with_rows(0.0),
        "a class in no bag": inspect(
            named(north=[0.7, 0.3, 0.0], south=[0.2, 0.8, 0.0], east=[0.4, 0.6, 0.0]), 3000
        ),
        "two equal bags, full rank left": inspect(named(*three, west=BAGS["east"]), 3000),
        "two equal bags, rank lost": inspect(named("north", "south", east=BAGS["south"]), 3000),
        "two bags for three classes": inspect(named("north", "south"), 3000),
        "near-collinear": inspect(
            named("north", "south", east=[0.45, 0.4, 0.15], west=[0.33, 0.49, 0.18]), 3000
        ),
        "tiny bags: two of 12 rows": inspect(
            named(*four, here=[0.3, 0.3, 0.4], there=[0.5, 0.3, 0.2]), [3000] * 4 + [12] * 2
        ),
        "noisy priors: standard errors of 5 points": inspect(
            ClassPriors.of(named(*four)).with_errors(np.full((4, 3), 0.05)), 3000
        ),
        "assumption broken: bags 0 and 1 of eight shifted": with_rows(0.5),
    }


def case_table() -> str:
    """Markdown: the verdict of every case, and its first reason or note."""
    lines = ["| case | verdict | first reason |", "|---|---|---|"]
    for name, result in cases().items():
        first = result.reasons[0] if result.reasons else "none"
        lines.append(f"| {name} | {result.verdict} | {first} |")
    return "\n".join(lines)


def alarms(repeats: int, run: Callable[[np.random.Generator], float], seed: int) -> float:
    """Percentage of p-values below the limit."""
    rng = np.random.default_rng(seed)
    return 100 * float(np.mean([run(rng) < ALARM for _ in range(repeats)]))


def rate(
    repeats: int,
    shape: tuple[int, int],
    size: int,
    *,
    skewed: bool,
    exact: bool = False,
    shares_of: SharesOf | None = None,
    shift: float = 0.0,
    seed: int = 0,
) -> float:
    """Percentage of alarms for one kind of bags."""
    theta = non_square(shape[1], random_state=1)
    problem = Problem(shape[1], skewed=skewed)

    def run(rng: np.random.Generator) -> float:
        X, bag = problem.draw(theta, size, rng, exact=exact, shift=shift)
        return alike_test(X, bag, theta, shares_of=shares_of).p_value

    return alarms(repeats, run, seed)


def noisy_rate(repeats: int, *, told: bool, seed: int = 0) -> float:
    """Percentage of alarms with priors from a survey, where the test is told so or not."""
    true = non_square(3, random_state=1)
    problem = Problem(3, skewed=False)

    def run(rng: np.random.Generator) -> float:
        X, bag = problem.draw(true, 1000, rng)
        shares = rng.multinomial(SURVEY, true) / SURVEY
        errors = ShareErrors.from_rows(SURVEY) if told else None
        return alike_test(X, bag, ClassPriors(shares, errors=errors)).p_value

    return alarms(repeats, run, seed)


def false_alarm_table(repeats: int) -> str:
    """Markdown: alarms where the assumption holds, in percent."""
    heads = 'drawn freely | exact counts, taken as free | exact counts, shares_of="rows"'
    lines = [f"| M, K | features | {heads} |", "|---|---|---|---|---|"]
    for seed, (shape, skewed) in enumerate((s, k) for s in SHAPES for k in (False, True)):
        kinds: tuple[dict[str, Any], ...] = (
            {},
            {"exact": True},
            {"exact": True, "shares_of": "rows"},
        )
        rates = [rate(repeats, shape, 60, skewed=skewed, seed=seed, **kind) for kind in kinds]
        kind = "lognormal" if skewed else "Gaussian"
        shown = " | ".join(f"{r:.1f}" for r in rates)
        lines.append(f"| {shape[0]}, {shape[1]} | {kind} | {shown} |")
    return "\n".join(lines)


def power_table(repeats: int) -> str:
    """Markdown: alarms where a third of the bags is shifted, in percent."""
    heads = " | ".join(f"shift {shift:g}" for shift in SHIFTS)
    lines = [
        f"| M, K | rows per bag | features | {heads} |",
        "|---|---|---|" + "---|" * len(SHIFTS),
    ]
    for shape in SHAPES:
        for size in (60, 300):
            for skewed in (False, True):
                rates = [rate(repeats, shape, size, skewed=skewed, shift=s) for s in SHIFTS]
                kind = "lognormal" if skewed else "Gaussian"
                shown = " | ".join(f"{r:.0f}" for r in rates)
                lines.append(f"| {shape[0]}, {shape[1]} | {size} | {kind} | {shown} |")
    return "\n".join(lines)


def measure(repeats: int = 2000) -> Iterator[dict[str, Any]]:
    """Write the tables of the page."""
    yield {
        "text": f"""{case_table()}

False alarms in percent of {repeats} repeats, 60 rows per bag, 8 correlated features:

{false_alarm_table(repeats)}

Alarms in percent of {repeats // 8} repeats:

{power_table(repeats // 8)}

Priors from {SURVEY} people per bag, six bags of 1,000 rows, {repeats} repeats: \
{noisy_rate(repeats, told=False):.1f} % false alarms, \
{noisy_rate(repeats, told=True):.1f} % with the errors given."""
    }


def table(record: dict[str, Any]) -> str:
    """Markdown of a record."""
    return str(record["text"])
