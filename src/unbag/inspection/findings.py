"""The result of an inspection, and how it is printed."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from unbag.drawing import axes_for
from unbag.plain import p_text, to_plain
from unbag.priors import SharesOf
from unbag.summary import Shown, Summary, data_frame

if TYPE_CHECKING:
    from unbag.inspection.alike import AlikeTest

__all__ = ["Findings", "Inspection", "plain_number", "points"]


@dataclass(frozen=True)
class Findings:
    """The facts of an :class:`Inspection`, which documents them."""

    n_bags: int
    n_classes: int
    classes: list[Any]
    n_rows: int | None
    shares_of: SharesOf | None
    level: float
    test_prior: list[float]
    rank: int
    condition_number: float
    hidden_directions: list[list[float]]
    weakest_direction: list[float]
    suggested_bags: list[list[float]]
    missing_classes: list[Any]
    constant_classes: dict[int, float]
    flat_classes: list[Any]
    equal_bags: list[list[Any]]
    near_bags: list[list[Any]]
    inflation: float | None
    half_width: float | None
    half_width_exact: float | None
    rows_needed: list[int] | None
    relative_error_half_width: float | None
    prior_error_half_width: float | None
    empty_bags: list[Any]
    tiny_bags: list[Any]
    rare_classes: list[Any]
    dominating_bag: Any
    thin_cells: int
    alike: "AlikeTest | None"
    alike_untested: str | None
    bag_features: dict[Any, float]


_MEANINGS = {
    "go": "nothing speaks against learning from these bags",
    "care": "learning from these bags can work, within limits",
    "stop": "these bags are not enough to learn from",
}


@dataclass(frozen=True)
class Inspection(Findings, Shown):
    r"""The result of :func:`~unbag.inspection.inspect`; print it to read it.

    Bags without rows are left out of everything but ``empty_bags``. Numbers that need full rank,
    bag sizes or rows are None without them.

    Attributes
    ----------
    verdict
        "go", "care" or "stop".
    reasons
        Why the verdict is "care" or "stop", each with what would help.
    notes
        What does no harm, and what was not checked.
    n_bags, n_classes, n_rows
        M, K and n.
    classes
        The K classes, in the order of all lists that have one entry per class.
    shares_of : {"rows", "population"} or None
        What the shares describe; None where nobody said it.
    level
        As given.
    test_prior
        K shares π.
    rank, condition_number
        Of Θ; the condition number is inf without full rank.
    hidden_directions
        K−rank lists of K numbers v with Θv = 0: how class averages may move unseen.
    weakest_direction
        K numbers v of length 1 with the smallest ‖Θv‖.
    suggested_bags
        Lists of K shares: bags that give Θ full rank, or the one that strengthens it most.
    missing_classes, constant_classes, flat_classes
        Classes in no bag; position and share of classes with the same share in all bags (Θ then
        lacks rank); classes whose share is almost the same in all bags.
    equal_bags, near_bags
        Groups of bags with identical and with nearly identical shares.
    inflation
        Σ_mk \|W_mk\| of the risk weights W; 1 with labels.
    half_width, half_width_exact
        Expected half-width of the interval of the label-free accuracy of a model that is right in
        90% of rows, if all ``n_rows`` rows are held out: for rows that are a sample of the
        population that the shares describe, and for shares that count these very rows.
    rows_needed
        Held-out rows of every bag that would narrow the interval to ± 1 point, if all bags grow
        by the same factor. The shares describe what ``shares_of`` says, or else a population.
    relative_error_half_width, prior_error_half_width
        Half-width that comes from errors of the shares alone: from relative errors of 1%, and
        from the errors given.
    empty_bags, tiny_bags, dominating_bag
        Bags without rows, bags with few, and a bag that holds most rows.
    rare_classes, thin_cells
        Classes of which few rows are expected, and the number of pairs of bag and class with few.
    alike, alike_untested
        The test that rows of a class look alike in all bags, or why it was not run.
    bag_features
        Columns that tell which bag a row is in, with the share of their variance that lies between
        bags.
    """

    verdict: str
    reasons: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Give all fields as plain lists, dicts, strings and numbers, for JSON; inf is None."""
        plain: dict[str, Any] = to_plain(asdict(self))
        return plain

    def __str__(self) -> str:
        rows = "rows unknown" if self.n_rows is None else f"{self.n_rows:,} rows"
        lines = [f"{self.n_bags} bags, {self.n_classes} classes, {rows}"]
        table = self.table()
        width = max(len(name) for name, _ in table)
        lines += [f"  {name:<{width}}  {value}" for name, value in table]
        lines += [f"  - {reason}" for reason in self.reasons]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join([*lines, f"verdict: {self.verdict} ({self.meaning})"])

    @property
    def meaning(self) -> str:
        """The verdict in words."""
        return _MEANINGS[self.verdict]

    def summary(self) -> Summary:
        """Give the numbers, what speaks against starting, and the verdict."""
        title = f"{self.n_bags} bags, {self.n_classes} classes: {self.verdict}"
        return Summary(title, ("", "value"), self.table(), [*self.reasons, *self.notes])

    def to_frame(self) -> Any:
        """Give a DataFrame of pandas with one row per number that is printed."""
        names, values = zip(*self.table(), strict=True)
        return data_frame({"number": names, "value": values})

    def plot(self, ax: Any = None) -> Any:
        """Draw the mixture of classes that the shares determine least, with matplotlib.

        Classes with bars of opposite signs are the hardest to tell apart.
        """
        ax = axes_for(ax, (6.0, min(12.0, 1.2 + 0.3 * self.n_classes)))
        names = [str(name) for name in self.classes]
        ax.barh(names, self.weakest_direction)
        ax.axvline(0, color="black", linewidth=0.8)
        ax.set(xlabel="weight in the mixture that the shares determine least", ylabel="class")
        return ax

    def table(self) -> list[tuple[str, str]]:
        """Name and value of every line that is printed."""
        level = f"{100 * self.level:g}%"
        table = [
            ("classes the shares tell apart", f"{self.rank} of {self.n_classes}"),
            ("condition number (1 is best)", plain_number(self.condition_number)),
        ]
        if self.inflation is not None:
            table.append(("noise of training (labels: 1)", plain_number(self.inflation)))
        if self.half_width is not None and self.half_width_exact is not None:
            widths = (
                f"{points(self.half_width)} ({level}), {points(self.half_width_exact)} if "
                "the shares count these rows"
            )
            table.append(("accuracy can be known to", widths))
        if self.rows_needed is not None:
            low, high = min(self.rows_needed), max(self.rows_needed)
            each = f"{low:,} per bag" if low == high else f"{low:,} to {high:,} per bag"
            table.append(("rows needed for ± 1 point", f"{sum(self.rows_needed):,}, {each}"))
        if self.relative_error_half_width is not None:
            table.append(("error if shares are 1% off", points(self.relative_error_half_width)))
        if self.prior_error_half_width is not None:
            table.append(("error from the errors given", points(self.prior_error_half_width)))
        if self.alike is not None:
            each = f" and {self.alike.n_columns:,} columns" if self.alike.n_columns else ""
            used = f"{self.alike.n_features} features{each}, {self.alike.n_rows:,} rows"
            table.append(
                ("rows of a class alike in all bags", f"{p_text(self.alike.p_value)}, {used}")
            )
        return table


def plain_number(value: float) -> str:
    """Write a number with two digits, and thousands separators in place of an exponent.

    Examples
    --------
    >>> plain_number(0.0123), plain_number(5.25), plain_number(1234567.0)
    ('0.012', '5.2', '1,200,000')
    """
    return f"{value:.2g}" if abs(value) < 99.5 else f"{float(f'{value:.2g}'):,.0f}"


def points(width: float) -> str:
    """Write a half-width in percentage points; beyond 50 the share may be anything.

    Examples
    --------
    >>> points(0.021), points(1.9)
    ('± 2.1 points', '± 50 points or more')
    """
    return f"± {plain_number(100 * width)} points" if width < 0.5 else "± 50 points or more"
