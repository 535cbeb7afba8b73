"""Checkpoints: a training state as one safetensors file, written whole or not at all."""

import errno
import json
import os
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from unbag.files import discard, discarded, write_tensors
from unbag.fingerprint import fingerprint
from unbag.validation import invalid

__all__ = ["Checkpoint"]

_FORMAT = "unbag-training-3"


class Checkpoint:
    """The state of one stack in a folder, under a name derived from its fingerprint.

    Runs of other data or settings have other names, so they never meet.

    Parameters
    ----------
    folder : path
        Made when missing.
    fingerprint : str
    """

    def __init__(self, folder: str | os.PathLike[str], fingerprint: str) -> None:
        self.fingerprint = fingerprint
        allowed = "a folder that can be written"
        try:
            path = Path(folder)
            path.mkdir(parents=True, exist_ok=True)
        except (OSError, TypeError) as error:
            raise invalid("checkpoint", allowed, f"{folder!r} ({error})") from None
        if not os.access(path, os.W_OK):
            raise invalid("checkpoint", allowed, f"{folder!r}, which is read-only")
        self.path = path / f"{fingerprint[:24]}.safetensors"

    def save(self, tensors: dict[str, Tensor], progress: dict[str, int]) -> None:
        """Write the state; a crash leaves the last whole one in place."""
        state = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        metadata = {"progress": json.dumps(progress)}
        metadata["digest"] = self._digest(state, metadata["progress"])
        try:
            write_tensors(self.path, state, metadata)
        except OSError as error:
            got = f"{str(self.path.parent)!r} ({error})"
            remedy = "free some space, or choose another folder."
            raise invalid("checkpoint", "a folder that can be written", got, remedy) from None

    def delete(self) -> None:
        """Delete the state, if there is one."""
        self.path.unlink(missing_ok=True)

    def load(self) -> tuple[dict[str, Tensor], dict[str, int]] | None:
        """Read the state; None where there is none, or, with a warning, where it was changed."""
        try:
            with safe_open(self.path, framework="pt", device="cpu") as file:
                metadata = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            return None
        except (SafetensorError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise
            metadata, state = {}, {}
        if metadata.get("digest") != self._digest(state, metadata.get("progress", "")):
            discard(self.path)
            discarded(f"The checkpoint {self.path}", "was damaged")
            return None
        return state, json.loads(metadata["progress"])

    def _digest(self, state: dict[str, Tensor], progress: str) -> str:
        """Hash all that the file holds, and what run it is of."""
        return fingerprint(_FORMAT, self.fingerprint, progress, sorted(state.items()))
