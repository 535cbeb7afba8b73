"""The folder beside a model in which a run keeps what is done until it is finished."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from unbag.estimator.folder import DESCRIPTION
from unbag.files import (
    discard,
    discarded,
    read_regular,
    real_path,
    remove_folder,
    settle_folder,
    write_whole,
)
from unbag.validation import invalid
from unbag.workflow.config import CONFIG, MAX_BYTES
from unbag.workflow.outputs import hidden_folder, hold

__all__ = ["work_folder"]


@contextmanager
def work_folder(output: Path, config: str, *, overwrite: bool) -> Iterator[Path]:
    """Make the folder of a run, and remove it in the end.

    It is kept where the run was stopped, so that it can go on; an error of a new run leaves
    nothing.

    Parameters
    ----------
    output : Path
        The model folder; refused where it is not free, or another run is making it.
    config : str
        Options of the run; a stopped one with the same options may go on replacing its model.
    overwrite : bool
        Whether a finished model may be replaced.
    """
    folder = hidden_folder(real_path(output))
    with ExitStack() as held:
        try:
            held.enter_context(hold(folder, output))
            _discard_links(folder)
            left = _text(folder / CONFIG)  # of a run that was stopped
            if left is not None and output.is_dir():
                settle_folder(real_path(output), DESCRIPTION)
            _check_free(output, overwrite=overwrite or left == config)
            write_whole(folder / CONFIG, config)
        except OSError as error:
            got = f"{output} ({error.strerror})"
            raise invalid("output", "a folder that can be made", got) from None
        try:
            yield folder
        except Exception:
            if left is None:
                _remove(folder)
            raise
        _remove(folder)


def _discard_links(folder: Path) -> None:
    """Remove links, which no run makes: what they lead to is not ours to read or to write."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            discard(path)
            discarded(str(path), "was a link")


def _check_free(output: Path, *, overwrite: bool) -> None:
    if (output / DESCRIPTION).exists():
        if not overwrite:
            remedy = "choose another path, or replace it with --overwrite (overwrite=True)."
            raise invalid("output", "a path that does not exist yet", f"{output}, a model", remedy)
    elif output.exists():
        if not output.is_dir():
            raise invalid("output", "a folder to make", f"{output}, which is a file")
        if any(output.iterdir()):
            got = f"{output}, a folder with other files"
            raise invalid("output", "a path that does not exist yet", got, "name a new folder.")


def _remove(folder: Path) -> None:
    with suppress(OSError):
        remove_folder(folder, last=CONFIG)  # tells the next run that the work is its


def _text(path: Path) -> str | None:
    try:
        return read_regular(path, MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return None
