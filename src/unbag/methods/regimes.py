"""What cross-fitting does differently where bags teach little, and with networks that train alone.

This table is the only place where its defaults branch. Reasons, by column:

- ``start_networks``: networks of the start are averaged; they differ most where shares are weak.
  Networks that train one after another cost as much each as all MLPs together.
- ``start_rate``, ``start_decay``: weak shares are memorised before they are learned from, so MLPs
  start slowly and with strong weight decay there. None means the decay of the job.
- ``folds``: each network learns from the other folds; fewer of them where each costs a training.
- ``rounds``, ``step``: with weak shares half a step from the old log-probabilities to the new ones
  would crawl, so rounds take whole steps, and MLPs may have more of them.
- ``sharpening``: exponent of the probabilities before they are balanced. Networks trained on labels
  that say little regress to the mean.
- ``standard_errors``, ``early_loss``, ``keeps_best``: with weak shares the likelihood of bags is
  noisy, so a round must be clearly worse before it is dropped.
"""

from dataclasses import dataclass, replace

from unbag.methods.sizes import ADAM_RATE

__all__ = ["Regime", "find_regime"]


@dataclass(frozen=True)
class Regime:
    """One row of the table.

    Parameters
    ----------
    start_networks : int
        Networks whose log-probabilities are averaged for the first soft labels.
    start_rate : float
        Learning rate of the start.
    start_decay : float or None
        Weight decay of the start.
    folds : int
        Parts that rows are divided in.
    rounds : int
        The most rounds.
    step : float
        Share of the way from the log-probabilities before a round to those of its networks.
    sharpening : float
        Factor of log-probabilities before they are balanced.
    standard_errors : float
        Number of them by which a round may be worse than the one it is compared with.
    early_loss : float
        Share of the first round's gain over chance that the second may lose. The first has all its
        labels from the start, which was trained on the rows that are kept out, so it looks better
        than it is.
    keeps_best : bool
        Whether a round is compared with the best since the second, and not with the last.
    """

    start_networks: int = 3
    start_rate: float = 2e-3
    start_decay: float | None = None
    folds: int = 5
    rounds: int = 3
    step: float = 0.5
    sharpening: float = 1.0
    standard_errors: float = 1.0
    early_loss: float = 0.01
    keeps_best: bool = False


_CLEAR = Regime()
_WEAK = Regime(
    start_networks=5,
    start_rate=ADAM_RATE,
    start_decay=3e-3,
    rounds=6,
    step=1.0,
    sharpening=2.0,
    standard_errors=3.0,
    early_loss=0.05,
    keeps_best=True,
)
_FEWER = 2  # networks in the start, and folds, where networks train one after another


def find_regime(*, weak_shares: bool, sequential: bool) -> Regime:
    """Look up the row of the table; networks that train one after another change it.

    Examples
    --------
    >>> [find_regime(weak_shares=weak, sequential=False).rounds for weak in (False, True)]
    [3, 6]
    """
    regime = _WEAK if weak_shares else _CLEAR
    if not sequential:
        return regime
    return replace(
        regime,
        start_networks=regime.start_networks - _FEWER,
        folds=regime.folds - _FEWER,
        rounds=_CLEAR.rounds,
        start_rate=_CLEAR.start_rate,
        start_decay=_CLEAR.start_decay,
    )
