"""Convolutions over the cells of pairs, (Lx, Ly) each, that are stored one after the other without padding.

Pairs differ in size, so most of a padded batch may be padding, and the padding would have to be set to zero before
every convolution. A packed batch has no padding. This is for GPUs; elsewhere PyTorch's convolution of the padded batch
is used.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from likewise.ops.pair_convolution import reference

__all__ = ["Cells", "convolve"]


@dataclass(frozen=True)
class Cells:
    """The places of the cells of each pair: those of pair b begin at ``first[b]``, row by row, n[b] rows of m[b] cells.

    Example:
        >>> import torch
        >>> cells = Cells.of(torch.tensor([2, 3]), torch.tensor([4, 1]))
        >>> cells.first, cells.count
        (tensor([0, 8]), 11)
    """

    n: Tensor  # (B,) int64
    m: Tensor  # (B,) int64
    first: Tensor  # (B,) int64
    count: int

    @classmethod
    def of(cls, n: Tensor, m: Tensor) -> "Cells":
        """Cells of pairs of n[b] and m[b] frames."""
        n, m = n.contiguous(), m.contiguous()
        sizes = n * m
        ends = sizes.cumsum(0)
        return cls(n, m, ends - sizes, int(ends[-1]) if len(ends) else 0)


def convolve(h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], cells: Cells) -> Tensor:
    """A stack of convolutions of every pair, with ReLUs between them: h (cells, in) -> (cells, out).

    Weights are (out, in, k, k), k odd. The precision is that of h; float16 and bfloat16 are summed in float32, and
    float32 products use TensorFloat-32 if ``torch.backends.cudnn.allow_tf32`` is set. Differentiable once.

    Example:
        >>> import torch
        >>> cells = Cells.of(torch.tensor([1]), torch.tensor([3]))
        >>> convolve(torch.tensor([[1.0], [2.0], [4.0]]), [torch.ones(1, 1, 3, 3)], [torch.zeros(1)], cells).T
        tensor([[3., 7., 6.]])
    """
    if not h.is_cuda:
        return reference.convolve(h, weights, biases, cells.n, cells.m, cells.first)
    return importlib.import_module("likewise.ops.pair_convolution.gpu").convolve(h, weights, biases, cells)
