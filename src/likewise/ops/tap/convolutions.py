"""TAP's convolutions over the cells of padded pairs, with or without gradients."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from likewise.ops.dispatch import HAS_TRITON
from likewise.ops.pair_convolution import Cells, convolve

WIDEST = 128  # the most channels of the kernels for packed pairs
MANY = 0.75  # above this share of pairs with a slope, no pair is left out


def correction(
    D: Tensor, time: Tensor, inside: Tensor | None, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """g(D, time), (B, Tx, Ty), of distances and time differences that are zero where ``inside`` is False.

    The precision is that of D; on a GPU without gradients, it is float16 unless that overflows.
    """
    run = _packed if D.is_cuda and D.dtype != torch.float64 and _widest(weights) <= WIDEST and HAS_TRITON else _padded
    if D.is_cuda and D.dtype == torch.float32 and not torch.is_grad_enabled():
        with torch.autocast("cuda", torch.float16):
            found = run(D, time, inside, weights, biases).float()
        if found.isfinite().all():
            return found
    return run(D, time, inside, weights, biases)


def _widest(weights: Sequence[Tensor]) -> int:
    """The largest number of channels between the convolutions."""
    return max((len(weight) for weight in weights[:-1]), default=0)


def _padded(
    D: Tensor, time: Tensor, inside: Tensor | None, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """Compute g with PyTorch's convolutions; cells outside of a pair are set to zero before each."""
    return _Padded.apply(D, time, inside, len(weights), *weights, *biases)  # type: ignore[return-value]


class _Padded(torch.autograd.Function):
    """Pairs without a slope are left out of the backward pass."""

    @staticmethod
    def forward(ctx: Any, D: Tensor, time: Tensor, inside: Tensor | None, count: int, *parameters: Tensor) -> Tensor:
        kind = D.device.type
        ctx.dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else D.dtype
        weights, biases = ([t.to(ctx.dtype) for t in some] for some in (parameters[:count], parameters[count:]))
        mask = None if inside is None else inside[:, None].to(ctx.dtype)
        h = torch.stack([D, time], 1).to(ctx.dtype).contiguous(memory_format=torch.channels_last)  # (B, 2, Tx, Ty)
        layers = []
        with torch.autocast(kind, enabled=False):
            for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                if k > 0:
                    h = h.relu_() if mask is None else h.relu_().mul_(mask)
                layers.append(h)
                h = functional.conv2d(h, weight, bias, padding=weight.shape[2] // 2)
        ctx.save_for_backward(D, time, inside, *parameters, *layers)
        return h[:, 0].to(D.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        D, time, inside, *rest = ctx.saved_tensors
        count = len(rest) // 3
        weights, biases, layers = rest[:count], rest[count : 2 * count], rest[2 * count :]
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # for a second derivative
            given = [D, time, *weights, *biases]
            some = [t for t, want in zip(given, [*wanted[:2], *wanted[4:]], strict=True) if want]
            found = iter(torch.autograd.grad(_plain(D, time, inside, weights, biases), some, grad, create_graph=True))
            first, second, *others = (next(found) if want else None for want in (*wanted[:2], *wanted[4:]))
            return first, second, None, None, *others
        used = grad.flatten(1).any(1).nonzero()[:, 0]
        if len(used) < MANY * len(grad):
            grad, *layers = (t.index_select(0, used) for t in (grad, *layers))
        to_input, to_weights, to_biases = _backward(ctx.dtype, grad, layers, weights, wanted)
        if to_input is not None and len(to_input) < len(D):
            to_input = to_input.new_zeros(len(D), *to_input.shape[1:]).index_copy_(0, used, to_input)
        first, second = (None, None) if to_input is None else to_input.to(D.dtype).unbind(1)
        return first, second, None, None, *to_weights, *to_biases


def _backward(
    dtype: torch.dtype, grad: Tensor, layers: list[Tensor], weights: list[Tensor], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, list[Tensor], list[Tensor]]:
    """Slopes of the first convolution's input, and of all weights and biases."""
    slope = grad[:, None].to(dtype).contiguous(memory_format=torch.channels_last)
    to_weights, to_biases = [], []
    to_input: Tensor | None = None
    for k in reversed(range(len(weights))):
        half = [weights[k].shape[2] // 2] * 2
        below, to_weight, to_bias = torch.ops.aten.convolution_backward(
            slope, layers[k], weights[k].to(dtype), [len(weights[k])], [1, 1], half, [1, 1], False, [0, 0], 1,
            [k > 0 or any(wanted[:2]), True, True],
        )  # fmt: skip
        to_weights.append(to_weight.to(weights[k].dtype))
        to_biases.append(to_bias.to(weights[k].dtype))
        if k > 0:
            slope = torch.ops.aten.threshold_backward(below, layers[k], 0)  # zero in the padding, as the layer is
        else:
            to_input = below
    return to_input, to_weights[::-1], to_biases[::-1]


def _plain(
    D: Tensor, time: Tensor, inside: Tensor | None, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """Compute g with plain operations, which are as often differentiable as PyTorch's convolution."""
    mask = None if inside is None else inside[:, None].to(D.dtype)
    h = torch.stack([D, time], 1)
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if k > 0:
            h = h.relu() if mask is None else h.relu() * mask
        h = functional.conv2d(h, weight.to(D.dtype), bias.to(D.dtype), padding=weight.shape[2] // 2)
    return h[:, 0]


def _packed(
    D: Tensor, time: Tensor, inside: Tensor | None, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """Compute g with kernels that process only the real cells."""
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
