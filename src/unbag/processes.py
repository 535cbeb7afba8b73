"""Processes that fit one model together, by torch.distributed: the one home of their group.

Every process runs the same program on the same rows. In training each takes its part of every
batch, and sums over rows are added up over the processes; all else is done by every process alike,
or by the first one, whose result the others are sent.
"""

import os
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from unbag.exceptions import LostProcessError
from unbag.validation import invalid

__all__ = [
    "Processes",
    "alone",
    "current_processes",
    "is_first_to_tell",
    "join_launched",
    "launched_rank",
]

T = TypeVar("T")
_PATIENCE = timedelta(days=30)  # for the first process, which may read files for hours
_START = timedelta(minutes=5)  # for all processes to be there
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells processes


class Processes:
    """The processes that fit one model; this class is for one that is alone.

    Attributes
    ----------
    rank, size : int
        The number of this process, from 0, and how many there are.
    """

    rank = 0
    size = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress for all."""
        return self.rank == 0

    def once(self, function: Callable[[], T]) -> T:
        """Return what the first process gets from a function; the others only wait for it."""
        return function()

    def agree(self, value: T) -> T:
        """Return the value of the first process."""
        return self.once(lambda: value)

    @contextmanager
    def first(self) -> Iterator[None]:
        """Let the first process go ahead, so that the others find what it has written."""
        yield

    def check_alike(self, settings: str, numbers: Tensor) -> None:
        """Refuse a fit for which processes were given different settings or numbers."""

    def add(self, values: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place."""
        return values

    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors by those of the first process."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Do what all processes do together; an error in one of them ends it in all."""
        yield


_ALONE = Processes()


class _Group(Processes):
    """The processes of the default group of torch.distributed."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        # Groups of our own can be closed without harm to others, which tells the other processes
        # at once. Only waits for the first process may be long.
        self._group: Any = dist.new_group()
        self._patient: Any = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self._devices = dist.get_backend_config(self._group)

    def once(self, function: Callable[[], T]) -> T:
        content, error = b"", None
        if self.is_first:
            try:
                content = pickle.dumps(function())
            except BaseException as raised:  # noqa: BLE001 - it is raised below
                error = raised
        sent: list[Any] = [content, error is None]
        with _noticing():
            dist.broadcast_object_list(sent, 0, self._patient)
        if error is not None:
            raise error
        if not sent[1]:
            raise LostProcessError("an error ended the first one", is_told=True)
        result: T = pickle.loads(sent[0])
        return result

    @contextmanager
    def first(self) -> Iterator[None]:
        if self.is_first:
            failed = True
            try:
                yield
                failed = False
            finally:
                self._tell(failed)
        else:
            self._tell(False)
            yield

    def _tell(self, failed: bool) -> None:
        sent: list[Any] = [failed]
        with _noticing():
            dist.broadcast_object_list(sent, 0, self._patient)
        if sent[0] and not self.is_first:
            raise LostProcessError("an error ended the first one", is_told=True)

    def check_alike(self, settings: str, numbers: Tensor) -> None:
        all_given: list[Any] = [None] * self.size
        with _noticing():
            dist.all_gather_object(all_given, (settings, numbers), self._patient)
        differing = [
            rank
            for rank, (other, others) in enumerate(all_given)
            if other != settings
            or others.shape != numbers.shape
            or not torch.allclose(others, numbers, rtol=1e-4, equal_nan=True)
        ]
        if differing:
            raise invalid(
                "rows and settings",
                f"the same in each of the {self.size} processes of the group",
                f"different ones in processes {self.rank} and {differing[0]}",
                "give every process all rows, since each takes its part of every batch by itself; "
                "to fit a model in every process, use `with unbag.processes.alone():`.",
            )

    def add(self, values: Tensor) -> Tensor:
        with _noticing():
            dist.all_reduce(values, group=self._group_for(values))
        return values

    @torch.no_grad()
    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            sent = tensor.detach().clone(memory_format=torch.contiguous_format)
            with _noticing():
                dist.broadcast(sent, 0, group=self._group_for(sent))
            tensor.copy_(sent)

    def _group_for(self, tensor: Tensor) -> Any:
        return self._group if f"{tensor.device.type}:" in self._devices else self._patient

    @contextmanager
    def together(self) -> Iterator[None]:
        global _known
        try:
            yield
        except BaseException:
            if _known[1] is self:
                _known = (None, _ALONE)  # the next call makes new groups
                for group in (self._group, self._patient):
                    dist.destroy_process_group(group)
                self._group = self._patient = group = None  # closed as nothing refers to them
            raise


@contextmanager
def _noticing() -> Iterator[None]:
    """Name the cause where a process of the group does not answer."""
    try:
        yield
    except RuntimeError as error:
        text = re.sub(r"^\[.*?\.cc:\d+\] ?", "", str(error).strip())  # a place in the source
        cause = text.splitlines()[0].split(". ")[0].rstrip(".")
        raise LostProcessError(f"one of them ended, or did not answer ({cause})") from None


_known: tuple[object, Processes] = (None, _ALONE)  # the default group, and what stands for it
_are_alone = False


def current_processes() -> Processes:
    """Return the processes of the default group of torch.distributed, or this one alone.

    All processes of a group must ask for it the first time together.

    Examples
    --------
    >>> current_processes().size, current_processes().is_first
    (1, True)
    """
    global _known
    if not (dist.is_available() and dist.is_initialized()):
        _known = (None, _ALONE)
        return _ALONE
    if _are_alone or dist.get_world_size() == 1:
        return _ALONE
    if _known[0] is not dist.group.WORLD:
        _known = (dist.group.WORLD, _Group())
    return _known[1]


@contextmanager
def alone() -> Iterator[None]:
    """Fit models in this process alone, whatever group it belongs to.

    Examples
    --------
    >>> with alone():
    ...     current_processes().size
    1
    """
    global _are_alone
    before, _are_alone = _are_alone, True
    try:
        yield
    finally:
        _are_alone = before


def launched_rank() -> int | None:
    """Return the number of this process among those that torchrun started; None without it."""
    told = [os.environ.get(name) for name in _LAUNCHED]
    if not all(told) or int(os.environ["WORLD_SIZE"]) < 2:
        return None
    return int(os.environ["RANK"])


@contextmanager
def join_launched(device: str) -> Iterator[None]:
    """Join the group of processes that torchrun started, if it did, until the work is done.

    NCCL serves GPUs, one for each process; where processes share a GPU, and on CPUs, it is gloo.
    """
    global _store
    if launched_rank() is None or dist.is_initialized():
        yield
        return
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    backend = "gloo"
    if torch.cuda.is_available() and not device.startswith("cpu"):
        cards, local = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
        torch.cuda.set_device(local % cards)
        if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= cards:
            backend = "cpu:gloo,cuda:nccl"
    with _noticing():
        store, rank, size = next(iter(rendezvous("env://", timeout=_START)))
        _store = PrefixStore("unbag", store)
        dist.init_process_group(backend, store=_store, rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


_store: Any = None  # of the group that was joined


def is_first_to_tell() -> bool:
    """Whether no other process has told an error, which most often is the same one."""
    if _store is None:
        return not launched_rank()
    try:
        return bool(_store.add("told", 1) == 1)
    except RuntimeError:  # the process that held the store has ended
        return True
