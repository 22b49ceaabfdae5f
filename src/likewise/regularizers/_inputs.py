"""Check the inputs of regularisers of features."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from likewise import _check


def read_features(op: str, features: object) -> list[Tensor]:
    """Features (B, C_l) of several layers, all in float32 or all in float64; one tensor is one layer."""
    layers = [features] if isinstance(features, Tensor) else features
    if not isinstance(layers, Sequence) or not layers:
        raise TypeError(f"{op}: expected features of shape (B, C), or a list of them, got {type(features).__name__}")
    found: list[Tensor] = []
    for i, given in enumerate(layers):
        layer = _check.is_tensor(op, f"features[{i}]", given)
        if layer.ndim != 2:
            hint = "; average over its positions first" if layer.ndim > 2 else ""
            _check.refuse(op, f"expected features[{i}] of shape (B, C), got {tuple(layer.shape)}{hint}")
        found.append(layer)
        if layer.shape[0] != found[0].shape[0]:
            _check.refuse(op, f"features[{i}] has {len(layer)} rows, but features[0] has {len(found[0])}")
    if all(layer.dtype == torch.float32 for layer in found):
        return found
    kind = functools.reduce(torch.promote_types, {layer.dtype for layer in found}, torch.float32)
    return [layer.to(kind) for layer in found]


def mean_of_pairs(values: Tensor, keep: Tensor) -> Tensor:
    """The mean of the kept cells of a matrix (B, B); without kept cells, a differentiable zero."""
    return values.masked_fill(~keep, 0).sum() / keep.sum().clamp(min=1)


def squared_distances(x: Tensor) -> Tensor:
    """Squared Euclidean distances (B, B) between rows of x (B, C): 0 on the diagonal, never negative."""
    x = x - x.mean(0)  # for the precision of the squares
    sizes = x.square().sum(1)
    apart = (sizes[:, None] + sizes - 2 * x @ x.T).clamp(min=0)
    return apart.masked_fill(torch.eye(len(x), dtype=torch.bool, device=x.device), 0)
