"""TAP's convolutions over the cells of padded pairs, with or without gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from likewise.ops.dispatch import HAS_TRITON
from likewise.ops.pair_convolution import Cells, convolve

WIDEST = 128  # channels that the kernels for packed pairs take


def correction(
    D: Tensor, time: Tensor, inside: Tensor | None, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """g(D, time), (B, Tx, Ty), of distances and times apart that are zero where ``inside`` is False.

    In the precision of D; on a GPU, without gradients, in float16 unless that overflows.
    """
    run = _packed if D.is_cuda and D.dtype != torch.float64 and _widest(weights) <= WIDEST and HAS_TRITON else _padded
    if D.is_cuda and D.dtype == torch.float32 and not torch.is_grad_enabled():
        with torch.autocast("cuda", torch.float16):
            found = run(D, time, inside, weights, biases).float()
        if found.isfinite().all():
            return found
    return run(D, time, inside, weights, biases)


def _widest(weights: Sequence[Tensor]) -> int:
    """Channels between the convolutions."""
    return max((len(weight) for weight in weights[:-1]), default=0)


def _padded(
    D: Tensor, time: Tensor, inside: Tensor | None, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """By PyTorch's convolutions; cells outside of a pair are set to zero before each."""
    mask = None if inside is None else inside[:, None].to(D.dtype)
    h = torch.stack([D, time], 1).contiguous(memory_format=torch.channels_last)  # (B, 2, Tx, Ty)
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if k > 0:
            h = h.relu()
            h = h if mask is None else h * mask
        h = functional.conv2d(h, weight.to(D.dtype), bias.to(D.dtype), padding=weight.shape[2] // 2)
    return h[:, 0]


def _packed(
    D: Tensor, time: Tensor, inside: Tensor | None, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """By kernels that see the real cells alone."""
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else D.dtype
    weights, biases = [w.to(dtype) for w in weights], [b.to(dtype) for b in biases]
    h = torch.stack([D, time], -1).to(dtype).flatten(0, 2)  # (all cells, 2)
    if inside is None:
        n, m = (torch.full(D.shape[:1], steps, device=D.device) for steps in D.shape[1:])
        return convolve(h, weights, biases, Cells.of(n, m)).reshape(D.shape).to(D.dtype)
    real = inside.flatten().nonzero()[:, 0]
    cells = Cells.of(inside.any(2).sum(1), inside.any(1).sum(1))
    found = convolve(h.index_select(0, real), weights, biases, cells)[:, 0]
    return D.new_zeros(D.numel()).index_copy(0, real, found.to(D.dtype)).reshape(D.shape)
