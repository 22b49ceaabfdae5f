"""PathLoss: the base class of losses of alignments, and their checks."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.losses.loss import describe_settings, read_reduction


class PathLoss(nn.Module):
    """A loss of alignments: the mean or sum over the batch of one number for each pair.

    Path losses take tensors only: the times to which a warp maps points (``WarpError``, ``TimeError``,
    ``MaxPositionError``), the expected alignment of soft-DTW (``Dilate``), features along the true path (``AlongPath``,
    ``AlongWarp``), or costs between the frames of matching sequences (``SoftSubsequenceDTW``). Padding may hold
    anything. Half precision is computed in float32. An empty batch has loss 0, and can be differentiated.

    reduction: "mean" over the pairs, or "sum".

    Example:
        >>> class Late(PathLoss):
        ...     def forward(self, found, true):
        ...         return self.reduced((found - true).relu().sum(1))
        >>> Late()(torch.tensor([[0.0, 3.0], [1.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 2.0]]))
        tensor(1.)
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = read_reduction(self.name, reduction)

    @property
    def name(self) -> str:
        """The name of this loss in errors."""
        return type(self).__name__

    def reduced(self, losses: Tensor) -> Tensor:
        """The loss of the batch, a scalar, from those of its pairs (B,)."""
        return losses.mean() if self.reduction == "mean" and len(losses) else losses.sum()

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe_settings(self)

    def _numbers(self, name: str, value: object, dimensions: Sequence[str]) -> Tensor:
        """A tensor of the named dimensions, such as "BK"; half precision becomes float32."""
        tensor = _check.is_tensor(self.name, name, value)
        if tensor.ndim != len(dimensions):
            shape = f"({', '.join(dimensions)})"
            _check.refuse(self.name, f"expected {name} of shape {shape}, got {tuple(tensor.shape)}")
        return tensor.to(torch.promote_types(tensor.dtype, torch.float32))

    def _alike(self, name: str, value: object, other: str, like: Tensor) -> Tensor:
        """A tensor of the shape, type and device of another."""
        tensor = _check.is_tensor(self.name, name, value)
        if tensor.shape != like.shape:
            _check.refuse(self.name, f"{other} is {tuple(like.shape)}, but {name} is {tuple(tensor.shape)}")
        return tensor.to(like)

    def _real(self, name: str, lengths: Tensor | None, like: Tensor, steps: int, least: int = 1) -> Tensor:
        """The mask (B, steps) of the real steps of each pair."""
        if lengths is None:
            return torch.ones(len(like), steps, dtype=torch.bool, device=like.device)
        _check.lengths_shape(self.name, name, lengths, len(like))
        _check.lengths_range(self.name, name, lengths, steps)
        if (lengths < least).any():
            _check.refuse(self.name, f"{name} must be at least {least}")
        return torch.arange(steps, device=like.device) < lengths.to(like.device)[:, None]
