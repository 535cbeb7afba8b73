"""From replicas to fits: groups, stacks that fit the memory, and their training."""

import contextlib
import dataclasses
import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from unbag.deadline import Deadline
from unbag.fingerprint import fingerprint
from unbag.processes import Processes, current_processes
from unbag.progress import TrainingProgress
from unbag.training.checkpoint import Checkpoint
from unbag.training.engine import PRECISIONS, Stack
from unbag.training.fit import Fit
from unbag.training.networks import is_batched
from unbag.training.replica import Replica
from unbag.validation import check_choice, check_number, invalid

__all__ = ["resolve_device", "train"]

_SMALL = 1 << 16  # numbers of a layer's activations, up to which one thread serves
_COMPARED = 50  # rows of each replica that processes compare before they train it together
_CACHE = 2 << 20  # bytes of one layer's activations that a stack on the CPU may hold


def resolve_device(device: str | torch.device) -> torch.device:
    """Turn a name into a device; ``"auto"`` is CUDA where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError):
        raise invalid("device", "'auto', 'cpu', 'cuda' or 'cuda:N'", repr(device)) from None
    if resolved.type == "cuda" and not torch.cuda.is_available():
        remedy = "use 'cpu', or install a CUDA build of torch on a machine with a GPU."
        raise invalid("device", "one that torch can use here", repr(device), remedy)
    return resolved


@contextlib.contextmanager
def _matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def _few_threads(replica: Replica, device: torch.device) -> Iterator[None]:
    """Train small networks on the CPU by one thread.

    Their operations take microseconds. Several threads wait for each other at the end of each,
    which takes hundreds of times as long where other programs want the same cores.
    """
    before = torch.get_num_threads()
    if device.type == "cpu" and replica.rows_per_batch * max(replica.widths, default=1) <= _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _replicas_per_stack(replica: Replica, device: torch.device) -> int:
    """Estimate how many replicas a stack should hold.

    On CUDA, as many as two fifths of the memory hold: beyond a hundred replicas little is gained.
    Of all memory, not of what is free now, so that a run that is resumed is cut into the same
    stacks. Networks that run one after another gain nothing, and a step of one, once compiled,
    serves the next. On the CPU a stack saves the cost of starting operations, which only matters
    while a batch of activations stays in the cache.
    """
    row, widths = math.prod(replica.bags.row_shape), replica.widths
    if device.type != "cuda":
        widest = 4 * replica.rows_per_batch * max([*widths, row])
        return max(1, _CACHE // widest)
    if not is_batched(replica.module):
        return 1
    parameters = replica.module.parameters()
    weights = 40 * sum(p.numel() for p in parameters)  # with gradient, moments and temporaries
    activations = replica.rows_per_batch * (8 * row + 40 * sum(widths))
    _, memory = torch.cuda.mem_get_info(device)
    return max(1, int(0.4 * memory / (weights + activations + 64 * replica.bags.n_rows)))


def _deal(
    members: list[int], parts: int, replicas: Sequence[Replica], device: torch.device
) -> list[list[int]]:
    """Share members out to stacks of equal size.

    What is left of them when the first stacks are done is shared out in the same way again, so a
    run that goes on after a crash has the same stacks.
    """

    def kind(i: int) -> tuple[bool, str]:
        return replicas[i].stop_when_negative, type(replicas[i].objective).__name__

    alike = sorted(members, key=kind)
    if device.type == "cuda":  # stacks of one mixture of objectives share their compiled step
        return [alike[part::parts] for part in range(parts)]
    # A stack of replicas that stop early ends early.
    return [part.tolist() for part in np.array_split(alike, parts)]


def train(
    replicas: Sequence[Replica],
    *,
    device: str | torch.device = "auto",
    precision: str = "float32",
    test_every: int = 1,
    verbose: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    deadline: Deadline | None = None,
    on_finish: Callable[[dict[int, Fit], Callable[[], None]], None] | None = None,
    on_epoch: Callable[[int, int, dict[str, float]], None] | None = None,
) -> list[Fit]:
    """Train many models, as few stacks as possible; one model is a stack of one.

    Where there is a group of processes of torch.distributed, they train every stack together. All
    of them must call this with the same arguments; the first shows progress and writes checkpoints.

    Parameters
    ----------
    replicas : sequence of Replica
    device : str, default="auto"
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    precision : {"float32", "tf32", "bf16", "float64"}
    test_every : int, default=1
        Epochs between two tests on labelled rows, where a replica has some.
    verbose : bool, default=False
        Show a progress bar with the time left.
    checkpoint : path, optional
        A folder. A run that was killed goes on from there, with the same result.
    checkpoint_seconds : float, default=30
        Time between two checkpoints.
    deadline : Deadline, optional
        Trainings end at the last epoch that fits before it, after one epoch at the earliest; each
        stack has its part of the time.
    on_finish : callable, optional
        Called as each stack ends, with its fits by position in ``replicas``, and with a function
        that deletes the checkpoint of that stack, to be called once the fits are kept elsewhere.
    on_epoch : callable, optional
        Called with the position of a replica, the epoch that it has run, from 1, and its values.

    Returns
    -------
    list of Fit
        In the order of ``replicas``.
    """
    check_choice("precision", precision, PRECISIONS)
    check_number("test_every", test_every, low=1, integer=True)
    resolved = resolve_device(device)
    processes = current_processes()
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, replica in enumerate(replicas):
        groups.setdefault(replica.group, []).append(i)
    fits: dict[int, Fit] = {}
    total = sum(r.epochs for r in replicas)
    deadline = (deadline or Deadline()).part(max((r.time_share for r in replicas), default=1.0))
    label = " and ".join(dict.fromkeys(replica.stage for replica in replicas))
    verbose = verbose and processes.is_first
    ahead = max((r.ahead for r in replicas), default=0.0)
    with _matmul_precision(precision), TrainingProgress(total, verbose, label, ahead) as progress:
        waiting = list(groups.values())
        while waiting:
            members = waiting.pop(0)
            limit = processes.agree(_replicas_per_stack(replicas[members[0]], resolved))
            if len(members) > limit:
                members, *rest = _deal(members, -(-len(members) // limit), replicas, resolved)
                waiting[:0] = rest
            part = [replicas[i] for i in members]
            saved = None
            _check_alike(part, processes)
            with processes.first():
                if checkpoint is not None and processes.is_first:
                    saved = Checkpoint(checkpoint, fingerprint(part, precision, resolved.type))
            start = time.perf_counter()
            share = len(members) / (len(replicas) - len(fits))
            try:
                with _few_threads(part[0], resolved):
                    stack = Stack(part, resolved, precision, test_every, processes)
                    told = None if on_epoch is None else _of_members(on_epoch, members)
                    limit_of_stack = deadline.part(share)
                    results = stack.run(progress, saved, checkpoint_seconds, limit_of_stack, told)
            except torch.cuda.OutOfMemoryError:
                if len(members) == 1 or processes.size > 1:  # others may have enough
                    raise
                half = len(members) // 2
                waiting[:0] = [members[:half], members[half:]]
                torch.cuda.empty_cache()
                continue
            del stack
            if resolved.type == "cuda":  # let go of its graph and memory before the next is made
                gc.collect()
            seconds = (time.perf_counter() - start) / len(members)
            results = [
                dataclasses.replace(
                    result, seconds=seconds, training_settings=_settings(replica, resolved)
                )
                for replica, result in zip(part, results, strict=True)
            ]
            ended = dict(zip(members, results, strict=True))
            fits |= ended
            if on_finish is not None:
                on_finish(ended, _nothing if saved is None else saved.delete)
    return [fits[i] for i in range(len(replicas))]


def _check_alike(part: Sequence[Replica], processes: Processes) -> None:
    """Refuse processes that were given different rows or settings."""
    if processes.size == 1:
        return
    plain = [
        (type(r.objective), r.seed, r.epochs, r.rows_per_batch, r.batching, r.bags.bag_index)
        for r in part
    ]
    samples = []
    for replica in part:
        places = np.linspace(0, replica.bags.n_rows - 1, _COMPARED).astype(np.int64)
        rows = torch.as_tensor(replica.bags.take(places).X)
        samples.append(rows.to("cpu", torch.float64).flatten())
    processes.check_alike(fingerprint(plain), torch.cat(samples))


def _settings(replica: Replica, device: torch.device) -> dict[str, Any]:
    names = ("batch_size", "batching", "learning_rate", "weight_decay")
    return {**{name: getattr(replica, name) for name in names}, "device": str(device)}


def _of_members(
    on_epoch: Callable[[int, int, dict[str, float]], None], members: Sequence[int]
) -> Callable[[int, int, dict[str, float]], None]:
    """Say of replicas of a stack which of all replicas they are."""
    return lambda place, epoch, values: on_epoch(members[place], epoch, values)


def _nothing() -> None:
    """Delete no checkpoint, where there is none."""
