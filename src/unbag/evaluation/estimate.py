"""A number with an interval."""

import math

__all__ = ["Estimate"]


class Estimate(float):
    """A number with an interval: ``float(e)``, ``e.low``, ``e.high``, ``e.interval``.

    Examples
    --------
    >>> e = Estimate(0.9, 0.85, 0.93)
    >>> e, e + 0, e.interval
    (0.9000 [0.8500, 0.9300], 0.9, (0.85, 0.93))
    """

    low: float
    high: float

    def __new__(cls, value: float, low: float = math.nan, high: float = math.nan) -> "Estimate":
        """Make the number and remember its interval."""
        estimate = super().__new__(cls, value)
        estimate.low, estimate.high = float(low), float(high)
        return estimate

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high

    def to_plain(self) -> dict[str, float]:
        """Value, low and high."""
        return {"value": float(self), "low": self.low, "high": self.high}

    def __repr__(self) -> str:
        return f"{float(self):.4f} [{self.low:.4f}, {self.high:.4f}]"

    def __reduce__(self) -> tuple[type["Estimate"], tuple[float, float, float]]:
        return Estimate, (float(self), self.low, self.high)
