"""Tells callbacks how the jobs of ``fit_many`` go on."""

from collections.abc import Callable, Sequence

from unbag.callbacks import Callback, End, Epoch, Stage, tell
from unbag.plain import to_plain
from unbag.training import Fit, Replica

__all__ = ["Telling"]


class Telling:
    """Knows which job a network is trained for.

    Parameters
    ----------
    callbacks : sequence of Callback

    Attributes
    ----------
    on_epoch : callable or None
        Takes the position of a replica, its epoch and the values of that; None without callbacks.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self._replicas: Sequence[Replica] = ()
        self._places: list[tuple[int, int]] = []  # job of each replica, and its number there
        self._ended: set[int] = set()
        self.on_epoch: Callable[[int, int, dict[str, float]], None] | None = None
        if callbacks:
            self.on_epoch = self._tell_epoch

    def begin_stage(self, owners: Sequence[int], replicas: Sequence[Replica]) -> None:
        """Note which job wants each of the replicas that are trained next."""
        self._replicas = replicas
        self._places = [(job, owners[:place].count(job)) for place, job in enumerate(owners)]

    def _tell_epoch(self, place: int, epoch: int, values: dict[str, float]) -> None:
        job, network = self._places[place]
        replica = self._replicas[place]
        told = Epoch(job, replica.stage, network, epoch, replica.epochs, values)
        tell(self._callbacks, told)

    def end_stack(self, ended: dict[int, Fit]) -> None:
        """Tell what each network of a stack took."""
        for place, fit in ended.items():
            stage = self._replicas[place].stage
            tell(self._callbacks, Stage(self._places[place][0], stage, fit.seconds))

    def end_task(self, job: int, stage: str, seconds: float) -> None:
        """Tell what a task took."""
        tell(self._callbacks, Stage(job, stage, seconds))

    def end_jobs(self, fits: dict[int, Fit]) -> None:
        """Tell of the jobs that have ended since the last call."""
        for job in sorted(fits.keys() - self._ended):
            fit = fits[job]
            settings = to_plain({**fit.settings, **fit.training_settings})
            values = {"n_epochs": float(fit.n_epochs)}
            tell(self._callbacks, End(job, fit.method, fit.stop_reason, settings, values))
            self._ended.add(job)
