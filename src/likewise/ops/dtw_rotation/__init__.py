"""DTW under the best rotation of y: the path and the rotation in turn, until the path does not change.

For a fixed P and b, the path is that of DTW between x_i and P y_j + b. For a fixed path, P = U V' comes from the
singular vectors of the moment, the sum of x_i y_j' over it; with a bias, frames are taken about their means, and b maps
one mean to the other. The first P is the identity, or is given.

Memory: O(Tx Ty) bytes for each pair in progress on the CPU if they fit in the cache, otherwise O(T); on a GPU two bits
per cell of each pair in progress, or with more than four channels a byte per cell of each pair.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.ops.dispatch import operator
from likewise.ops.dtw_rotation import cpu as kernels
from likewise.ops.ground import at_least_float32
from likewise.ops.rules import Rules

__all__ = ["Rotation", "dtw_rotation"]

Lengths = Tensor | None


@dataclass(frozen=True)
class Rotation:
    """What ``dtw_rotation`` found for each pair: y_j is turned to P y_j + b."""

    values: Tensor  # (B,)
    rotation: Tensor  # P (B, Cx, Cy), of orthonormal columns or rows
    offset: Tensor  # b (B, Cx)
    converged: Tensor  # (B,) bool: the path did not change any more

    def turn(self, y: Tensor) -> Tensor:
        """P y_j + b (B, Ty, Cx) of every frame of y (B, Ty, Cy)."""
        return y @ self.rotation.mT + self.offset[:, None]


def dtw_rotation(
    x: Tensor,
    y: Tensor,
    x_lengths: Lengths = None,
    y_lengths: Lengths = None,
    *,
    start: Tensor | None = None,
    max_iter: int = 20,
    bias: bool = False,
    rules: Rules = Rules(),
    all_pairs: bool = False,
) -> Rotation:
    """DTW and the rotations of x (B, Tx, Cx) and y (B, Ty, Cy), after at most ``max_iter`` paths, without derivatives.

    start: the first P (Cx, Cy); by default the identity.
    With ``all_pairs``, of every x[i] with every y[j], as pair i M + j.

    Example:
        >>> x = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]]])
        >>> found = dtw_rotation(x, x @ torch.tensor([[0.8, -0.6], [0.6, 0.8]]))
        >>> found.rotation.round(decimals=3), found.converged
        (tensor([[[ 0.8000, -0.6000],
                 [ 0.6000,  0.8000]]]), tensor([True]))
    """
    # The numbers of channels may differ.
    _check.pair("dtw_rotation", x[..., :1], y[..., :1], x_lengths, y_lengths, paired=not all_pairs)
    x, y = at_least_float32(x.detach()), at_least_float32(y.detach())
    channels = x.shape[2], y.shape[2]
    if start is None:
        start = torch.eye(*channels, dtype=x.dtype, device=x.device)
    elif start.shape != channels:
        _check.refuse("dtw_rotation", f"start has shape {tuple(start.shape)}, but the channels are {channels}")
    start = start.detach().to(x)
    return Rotation(*_dtw_rotation(x, y, x_lengths, y_lengths, start, max_iter, bias, all_pairs, *rules.plain()))


def _fake(
    x: Tensor, y: Tensor, n: Any, m: Any, start: Tensor, max_iter: int, bias: bool, all_pairs: bool, *_: Any
) -> Any:
    count, channels, y_channels = len(x) * len(y) if all_pairs else len(x), x.shape[2], y.shape[2]
    numbers = x.new_empty(count), x.new_empty(count, channels, y_channels), x.new_empty(count, channels)
    return *numbers, x.new_empty(count, dtype=torch.bool)


_dtw_rotation = operator(
    "dtw_rotation(Tensor x, Tensor y, Tensor? x_lengths, Tensor? y_lengths, Tensor start, int max_iter, bool bias, "
    "bool all_pairs, int window, float size, bool open_begin, bool open_end) -> (Tensor, Tensor, Tensor, Tensor)",
    cpu=kernels.rotation,
    triton="dtw_rotation.rotation",
    fake=_fake,
)
