"""From replicas to outcomes: groups, stacks that fit the memory, and their training."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import torch

from unbag.training.checkpoint import Checkpoint, fingerprint
from unbag.training.engine import PRECISIONS, Stack
from unbag.training.progress import TrainingProgress
from unbag.training.replica import Outcome, Replica
from unbag.validation import check_choice, check_number, invalid

__all__ = ["resolve_device", "train"]


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


def _replicas_that_fit(replica: Replica, device: torch.device) -> int:
    """Estimate how many replicas the free memory of the device holds."""
    if device.type != "cuda":
        return 1 << 20  # the operating system's concern: rows are not copied, weights are small
    free, _ = torch.cuda.mem_get_info(device)
    parameters = sum(p.numel() for p in replica.module.parameters())
    row = 1
    for size in replica.bags.row_shape:
        row *= size
    # Weights, gradient, two moments and temporaries; then, for each row of a batch, its input and
    # about eight numbers for each activation (estimated by the widest layers: parameters / input).
    widths = sum(p.shape[0] for p in replica.module.parameters() if p.ndim > 1)
    if any(p.ndim == 4 for p in replica.module.parameters()):
        widths *= row // max(replica.bags.row_shape[0], 1) // 4
    needed = 40 * parameters + replica.rows_per_batch * (8 * row + 40 * widths)
    needed += 64 * replica.bags.n_rows
    return max(1, int(0.7 * free / needed))


def train(
    replicas: Sequence[Replica],
    *,
    device: str | torch.device = "auto",
    precision: str = "float32",
    test_every: int = 1,
    verbose: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
) -> list[Outcome]:
    """Train many models, as few stacks as possible; one model is a stack of one.

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

    Returns
    -------
    list of Outcome
        In the order of ``replicas``.
    """
    check_choice("precision", precision, PRECISIONS)
    check_number("test_every", test_every, low=1, integer=True)
    resolved = resolve_device(device)
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, replica in enumerate(replicas):
        groups.setdefault(replica.group, []).append(i)
    outcomes: dict[int, Outcome] = {}
    total = sum(r.epochs for r in replicas)
    with _matmul_precision(precision), TrainingProgress(total, verbose) as progress:
        waiting = list(groups.values())
        while waiting:
            members = waiting.pop(0)
            limit = _replicas_that_fit(replicas[members[0]], resolved)
            if len(members) > limit:
                waiting.insert(0, members[limit:])
                members = members[:limit]
            part = [replicas[i] for i in members]
            saved = None
            if checkpoint is not None:
                saved = Checkpoint(checkpoint, fingerprint(part, precision))
            try:
                stack = Stack(part, resolved, precision, test_every)
                results = stack.run(progress, saved, checkpoint_seconds)
            except torch.cuda.OutOfMemoryError:
                if len(members) == 1:
                    raise
                half = len(members) // 2
                waiting[:0] = [members[:half], members[half:]]
                torch.cuda.empty_cache()
                continue
            outcomes.update(zip(members, results, strict=True))
    return [outcomes[i] for i in range(len(replicas))]
