"""Where a search keeps its trials: a SQLite file in the folder of its work."""

import functools
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from unbag.exceptions import UnbagError
from unbag.files import discard, discarded

__all__ = ["kept_trials", "naming_the_cause"]


def kept_trials(optuna: Any, file: Path) -> Any:
    """Keep trials in a SQLite file of any name: an address could not hold signs such as ? and %."""
    if os.path.lexists(file) and not _is_database(file):
        discard(file)
        discarded(f"The file of trials {file}", "was damaged")
    connect = functools.partial(sqlite3.connect, file, check_same_thread=False)
    return optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect})


@contextmanager
def naming_the_cause() -> Iterator[None]:
    """Make an OSError of what SQLite could not do, such as to write to a full disk."""
    try:
        yield
    except UnbagError:  # it names the cause already
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, sqlite3.Error):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        raise OSError(f"The trials cannot be kept: {cause}.") from None


def _is_database(file: Path) -> bool:
    if file.is_symlink():
        return False
    try:
        with closing(sqlite3.connect(file)) as connection:
            return bool(connection.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except sqlite3.Error:
        return False
