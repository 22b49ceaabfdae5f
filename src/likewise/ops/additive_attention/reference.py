"""Additive attention of one layer and its derivative, in plain torch."""

import math

import torch
from torch import Tensor

from likewise.ops.additive_attention.layer import Layer
from likewise.ops.private import softmax_backward


def weigh(u: Tensor, layer: Layer) -> tuple[Tensor, Tensor, Tensor]:
    """Values without padding (B, C, P), tanh(W1 q + W2 u), and the weights (B, 1, P).

    The second is (B, R, P), or (B, P, R) if there are more features R than positions: the gradients of W1, one for
    each item (B, R, C) before they are summed, would take more memory than the map.
    """
    clean = without_padding(layer.values, layer.mask)
    wanted = u if layer.across is None else u @ layer.across.T
    if many_features(layer):
        clean = clean.mT.contiguous().mT
        hidden = (_flat(clean.mT) @ layer.inward.T).view(len(clean), -1, len(layer.inward))
        hidden = hidden.add_(wanted[:, None]).tanh_()
        scores = (_flat(hidden) @ layer.outward[0]).view(len(clean), 1, -1)
    else:
        hidden = torch.baddbmm(wanted[..., None], layer.inward.expand(len(clean), -1, -1), clean).tanh_()
        scores = torch.bmm(layer.outward.expand(len(clean), -1, -1), hidden)
    return clean, hidden, over_real(scores, layer.mask).softmax(-1)


def gradients(
    u: Tensor,
    layer: Layer,
    found: tuple[Tensor, Tensor, Tensor],
    by_summary: Tensor,
    by_weights: Tensor | None,
    with_values: bool,
) -> tuple[Tensor, Tensor | None, None, Tensor, Tensor | None, Tensor]:
    """Gradients with respect to u and each of the layer's tensors, from the result of ``weigh``."""
    clean, hidden, weights = found
    slope = torch.bmm(by_summary[:, None], clean)  # (B, 1, P)
    slope = slope if by_weights is None else slope + by_weights
    slope = softmax_backward(slope, weights, -1, weights.dtype)  # by the scores
    by_values = None
    if many_features(layer):
        before = torch.ops.aten.tanh_backward(slope.mT * layer.outward, hidden)  # (B, P, R)
        if with_values:
            outer = by_summary[:, None] * weights.mT  # (B, P, C)
            by_values = torch.addmm(_flat(outer), _flat(before), layer.inward).view_as(outer).mT
        by_inward, by_outward = _flat(before).T @ _flat(clean.mT), slope.view(1, -1) @ _flat(hidden)
        by_wanted = before.sum(1)  # (B, R)
    else:
        before = torch.ops.aten.tanh_backward(layer.outward.T * slope, hidden)  # (B, R, P)
        if with_values:
            outer = by_summary[..., None] * weights  # (B, C, P)
            by_values = outer.baddbmm_(layer.inward.T.expand(len(clean), -1, -1), before)
        by_inward, by_outward = torch.bmm(before, clean.mT).sum(0), torch.bmm(slope, hidden.mT).sum(0)
        by_wanted = before.sum(-1)  # (B, R)
    if layer.across is None:
        return by_wanted, by_values, None, by_inward, None, by_outward
    return by_wanted @ layer.across, by_values, None, by_inward, by_wanted.T @ u, by_outward


def many_features(layer: Layer) -> bool:
    """Whether there are more features R than positions."""
    return len(layer.inward) > layer.values.shape[2]


def _flat(x: Tensor) -> Tensor:
    """(B, P, N) as (B P, N)."""
    return x.reshape(-1, x.shape[2])


def without_padding(values: Tensor, mask: Tensor | None) -> Tensor:
    """Values (B, C, P), with zeros in the padding if its values could change a sum with weights of 0."""
    if mask is None:
        return values
    # No zeros are needed if all squares are finite. On a CPU this check is faster than copying the map; on a GPU it
    # would need a synchronisation.
    if values.device.type == "cpu" and math.isfinite(torch.linalg.vector_norm(values.detach()).item()):
        return values
    return torch.where(mask[:, None], values, values.new_zeros(()))  # twice as fast as with 0


def over_real(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores (B, 1 or C, P) with -inf in the padding."""
    return scores if mask is None else torch.where(mask[:, None], scores, -torch.inf)
