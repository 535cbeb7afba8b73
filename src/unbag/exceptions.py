"""Errors and warnings of unbag; every error a user can meet derives from :class:`UnbagError`."""

__all__ = [
    "BagColumnWarning",
    "CallbackError",
    "ConditioningWarning",
    "DiscardedWorkWarning",
    "DownloadError",
    "ImplausibleEstimateWarning",
    "InvalidInputError",
    "LostProcessError",
    "MissingBagsWarning",
    "MissingDependencyError",
    "ModelFolderError",
    "NotFiniteError",
    "NotSavedWarning",
    "NothingLearnedError",
    "RankError",
    "SlowTrainingWarning",
    "TrainingDivergedError",
    "TrainingRowsWarning",
    "UnbagError",
    "UnbagWarning",
    "WorkerLostError",
]


class UnbagError(Exception):
    """Base class of every error raised on purpose by unbag."""


class InvalidInputError(UnbagError, ValueError):
    """An argument is not of the kind, shape or range that is allowed."""


class NotFiniteError(InvalidInputError):
    """A network gives numbers that are not finite for some rows.

    Attributes
    ----------
    rows : tuple of int
        Positions of these rows among those given.
    """

    def __init__(self, rows: tuple[int, ...]) -> None:
        super().__init__(rows)
        self.rows = rows

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.rows[:5]))
        more = f" and {len(self.rows) - 5} more" if len(self.rows) > 5 else ""
        return (
            "X must be rows for which the network gives finite numbers, got others for the rows "
            f"{shown}{more}; their values may be far from those of training: drop or correct them."
        )


class RankError(InvalidInputError):
    """The class priors cannot tell some classes apart (Θ lacks full column rank)."""


class TrainingDivergedError(UnbagError, RuntimeError):
    """The training loss was not finite."""


class LostProcessError(UnbagError, RuntimeError):
    """One of several processes that fit a model together ended, so that the others cannot go on.

    Attributes
    ----------
    cause : str
    is_told : bool
        Whether that process tells the error that ended it.
    """

    def __init__(self, cause: str, is_told: bool = False) -> None:
        super().__init__(cause, is_told)
        self.cause = cause
        self.is_told = is_told

    def __str__(self) -> str:
        return (
            f"The processes of this fit have to end, since {self.cause}. Nothing was written but "
            "the checkpoint, if there is one: start again to go on from there, with as many "
            "processes as you like."
        )


class NothingLearnedError(TrainingDivergedError):
    """A network gives all rows the same probabilities, so it is not returned as a model."""


class MissingDependencyError(UnbagError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""


class DownloadError(UnbagError, RuntimeError):
    """A server did not give a file, or gave another one than expected."""


class CallbackError(UnbagError, RuntimeError):
    """A callback failed; the error that it met is the cause of this one."""


class WorkerLostError(UnbagError, RuntimeError):
    """A process that did a part of the work was killed; what others did is kept."""


class ModelFolderError(InvalidInputError):
    """A folder is not a saved model that can be read, or not one that may be replaced."""


class UnbagWarning(UserWarning):
    """Base class of every warning issued by unbag."""


class BagColumnWarning(UnbagWarning):
    """A column tells which bag a row is in, so it is not learned from."""


class ConditioningWarning(UnbagWarning):
    """The class priors are nearly unable to tell some classes apart."""


class ImplausibleEstimateWarning(UnbagWarning):
    """An estimate lies outside its possible values by more than its error."""


class DiscardedWorkWarning(UnbagWarning):
    """What a stopped run left was damaged or could be changed by others, so it was not used."""


class MissingBagsWarning(UnbagWarning):
    """Some bags have class priors but no rows."""


class TrainingRowsWarning(UnbagWarning):
    """Rows that a model was trained on are used to evaluate it."""


class SlowTrainingWarning(UnbagWarning):
    """A module cannot be trained in the fastest way."""


class NotSavedWarning(UnbagWarning):
    """Something of a classifier is no plain value, so the saved model lacks it."""
