"""Whether the rows of a class look alike in all bags: bag means must be mixes of class means."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unbag.evaluation.residuals import Residuals
from unbag.evaluation.row_sample import MIN_FREEDOM, SampledRows
from unbag.inspection.columns import ColumnTest, bag_copies, column_tests, combined, differing
from unbag.io.encoding import TableEncoding
from unbag.io.frames import rows_of
from unbag.priors import ClassPriors, SharesOf, priors_as_told
from unbag.rows import Rows
from unbag.validation import invalid

__all__ = ["AlikeTest", "RowSample", "alike_test", "columns_of_bags"]


@dataclass(frozen=True)
class AlikeTest(Residuals):
    """Result of :func:`alike_test`.

    The numbers of ``Residuals`` are those of all columns together; but ``p_value`` combines
    their p-value with those of the columns.

    Attributes
    ----------
    joint_p_value
        Of all columns together.
    columns
        Columns that differ between bags beyond what the shares explain, worst first.
    n_columns
        How many columns were tested by themselves.
    """

    joint_p_value: float = 1.0
    columns: list[ColumnTest] = field(default_factory=list)
    n_columns: int = 0


def alike_test(
    X: Any,
    bag_ids: Any,
    priors: Any,
    *,
    shares_of: SharesOf | None = None,
    random_state: Any = 0,
    columns: Any = None,
    sampling: str | None = None,
    prior_errors: Any = None,
) -> AlikeTest:
    r"""Test the assumption behind everything here: rows of a class look alike in all bags.

    Then the mean of any feature in bag m is :math:`\theta_m \cdot \mu`, with class means μ that
    do not depend on m; with more bags than rank(Θ) that can fail. Many columns are first mixed
    at random into d features (choosing principal components of the same rows would make the test
    too careful). Features are ranked over all rows, so that a few extreme values decide nothing
    (any function of a row would do), and whitened by the covariance within bags. With
    :math:`Y_m = \sqrt{n_m}\,\bar{x}_m` and R the projector on what :math:`\sqrt{N}\Theta` cannot
    reach,

    .. math:: T = \lVert R Y \rVert^2, \qquad
              \mathrm{E}\,T = \sum_m R_{mm} \operatorname{tr} S_m, \qquad
              \operatorname{Var} T = 2 \sum_{ml} R_{ml}^2 \operatorname{tr}(S_m S_l)

    where :math:`S_m` (d×d) is bag m's own covariance: bags of different mixes have different
    ones, and a pooled covariance would raise too many false alarms. The p-value is that of a
    scaled χ² with these two moments, corrected for whitening by an estimate, which turns it
    into an F.

    Each column is tested by itself in the same way, since a mix of many columns hides what only
    one of them shows. Those of a categorical column count as one, and p-values are corrected for
    the number of columns. The p-value of the result combines both tests.

    Where class counts are exact, bag means vary less, by the covariances within classes only, and
    the test for rows drawn at random is too careful. With ``shares_of="rows"`` the part between
    classes is estimated from the fitted class means and subtracted.

    Parameters
    ----------
    X
        (n, d) numeric rows or images.
    bag_ids
        (n,) bag of every row.
    priors
        Class priors Θ, anything that :meth:`ClassPriors.of` takes. What their errors add to the
        residuals raises no alarm.
    shares_of
        "population" for rows drawn at random from one with these shares, "rows" for shares of
        these very rows. The second needs full rank and not too noisy class means; otherwise the
        first is used, and the result says so.
    random_state
        Seed of the sample of rows and of the projection, where there are many.
    columns
        (d,) the column of a table that each feature comes from, where several are one; by default
        every feature is a column.
    sampling, prior_errors
        Replaced by ``shares_of`` and by the ``errors`` of :class:`ClassPriors`.

    Returns
    -------
    AlikeTest

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> theta = np.array([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8]])
    >>> bag = np.repeat([0, 1, 2], 200)
    >>> y = (rng.random(600) < theta[bag, 1]).astype(int)
    >>> X = rng.normal(size=(600, 4)) + y[:, None]
    >>> bool(alike_test(X, bag, theta).p_value > 0.05)
    True
    >>> X[bag == 1] += 1.0
    >>> alike_test(X, bag, theta).p_value < 1e-9
    True
    """
    table = priors_as_told(priors, shares_of, sampling, prior_errors)
    rows, names, encoding = rows_of(X, bag_ids)
    index = table.encode(bag_ids)
    if len(index) != len(rows):
        raise invalid("bag_ids", f"of length {len(rows)}, one for each row of X", len(index))
    sample = RowSample.draw(rows, index, table, random_state)
    result = sample.test(column_names(rows, names, encoding, columns))
    if isinstance(result, str):
        raise invalid("X", "rows that can be tested", result)
    return result


class RowSample(SampledRows):
    """Rows of bags, tested column by column as well."""

    def test(self, columns: Sequence[Any] | None) -> AlikeTest | str:
        """Run the test of :func:`alike_test`, or say why it cannot be run."""
        joint = self.residuals()
        if isinstance(joint, str):
            return joint
        tests = []
        if columns is not None:
            tests = column_tests(
                self.rows, self.sizes, columns, self.table, self.most_features, self.rng
            )
        shown = vars(joint) | {"p_value": combined(joint.p_value, tests)}
        return AlikeTest(
            **shown,
            joint_p_value=joint.p_value,
            columns=differing(tests),
            n_columns=len(tests),
        )

    def copies(self, columns: Sequence[Any] | None) -> dict[Any, float]:
        """Columns that tell which bag a row is in, as :func:`bag_copies` finds them."""
        if columns is None or len(self.rows) - len(self.sizes) < MIN_FREEDOM:
            return {}
        return bag_copies(self.rows, self.sizes, columns, self.table)


def columns_of_bags(
    rows: Rows, bag_index: Any, table: ClassPriors, columns: Sequence[Any] | None, seed: int = 0
) -> dict[Any, str]:
    """Columns that tell which bag a row is in, each with the reason to leave it out."""
    copies = RowSample.draw(rows, bag_index, table, seed).copies(columns)
    return {
        name: f"it tells which bag a row is in ({100 * share:.3g}% of its variance lies between "
        "bags)"
        for name, share in copies.items()
    }


def column_names(
    rows: Rows,
    names: Sequence[str] | None,
    encoding: TableEncoding | None = None,
    columns: Any = None,
) -> Sequence[Any] | None:
    """Name the column of every feature; None for images, whose pixels are no columns."""
    if rows.ndim > 2:
        return None
    if columns is None and encoding is not None:
        return encoding.feature_columns
    if columns is None:
        return list(range(rows.shape[1])) if names is None else list(names)
    if len(columns) != rows.shape[1]:
        allowed = f"{rows.shape[1]} names, one for each feature of X"
        raise invalid("columns", allowed, f"{len(columns)}")
    return list(columns)
