"""Checkpoints: a training state as one safetensors file, written whole or not at all."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unbag.exceptions import InvalidInputError
from unbag.files import leftovers, write_tensors
from unbag.training.replica import Replica, module_settings
from unbag.validation import invalid

__all__ = ["Checkpoint", "fingerprint"]

_FORMAT = "unbag-training-1"
_PROBE = torch.tensor([[0.3], [-0.7]], dtype=torch.float64)


def _update(digest: "hashlib._Hash", value: object) -> None:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    else:
        digest.update(repr(value).encode())


def fingerprint(replicas: Sequence[Replica], precision: str, device: torch.device) -> str:
    """Hash everything that the result of a training depends on: data, settings, first weights."""
    digest = hashlib.sha256(f"{_FORMAT} {precision} {device.type}".encode())
    seen: set[int] = set()
    for replica in replicas:
        bags = replica.bags
        arrays = [bags.source] if id(bags.source) not in seen else []
        seen.add(id(bags.source))
        scored, out = replica.scored.values(), replica.predicted
        others = [part.source for part in scored] + ([] if out is None else [out.source])
        for source in others:
            if id(source) not in seen:
                seen.add(id(source))
                arrays.append(source)
        settings = (
            replica.seed,
            replica.epochs,
            replica.batch_size,
            replica.learning_rate,
            replica.weight_decay,
            replica.shrinkage,
            replica.optimizer,
            replica.batching,
            replica.stop_when_negative,
            replica.patience,
            replica.annealed,
            replica.mixup,
            replica.smoothing,
            replica.augmentation,
            replica.pseudo_labels,
            type(replica.objective).__name__,
            type(replica.module).__qualname__,
            module_settings(replica.module),
        )
        for value in (
            *arrays,
            settings,
            bags.rows,
            bags.bag_index,
            replica.sample_weight,
            replica.risk_weights,
            replica.logit_shift,
            replica.targets,
            *(() if out is None else (out.rows, out.bag_index)),
            *(value for part in scored for value in (part.rows, part.group, part.table)),
            *_objective_values(replica),
            *replica.module.parameters(),
            *replica.module.buffers(),
        ):
            _update(digest, value)
    return digest.hexdigest()


def _objective_values(replica: Replica) -> list[Tensor]:
    if replica.objective is None:
        return []
    # A function has no name to rely on, but its values tell losses apart.
    values = replica.objective.loss(_PROBE.expand(2, replica.bags.priors.n_classes).cumsum(1))
    return [values, *replica.objective.state_dict().values()]


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
