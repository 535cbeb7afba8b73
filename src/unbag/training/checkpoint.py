"""Checkpoints: a training state as one safetensors file, written whole or not at all."""

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unbag.exceptions import InvalidInputError
from unbag.files import leftovers, write_tensors
from unbag.validation import invalid

__all__ = ["Checkpoint"]

_FORMAT = "unbag-training-2"


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
        metadata = {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "progress": json.dumps(progress),
        }
        state = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        try:
            write_tensors(self.path, state, metadata)
        except OSError as error:
            got = f"{str(self.path.parent)!r} ({error})"
            remedy = "free some space, or choose another folder."
            raise invalid("checkpoint", "a folder that can be written", got, remedy) from None

    def delete(self) -> None:
        """Delete the state, if there is one."""
        self.path.unlink(missing_ok=True)

    def load(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, int]] | None:
        """Read the state, or None where there is none yet."""
        for leftover in leftovers(self.path):  # of a killed run
            leftover.unlink(missing_ok=True)
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt", device=str(device)) as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            message = (
                f"The checkpoint {self.path} cannot be read ({error}); delete it to start anew."
            )
            raise InvalidInputError(message) from None
        if metadata.get("format") != _FORMAT or metadata.get("fingerprint") != self.fingerprint:
            message = f"The checkpoint {self.path} is of another run; delete it to start anew."
            raise InvalidInputError(message)
        return tensors, json.loads(metadata["progress"])
