"""Additive attention's calls of its CPU kernels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from likewise.ops import cpu
from likewise.ops.additive_attention.layer import Layer

PARTS = 8  # of a batch; their gradients of the weights are summed apart, whatever the number of threads
ALONE = 1 << 20  # products of W1 and a map that one thread computes sooner than several


def attend(u: Tensor, layers: Sequence[Layer]) -> tuple[Tensor, ...]:
    """Features (B, C_1 + ... + C_m) and the weights (B, 1, P) of each layer."""
    features = u.new_empty(len(u), sum(layer.values.shape[1] for layer in layers))
    found, first = [], 0
    for layer in layers:
        described, kept = _describe(u, layer)
        weights = u.new_empty(len(u), 1, layer.values.shape[2])
        cpu.native.attention_forward(
            cpu.INSTRUCTION_SET,
            described,
            weights.data_ptr(),
            features[:, first:].data_ptr(),
            features.shape[1],
            *_division(layer),
        )
        del kept
        found.append(weights)
        first += layer.values.shape[1]
    return features, *found


def gradients(
    u: Tensor,
    layer: Layer,
    weights: Tensor,
    by_summary: Tensor,
    by_weights: Tensor | None,
    with_values: bool,
) -> tuple[Tensor, Tensor | None, None, Tensor, Tensor | None, Tensor]:
    """Gradients by u and by each of the layer, as ``reference.gradients`` has them."""
    described, kept = _describe(u, layer)
    weights, by_weights = weights.contiguous(), None if by_weights is None else by_weights.contiguous()
    by_summary = by_summary if by_summary.stride(1) == 1 else by_summary.contiguous()
    by_values = torch.empty_like(layer.values, memory_format=torch.contiguous_format) if with_values else None
    rows, channels = layer.inward.shape
    items, parts, threads = _division(layer)
    by_wanted, by_rest = u.new_empty(items, rows), u.new_empty(parts, rows, channels + 1)
    cpu.native.attention_backward(
        cpu.INSTRUCTION_SET,
        described,
        weights.data_ptr(),
        by_summary.data_ptr(),
        by_summary.stride(0),
        0 if by_weights is None else by_weights.data_ptr(),
        0 if by_values is None else by_values.data_ptr(),
        by_wanted.data_ptr(),
        by_rest.data_ptr(),
        items,
        parts,
        threads,
    )
    del kept
    inward, outward = by_rest.sum(0).split((channels, 1), 1)
    if layer.across is None:
        return by_wanted, by_values, None, inward, None, outward.T
    return by_wanted @ layer.across, by_values, None, inward, by_wanted.T @ u, outward.T


def _describe(u: Tensor, layer: Layer) -> tuple[object, tuple[Tensor | None, ...]]:
    """The layer as the kernels take it, and the tensors that it points into."""
    wanted = (u if layer.across is None else u @ layer.across.T).contiguous()
    values, inward, outward = layer.values.contiguous(), layer.inward.contiguous(), layer.outward.contiguous()
    mask = None if layer.mask is None else layer.mask.contiguous()
    described = cpu.native.AttentionLayer(
        values=values.data_ptr(),
        inward=inward.data_ptr(),
        outward=outward.data_ptr(),
        wanted=wanted.data_ptr(),
        mask=0 if mask is None else mask.data_ptr(),
        channels=values.shape[1],
        positions=values.shape[2],
        features=len(inward),
        float64=u.dtype == torch.float64,
    )
    return described, (values, inward, outward, wanted, mask)


def _division(layer: Layer) -> tuple[int, int, int]:
    """The number of items, of parts of them, and of threads."""
    items = len(layer.values)
    products = layer.values.numel() * len(layer.inward)
    return items, min(PARTS, items), 1 if products < ALONE else torch.get_num_threads()
