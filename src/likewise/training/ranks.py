"""Ranks: divide the rows of a batch and of its matrix among processes, and gather them with gradients."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn

from likewise.data.batch import Batch


@dataclass(frozen=True)
class Ranks:
    """One of ``size`` processes. Each computes its rows, and all get the gathered results.

    The loss is then the same number in every process, and so are its gradients with respect to the gathered results.
    The backward pass sums these over the processes and returns them to the one that computed the rows. ``average``
    divides by the number of processes, so the weights change as in one process with the whole batch. Gradients are
    averaged after the backward pass, all at once, so parameters that a step does not use need no special care.
    """

    rank: int = 0
    size: int = 1

    def rows(self, count: int) -> slice:
        """The rows of this process out of ``count``; the first processes get one more if they do not divide evenly."""
        each, more = divmod(count, self.size)
        first = self.rank * each + min(self.rank, more)
        return slice(first, first + each + (self.rank < more))

    def gather(self, own: Tensor, count: int) -> Tensor:
        """Gather all rows (count, ...) from those of each process, with gradients."""
        return own if self.size == 1 else _Gather.apply(own, self, count)

    def gather_encoded(self, own: Batch | Tensor, count: int) -> Batch | Tensor:
        """Gather all encoded items from those of each process, with gradients."""
        if self.size == 1:
            return own
        if isinstance(own, Tensor):
            return self.gather(own, count)
        steps = torch.tensor(own.values.shape[1], device=own.device)
        distributed.all_reduce(steps, distributed.ReduceOp.MAX)
        values = nn.functional.pad(own.values, (0, 0, 0, int(steps) - own.values.shape[1]))
        lengths = self.gather(own.lengths.to(own.device), count)
        return Batch(self.gather(values, count), lengths.cpu())

    def average(self, parameters: Iterable[nn.Parameter]) -> None:
        """Average the gradients over the processes; parameters without gradients are skipped."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for dtype in {gradient.dtype for gradient in gradients}:
            some = [gradient for gradient in gradients if gradient.dtype == dtype]
            whole = torch.cat([gradient.flatten() for gradient in some])
            distributed.all_reduce(whole)
            for gradient, mean in zip(some, (whole / self.size).split([g.numel() for g in some]), strict=True):
                gradient.copy_(mean.reshape(gradient.shape))

    def sum(self, values: list[float], device: torch.device) -> list[float]:
        """Sum each number over the processes."""
        if self.size == 1:
            return values
        dtype = torch.float32 if device.type == "mps" else torch.float64
        total = torch.tensor(values, dtype=dtype, device=device)
        distributed.all_reduce(total)
        return total.tolist()

    def any(self, value: bool, device: torch.device) -> bool:
        """Whether ``value`` is true in any process."""
        return value if self.size == 1 else self.sum([float(value)], device)[0] > 0


ALONE = Ranks()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks, count: int) -> Tensor:
        ctx.ranks, ctx.count = ranks, count
        most = -(-count // ranks.size)
        padded = own.new_zeros(most, *own.shape[1:])
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in range(ranks.size)]
        distributed.all_gather(parts, padded)
        sizes = [Ranks(rank, ranks.size).rows(count) for rank in range(ranks.size)]
        return torch.cat([part[: size.stop - size.start] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        total = grad.contiguous().clone()
        distributed.all_reduce(total)
        return total[ctx.ranks.rows(ctx.count)], None, None
