"""Convolutions of pairs, one pair at a time."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def convolve(
    h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], n: Tensor, m: Tensor, first: Tensor
) -> Tensor:
    """h (cells, in) -> (cells, out): pair b's cells are an image (n[b], m[b]), with zeros around it."""
    parts = [h.new_empty(0, len(weights[-1]))]
    for rows, columns, start in zip(n.tolist(), m.tolist(), first.tolist(), strict=True):
        image = h[start : start + rows * columns].T.reshape(1, -1, rows, columns)
        for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            image = functional.conv2d(image.relu() if k else image, weight, bias, padding=weight.shape[2] // 2)
        parts.append(image[0].flatten(1).T)
    return torch.cat(parts)
