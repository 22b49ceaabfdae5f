"""Temporal alignment prediction in plain torch, one pair of sequences at a time: the equations of the paper.

D(i, j) = ||x_i - y_j||; time(i, j) = |i / Lx - j / Ly|, counted from 1; A = softmax over j of -(D + g(D, time)), where
g is a stack of convolutions with ReLUs between them; the distance from x to y is the mean over i of sum_j A(i, j)
D(i, j).
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def correction(D: Tensor, time: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """g(D, time), (Lx, Ly), of convolutions with weights (out, in, K, K) and biases (out,), padded with zeros."""
    h = torch.stack([D, time])[None]  # (1, 2, Lx, Ly)
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = functional.conv2d(h.relu() if k else h, weight, bias, padding=weight.shape[2] // 2)
    return h[0, 0]


def attention(x: Tensor, y: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """A and D, (Lx, Ly) each, of one pair x (Lx, C) and y (Ly, C)."""
    D = torch.linalg.vector_norm(x[:, None] - y, dim=2)
    i, j = (torch.arange(1, len(t) + 1, dtype=t.dtype, device=t.device) / len(t) for t in (x, y))
    scores = -(D + correction(D, (i[:, None] - j).abs(), weights, biases))
    return scores.softmax(1), D


def distance(x: Tensor, y: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """The distance, a scalar, from x (Lx, C) to y (Ly, C).

    Example:
        >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [3.0]])
        >>> distance(x, y, [torch.zeros(1, 2, 1, 1)], [torch.zeros(1)])  # no correction: a soft minimum of each row
        tensor(0.7056)
    """
    A, D = attention(x, y, weights, biases)
    return (A * D).sum() / len(x)


def matrix(
    x: Tensor, y: Tensor, x_lengths: Tensor, y_lengths: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """Distances (N, M) from padded x (N, Tx, C) to y (M, Ty, C)."""
    rows = [
        torch.stack([distance(a[:n], b[:m], weights, biases) for b, m in zip(y, y_lengths.tolist(), strict=True)])
        for a, n in zip(x, x_lengths.tolist(), strict=True)
    ]
    return torch.stack(rows)
