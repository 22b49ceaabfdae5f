"""DILATE: the shape and the timing of an alignment."""

import torch
from torch import Tensor

from likewise import _check
from likewise.losses.path_loss import PathLoss


class Dilate(PathLoss):
    """Shape and timing of a soft alignment: alpha value + (1 - alpha) <plan, penalty> / (Tx Ty).

    value: (B,), soft-DTW's values, the shape. plan: (B, Tx, Ty), its expected alignment, d value / d cost.
    penalty: (B, Tx, Ty) or (Tx, Ty), the cost of matching frame i of x with frame j of y; by default
        (i - j)^2, as in the paper. x_lengths, y_lengths: (B,), the real frames of each pair.
    alpha: weight of the shape, 0 to 1.

    Both come from ``alignment = SoftDTW(gamma).align(x, y)``; the plan can be differentiated, through soft-DTW's
    second derivative. With alpha 1 the plan may be None, with alpha 0 the value.
    Reference: Le Guen & Thome (2019), arXiv:1909.09020. Their code averages the plan over the batch before the product
    with the penalty; here every pair has its own plan.

    Example:
        >>> from likewise import SoftDTW
        >>> alignment = SoftDTW(gamma=0.1).align(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1))
        >>> alignment.plan  # three paths of equal cost: a third of them leaves the diagonal on either side
        tensor([[[1.0000, 0.3333],
                 [0.3333, 1.0000]]])
        >>> Dilate(alpha=0)(alignment.value, alignment.plan)
        tensor(0.1667)
    """

    def __init__(self, alpha: float = 0.5, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.alpha = float(_check.number(self.name, "alpha", alpha))
        if not 0 <= self.alpha <= 1:
            _check.refuse(self.name, f"alpha must be between 0 and 1, got {self.alpha:g}")

    def forward(
        self,
        value: Tensor | None,
        plan: Tensor | None,
        penalty: Tensor | None = None,
        x_lengths: Tensor | None = None,
        y_lengths: Tensor | None = None,
    ) -> Tensor:
        """The loss, a scalar."""
        if (value is None and self.alpha > 0) or (plan is None and self.alpha < 1):
            missing = "value" if value is None else "plan"
            _check.refuse(self.name, f"with alpha {self.alpha:g}, the {missing} must not be None")
        parts = []
        if value is not None and self.alpha > 0:
            parts.append(self.alpha * self._numbers("value", value, "B"))
        if plan is not None and self.alpha < 1:
            parts.append((1 - self.alpha) * self._timing(plan, penalty, x_lengths, y_lengths))
        if len(parts) == 2 and len(parts[0]) != len(parts[1]):
            _check.refuse(self.name, f"there are {len(parts[0])} values and {len(parts[1])} plans")
        return self.reduced(parts[0] if len(parts) == 1 else parts[0] + parts[1])

    def _timing(
        self, plan: Tensor, penalty: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None
    ) -> Tensor:
        """The plan's mean penalty (B,) over all of a pair's cells."""
        plan = self._numbers("plan", plan, ("B", "Tx", "Ty"))
        if penalty is None:
            penalty = delay_penalty(plan.shape[1], plan.shape[2], like=plan)
        elif _check.is_tensor(self.name, "penalty", penalty).shape == plan.shape[1:]:
            penalty = penalty[None]
        penalty = self._alike("penalty", penalty.expand_as(plan) if len(penalty) == 1 else penalty, "plan", plan)
        rows = self._real("x_lengths", x_lengths, plan, plan.shape[1])
        columns = self._real("y_lengths", y_lengths, plan, plan.shape[2])
        real = rows[:, :, None] & columns[:, None]
        cells = rows.sum(1) * columns.sum(1)
        return torch.where(real, plan * torch.where(real, penalty, 0), 0).sum((1, 2)) / cells.clamp(min=1)


def delay_penalty(x_steps: int, y_steps: int, *, like: Tensor | None = None) -> Tensor:
    """The paper's penalty (1, Tx, Ty): (i - j)^2, the squared delay in frames.

    Example:
        >>> delay_penalty(2, 3)
        tensor([[[0., 1., 4.],
                 [1., 0., 1.]]])
    """
    device = None if like is None else like.device
    i, j = torch.arange(x_steps, device=device), torch.arange(y_steps, device=device)
    return (i[:, None] - j).square()[None].to(torch.float32 if like is None else like.dtype)
