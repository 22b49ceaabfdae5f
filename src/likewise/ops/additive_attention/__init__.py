"""Additive attention of the positions of maps to one vector, in one operation for all maps."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from likewise.ops.additive_attention import cpu, reference
from likewise.ops.additive_attention.layer import Layer
from likewise.ops.dispatch import HAS_TRITON, are_plain, nobody_watches, run_triton

__all__ = ["Layer", "additive_attention"]

MOST_WEIGHTS = 4096  # numbers of W1, and of W2, that the fused kernel keeps in registers
WIDEST = 256


def additive_attention(u: Tensor, layers: Sequence[Layer]) -> tuple[Tensor, list[Tensor]]:
    """Features (B, C_1 + ... + C_m), the sums over j of a_j q_j of each layer, and the weights a (B, 1, P) of each.

    The weights are the softmax over j of w . tanh(W1 q_j + W2 u), and 0 in the padding. u: (B, W).
    It is twice differentiable. Memory, besides the maps' gradients: for each layer one tensor of the map's size and
    one (B, R, P); neither by the kernels, which run on a CPU if there are fewer features R than positions, and on a GPU
    in float32 if there are few weights.

    Example:
        >>> q, one = torch.tensor([[[0.0, 100.0, 7.0]]]), torch.ones(1, 1)
        >>> layer = Layer(q, torch.tensor([[True, True, False]]), one, None, 200 * one)
        >>> additive_attention(0 * one, [layer])
        (tensor([[100.]]), [tensor([[[0., 1., 0.]]])])
    """
    features, *weights = _Attend.apply(u, *(tensor for layer in layers for tensor in layer))  # type: ignore[misc]
    return features, weights


class _Attend(torch.autograd.Function):
    """The derivative writes each map's gradient once.

    With plain PyTorch operations, a small TCN's step spent more time allocating six tensors of the map's size than on
    the products; this needs two. On a CPU, a kernel reads each map once in each direction. On a GPU, where such a step
    is bound by its launches, a layer takes one launch, and its derivative one and a sum.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, *flat: Tensor | None) -> tuple[Tensor, ...]:  # type: ignore[override]
        layers = _layers(flat)
        ctx.set_materialize_grads(False)
        ctx.fused, ctx.on_cpu = _is_fused(u, layers), _has_cpu_kernel(u, layers)
        if ctx.on_cpu:
            features, *weights = cpu.attend(u, layers)
            kept = weights
        elif ctx.fused:
            features, *weights = run_triton("additive_attention.attend", u.device, u, layers)
            kept = weights
        else:
            found = [reference.weigh(u, layer) for layer in layers]
            features = torch.cat([torch.bmm(weights, clean.mT).squeeze(1) for clean, _, weights in found], 1)
            weights = [weights for _, _, weights in found]
            kept = [tensor for each in found for tensor in each]
        ctx.save_for_backward(u, *flat, *kept)
        return features, *weights

    @staticmethod
    def backward(ctx: Any, by_features: Tensor | None, *by_weights: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        u, *rest = ctx.saved_tensors
        count = len(Layer._fields) * len(by_weights)
        layers, kept = _layers(rest[:count]), rest[count:]
        _, *wanted = ctx.needs_input_grad
        again = torch.is_grad_enabled()  # recompute from the inputs, for a second derivative
        if ctx.fused and not again and by_features is not None and all(each is None for each in by_weights):
            return run_triton("additive_attention.gradients", u.device, by_features, u, layers, *kept)
        channels = [layer.values.shape[1] for layer in layers]
        by_summaries = u.new_zeros(len(u), sum(channels)) if by_features is None else by_features
        by_u, slopes = torch.zeros_like(u), []
        if ctx.on_cpu and not again:
            weighed = [(weights,) for weights in kept]
        elif ctx.fused or ctx.on_cpu or again:
            weighed = (reference.weigh(u, layer) for layer in layers)
        else:
            weighed = zip(*[iter(kept)] * 3, strict=True)
        each = zip(layers, weighed, by_summaries.split(channels, 1), by_weights, _layers(wanted), strict=True)
        for layer, found, by_summary, by_weight, wants in each:
            if len(found) == 1:
                here, *others = cpu.gradients(u, layer, found[0], by_summary, by_weight, bool(wants.values))
            else:
                here, *others = reference.gradients(u, layer, found, by_summary, by_weight, bool(wants.values))
            by_u = by_u + here
            slopes += others
        return by_u, *slopes


def _layers(flat: Sequence[Any]) -> list[Layer]:
    return [Layer(*each) for each in zip(*[iter(flat)] * len(Layer._fields), strict=True)]


def _is_fused(u: Tensor, layers: Sequence[Layer]) -> bool:
    """Whether to use the Triton kernels: launches take longer than the work, and the weights fit into registers."""
    if not HAS_TRITON or not u.is_cuda or u.dtype != torch.float32:
        return False
    for layer in layers:
        widest = max(layer.inward.shape[1], u.shape[1])
        if widest > WIDEST or len(layer.inward) * widest > MOST_WEIGHTS:
            return False
        if layer.values.dtype != torch.float32 or layer.values.numel() == 0 or not are_plain(layer):
            return False
    return are_plain((u,))


def _has_cpu_kernel(u: Tensor, layers: Sequence[Layer]) -> bool:
    """Whether to use the C++ kernels: for fewer features than positions. Otherwise products of matrices are faster."""
    if not u.is_cpu or u.dtype not in (torch.float32, torch.float64) or not len(u) or not nobody_watches((u,)):
        return False
    return all(
        layer.values.dtype == layer.inward.dtype == u.dtype
        and layer.values.numel() > 0
        and not reference.many_features(layer)
        and nobody_watches(layer)
        for layer in layers
    )
