"""GradientReversal: the identity forwards, the negated gradient backwards."""

from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check


class GradientReversal(nn.Module):
    """Return x unchanged; multiply its gradient by -scale.

    Between features and a classifier, a positive scale makes the features worse for the classifier's task, while the
    classifier still learns; a negative scale makes them better. ``scale`` may be changed at any time.

    Reference: Ganin & Lempitsky (2015), arXiv:1409.7495.

    Example:
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> GradientReversal(0.5)(3 * x).sum().backward()
        >>> x.grad
        tensor([-1.5000, -1.5000])
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = float(_check.number("GradientReversal", "scale", scale))

    def forward(self, x: Tensor) -> Tensor:
        """Return x; its gradient is multiplied by -scale."""
        return reverse_gradient(x, self.scale)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"{self.scale}"


def reverse_gradient(x: Tensor, scale: float | Tensor) -> Tensor:
    """Return x, with its gradient multiplied by -scale. A scale on the GPU causes no synchronisation.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> reverse_gradient(x, 0.5).sum().backward()
        >>> x.grad
        tensor([-0.5000, -0.5000])
    """
    return _Reversal.apply(x, scale)  # type: ignore[return-value]


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float | Tensor) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return -ctx.scale * grad, None
