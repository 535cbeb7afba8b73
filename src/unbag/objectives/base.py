"""The base class of all objectives: it owns checks, statistics and stacking."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unbag.objectives.losses import LossOfEveryClass, get_loss
from unbag.priors import ClassPriors, check_test_prior, risk_weights
from unbag.statistics import BagStatistics
from unbag.validation import as_float_array, check_dense, check_number, invalid

__all__ = ["Objective", "RiskObjective"]

_PROBE = torch.tensor([[0.3], [-0.7]], dtype=torch.float64)


class Objective(nn.Module):
    """A scalar loss of (logits, bag_index), differentiable, for anyone's training loop.

    Subclasses write ``reduce``: from the batch's ``unbag.statistics.BagStatistics`` to the
    value. They take sums and means over rows by its methods, which count the rows of all processes
    that share a batch. Hyperparameters and tables are buffers: 0-dimensional ones are
    hyperparameters, the first axis of all others is the bag. That is what lets ``stack`` join the
    objectives of many models into one with a leading replica axis.

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame
        Θ, of shape (M, K).
    loss : str or callable, default="cross-entropy"
        The loss ℓ: ``"cross-entropy"``, ``"generalized-cross-entropy"`` or a function of logits
        (..., n, K) to the loss of every class (..., n, K).
    """

    theta: Tensor
    hyperparameters: tuple[str, ...] = ()
    needs_rank = False

    def __init__(self, priors: Any, *, loss: str | LossOfEveryClass = "cross-entropy") -> None:
        super().__init__()
        self.priors = ClassPriors.of(priors)
        self.loss = get_loss(loss)
        self._register("theta", self.priors.values)

    def _register(self, name: str, value: Any) -> None:
        # Kept in float64 and cast to the logits' type where used, so float64 logits lose nothing.
        self.register_buffer(name, torch.tensor(np.array(value), dtype=torch.float64))

    def _register_hyperparameter(self, name: str, value: Any, **bounds: Any) -> None:
        check_number(name, value, **bounds)
        self._register(name, value)

    def _check_bag_shares(self, given: Any) -> NDArray[np.float64]:
        shares = as_float_array("bag_shares", given, ndim=1)
        if len(shares) != self.n_bags:
            raise invalid("bag_shares", f"of length {self.n_bags}", f"length {len(shares)}")
        if not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
            got = f"numbers from {shares.min():g} that sum to {shares.sum():g}"
            raise invalid("bag_shares", "shares that sum to 1", got)
        return shares

    def _fingerprint_parts(self) -> Tensor:
        """Values of the loss at a few points, which tell functions of one name apart."""
        return self.loss(_PROBE.expand(2, self.theta.shape[-1]).cumsum(1))

    @property
    def n_bags(self) -> int:
        """M (of a stack: the largest)."""
        return self.theta.shape[-2]

    def statistics(
        self,
        logits: Tensor,
        bag_index: Tensor,
        weight: Tensor | None = None,
        inclusion: Tensor | None = None,
        total: Callable[[Tensor], Tensor] | None = None,
    ) -> BagStatistics:
        """Bag statistics of a batch under this objective's loss."""
        bags = bag_index.long()  # torch takes no other type for all that is done with it
        options: dict[str, Any] = {"weight": weight, "inclusion": inclusion, "total": total}
        return BagStatistics(logits, bags, self.n_bags, self.loss, **options)

    def reduce(self, statistics: BagStatistics) -> Tensor:
        """Value of the objective, shape (...): a scalar without leading dimensions."""
        raise NotImplementedError

    def forward(
        self,
        logits: Tensor,
        bag_index: Tensor,
        weight: Tensor | None = None,
        inclusion: Tensor | None = None,
    ) -> Tensor:
        """Value of the objective on a batch.

        Parameters
        ----------
        logits : Tensor of shape (n, K), or (R, n, K) for a stack
        bag_index : integer Tensor of shape (n,), or (R, n)
            The bag of every row, 0 to M−1.
        weight : Tensor of shape (n,), or (R, n), optional
            Weight of every row: bag means become weighted means.
        inclusion : Tensor of shape (M,), or (R, M), optional
            The chance of each bag to be present in the batch. A bag that is present counts for
            one over its chance, so that the expectation is that of the full objective.
        """
        self._check_batch(logits, bag_index, weight, inclusion)
        return self.reduce(self.statistics(logits, bag_index, weight, inclusion))

    def _check_batch(
        self, logits: Tensor, bag_index: Tensor, weight: Tensor | None, inclusion: Tensor | None
    ) -> None:
        k = self.theta.shape[-1]
        tensors = {
            "logits": logits,
            "bag_index": bag_index,
            "weight": weight,
            "inclusion": inclusion,
        }
        for name, tensor in tensors.items():
            if tensor is None and name in ("weight", "inclusion"):
                continue
            if not isinstance(tensor, Tensor):
                raise invalid(name, "a torch.Tensor", type(tensor).__name__)
            check_dense(name, tensor)
            if tensor.device != logits.device:
                raise invalid(name, f"on {logits.device}, as logits are", f"on {tensor.device}")
        if not logits.is_floating_point():
            raise invalid("logits", "of a floating point type", str(logits.dtype))
        if logits.ndim < 2 or logits.shape[-1] != k:
            raise invalid("logits", f"of shape (n, {k})", f"shape {tuple(logits.shape)}")
        if bag_index.shape != logits.shape[:-1]:
            expected = tuple(logits.shape[:-1])
            raise invalid("bag_index", f"of shape {expected}", f"shape {tuple(bag_index.shape)}")
        if bag_index.is_floating_point() or bag_index.dtype == torch.bool:
            raise invalid("bag_index", "of an integer type", str(bag_index.dtype))
        if weight is not None and weight.shape != bag_index.shape:
            expected = tuple(bag_index.shape)
            raise invalid("weight", f"of shape {expected}", f"shape {tuple(weight.shape)}")
        if inclusion is not None and inclusion.shape[-1:] != (self.n_bags,):
            got = f"shape {tuple(inclusion.shape)}"
            raise invalid("inclusion", f"of shape (..., {self.n_bags}), one per bag", got)
        # Reading values would make the CPU wait for the GPU in every step, so only on the CPU.
        if bag_index.device.type == "cpu" and bag_index.numel():
            bags = bag_index.long()
            low, high = int(bags.min()), int(bags.max())
            if low < 0 or high >= self.n_bags:
                raise invalid("bag_index", f"in 0..{self.n_bags - 1}", f"{low}..{high}")

    @classmethod
    def stack(cls, objectives: Sequence[Self], n_bags: int | None = None) -> Self:
        """Join objectives of one class into one whose buffers have a leading replica axis.

        Those with fewer than ``n_bags`` bags (by default the most of any) get empty ones at the
        end, which no row ever belongs to.
        """
        first = objectives[0]
        joined = cls.__new__(cls)
        nn.Module.__init__(joined)
        joined.priors = first.priors
        joined.loss = first.loss
        n_bags = max(o.n_bags for o in objectives) if n_bags is None else n_bags
        for name, buffer in first._buffers.items():
            if buffer is None:
                joined.register_buffer(name, None)
                continue
            parts = [o.get_buffer(name) for o in objectives]
            if buffer.ndim:
                tail = [0, 0] * (buffer.ndim - 1)
                parts = [nn.functional.pad(p, [*tail, 0, n_bags - len(p)]) for p in parts]
            joined.register_buffer(name, torch.stack(parts))
        return joined


class RiskObjective(Objective):
    r"""Base of the objectives built on the rewritten risk.

    .. math:: R_U = \sum_{m,k} W_{mk} R_{mk}, \qquad W = (\Pi \Theta^\dagger)^\top

    where :math:`R_{mk}` is the partial risk of bag m and class k and :math:`\Pi` the diagonal
    matrix of the test prior (Eqs. 4 and 5 of Tang et al., 2022).

    Parameters
    ----------
    priors : ClassPriors, array, dict or DataFrame
        Θ, of shape (M, K) and full column rank.
    test_prior : array of shape (K,)
        π, the class shares where the classifier will be used.
    loss : str or callable, default="cross-entropy"
    """

    risk_weights: Tensor
    needs_rank = True

    def __init__(
        self,
        priors: Any,
        test_prior: Any,
        *,
        loss: str | LossOfEveryClass = "cross-entropy",
    ) -> None:
        super().__init__(priors, loss=loss)
        pi = check_test_prior(test_prior, self.priors.classes)
        self._register("risk_weights", risk_weights(self.priors, pi))

    def empirical_risk(self, statistics: BagStatistics) -> Tensor:
        """Unbiased estimate of the risk, R_U. Shape (...)."""
        return self.weighted_risks(statistics).sum((-2, -1))

    def weighted_risks(self, statistics: BagStatistics) -> Tensor:
        """Terms W_mk R_mk of the rewritten risk, 0 for an absent bag. Shape (..., M, K)."""
        weights = self.risk_weights.to(statistics.risks)
        return weights * statistics.risks * statistics.presence[..., None]
