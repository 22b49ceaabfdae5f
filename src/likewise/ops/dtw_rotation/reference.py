"""DTW under a rotation in plain torch: the reference for the kernels."""

import torch
from torch import Tensor

from likewise.ops.dtw import reference as dtw
from likewise.ops.rules import Rules


def rotation(
    x: Tensor,
    y: Tensor,
    start: Tensor | None = None,
    max_iter: int = 20,
    bias: bool = False,
    rules: Rules = Rules(),
) -> tuple[Tensor, Tensor, bool]:
    """P (Cx, Cy), b (Cx,) and whether the path did not change any more, of x (Tx, Cx) and y (Ty, Cy) without padding.

    Example:
        >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])
        >>> bool(torch.allclose(rotation(x, -x)[0], -torch.eye(2), atol=1e-6))
        True
    """
    x_mean, y_mean = (x.mean(0), y.mean(0)) if bias else (x.new_zeros(x.shape[1]), y.new_zeros(y.shape[1]))
    found = torch.eye(x.shape[1], y.shape[1], dtype=x.dtype) if start is None else start
    offset = x.new_zeros(x.shape[1])
    before: list[tuple[int, int]] = []
    for _ in range(max_iter):
        turned = y @ found.T + offset
        path = dtw.path((x[:, None] - turned).square().sum(-1), rules)
        if path == before:
            return found, offset, True
        i, j = torch.tensor(path).T
        u, _, vt = torch.linalg.svd((x[i] - x_mean).T @ (y[j] - y_mean), full_matrices=False)
        last, found, before = (found, offset), u @ vt, path
        offset = x_mean - found @ y_mean
        if torch.equal(found, last[0]) and torch.equal(offset, last[1]):
            return found, offset, True
    return found, offset, False
