"""Which columns a classifier uses, without labels."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unbag.bags import Bags
from unbag.drawing import axes_for
from unbag.evaluation.likelihood import bag_log_loss
from unbag.plain import to_plain
from unbag.rows import check_rows
from unbag.summary import Shown, Summary, data_frame
from unbag.validation import as_generator, check_number, invalid, is_table, reads_tables

__all__ = ["Importances", "permutation_importance"]

_Floats = NDArray[np.float64]
_MOST_DRAWN = 30  # bars of a plot
_ROWS_AT_ONCE = 20_000  # of copies of the rows with one column permuted


@dataclass(frozen=True, eq=False)
class Importances(Shown):
    """How much worse a classifier tells the bags of rows when a column is shuffled.

    Attributes
    ----------
    columns : tuple of str
        Most important first.
    increase : array of shape (d,)
        Mean increase of the bag log-loss, in nats per row.
    deviation : array of shape (d,)
        Standard deviation of the increase between shuffles.
    loss : float
        Bag log-loss of the rows as they are.
    gain : float
        How much smaller that is than where every row has the same probabilities: what all columns
        together tell.
    n_rows, n_repeats : int
    """

    columns: tuple[str, ...]
    increase: _Floats
    deviation: _Floats
    loss: float
    gain: float
    n_rows: int
    n_repeats: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return {name: to_plain(value) for name, value in vars(self).items()}

    def summary(self) -> Summary:
        """Give the columns, most important first."""
        rows = [
            (column, f"{increase:.4f}", f"± {deviation:.4f}")
            for column, increase, deviation in zip(
                self.columns, self.increase, self.deviation, strict=True
            )
        ]
        title = f"What shuffling a column costs, in {self.n_rows:,} rows without labels"
        return Summary(title, ("column", "increase of the bag log-loss", "deviation"), rows)

    def to_frame(self) -> Any:
        """Give a DataFrame of pandas with one row per column: increase and deviation."""
        columns = {"increase": self.increase, "deviation": self.deviation}
        return data_frame(columns, self.columns, "column")

    def plot(self, ax: Any = None) -> Any:
        """Draw the most important columns with matplotlib; return the axes."""
        n = min(len(self.columns), _MOST_DRAWN)
        ax = axes_for(ax, (6.0, 1.2 + 0.25 * n))
        ax.barh(self.columns[:n], self.increase[:n], xerr=self.deviation[:n])
        ax.invert_yaxis()
        ax.set(xlabel="increase of the bag log-loss when shuffled, nats per row")
        return ax


def permutation_importance(
    estimator: Any, X: Any, bag_ids: Any = None, *, n_repeats: int = 5, random_state: Any = 0
) -> Importances:
    r"""Measure how much a classifier relies on each column, without labels.

    The values of one column are shuffled among the rows, and the bag log-loss
    (:func:`unbag.bag_log_loss`) is taken again:

    .. math:: I_j = \frac{1}{R} \sum_{r=1}^R \ell(X^{(j, r)}) - \ell(X).

    A column that the classifier does not use has 0. Where two columns say the same, each may have
    little, since the other is still there.

    Parameters
    ----------
    estimator : fitted UnbagClassifier
    X : table or array of shape (n, d), or Bags
        Rows that the classifier was not trained on.
    bag_ids : array of shape (n,)
        Left out where X is Bags.
    n_repeats : int, default=5
        R, shuffles per column.
    random_state : int or Generator, default=0

    Returns
    -------
    Importances

    Examples
    --------
    >>> import unbag
    >>> y = np.repeat([0, 1, 0, 1], [160, 40, 40, 160])
    >>> X = np.stack([y, np.arange(400) % 2], axis=1) + 0.0  # the second column tells nothing
    >>> bags, shares = np.repeat(["a", "b"], 200), {"a": [0.8, 0.2], "b": [0.2, 0.8]}
    >>> clf = unbag.UnbagClassifier(shares, "prop", model="linear", random_state=0).fit(X, bags)
    >>> permutation_importance(clf, X, bags).columns[0]
    'column 0'
    """
    check_number("n_repeats", n_repeats, low=1, integer=True)
    if isinstance(X, Bags):
        if bag_ids is not None:
            raise invalid("bag_ids", "left out where X is Bags, which hold them", "both")
        X, bag_ids, names, table = X.X, X.bag_ids, X.feature_names, X.priors
    else:
        names, table = None, estimator.priors_
    encoding: Any = getattr(estimator, "encoding_", None)
    if reads_tables(encoding):
        rows = np.asarray(encoding.transform(X) if is_table(X) else X)
        names = encoding.feature_columns
    else:
        given, own_names = check_rows(X, names)
        rows, names = np.asarray(given), own_names
    if rows.ndim != 2:
        raise invalid("X", "rows of shape (d,)", f"rows of shape {rows.shape[1:]}")
    labels = [f"column {j}" for j in range(rows.shape[1])] if names is None else list(names)
    columns = list(dict.fromkeys(labels))
    places = [np.flatnonzero(np.array(labels, dtype=object) == column) for column in columns]
    prior = estimator.test_prior_

    def losses(copies: NDArray[Any]) -> _Floats:
        """Bag log-loss of each of several copies (C, n, d) of the rows."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")  # checked
            chances = estimator.predict_proba(copies.reshape(-1, rows.shape[1]))
        parts = chances.reshape(len(copies), len(rows), -1)
        return np.array([bag_log_loss(p, bag_ids, priors=table, output_prior=prior) for p in parts])

    loss = float(losses(rows[None])[0])
    generator = as_generator(random_state)
    increases = np.empty((len(columns), n_repeats))
    jobs = [(c, r) for c in range(len(columns)) for r in range(n_repeats)]
    at_once = max(1, _ROWS_AT_ONCE // max(1, len(rows)))
    for start in range(0, len(jobs), at_once):
        part = jobs[start : start + at_once]
        copies = np.repeat(rows[None], len(part), axis=0)
        for copy, (c, _) in zip(copies, part, strict=True):
            copy[:, places[c]] = rows[generator.permutation(len(rows))][:, places[c]]
        for (c, r), value in zip(part, losses(copies), strict=True):
            increases[c, r] = value - loss
    order = np.argsort(-increases.mean(1), kind="stable")
    return Importances(
        tuple(columns[c] for c in order),
        increases.mean(1)[order],
        increases.std(1)[order],
        loss,
        bag_log_loss(np.tile(prior, (len(rows), 1)), bag_ids, priors=table) - loss,
        len(rows),
        n_repeats,
    )
