"""Bounds and open-ended matches in plain NumPy, one cell at a time: the reference for the kernels."""

import numpy as np


def envelope(x: np.ndarray, left: int, right: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The greatest and the least of x[j - left..j + right], for j = 0..count - 1: x (n,) -> (count,), (count,).

    Example:
        >>> envelope(np.array([0.0, 3.0, 1.0]), 1, 0, 3)
        (array([0., 3., 3.]), array([0., 0., 1.]))
    """
    seen = [x[max(0, j - left) : j + right + 1] for j in range(count)]
    return np.array([part.max() for part in seen]), np.array([part.min() for part in seen])


def keogh(x: np.ndarray, upper: np.ndarray, lower: np.ndarray, *, root: bool = False) -> float:
    """Keogh's bound of x (T, C) with an envelope: the cost of each frame to the nearest point of its box, summed.

    On every path, each step of x is matched with a step inside its box, so DTW is at least the sum.

    Example:
        >>> keogh(np.array([[0.0], [5.0]]), np.array([[1.0], [3.0]]), np.array([[-1.0], [2.0]]))
        4.0
    """
    squared = np.square(np.maximum(np.maximum(x - upper, lower - x), 0)).sum(1)
    return float(np.sqrt(squared).sum() if root else squared.sum())


def normalize(windows: np.ndarray) -> np.ndarray:
    """Windows (B, T, C) with mean 0 and deviation 1 in each channel; constant channels become 0.

    Example:
        >>> normalize(np.array([[[1.0], [3.0]]])).ravel()
        array([-1.,  1.])
    """
    wide = windows.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(1, keepdims=True))
    constant = deviation <= 1e-7 * np.abs(wide).max(1, keepdims=True)
    return np.where(constant, 0, centred / np.where(constant, 1, deviation)).astype(windows.dtype)


def stretches(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each column of cost (n, m), the value of the best path that ends there in the last row, and its start.

    Ties prefer the diagonal, then the row above.

    Example:
        >>> stretches(np.array([[1.0, 0.0, 2.0], [9.0, 3.0, 0.0]]))
        (array([10.,  3.,  0.]), array([0, 1, 1]))
    """
    n, m = cost.shape
    value, start = np.empty((n, m)), np.empty((n, m), dtype=np.int64)
    for j in range(m):
        for i in range(n):
            before = [(0.0, j)] * 2 if i == 0 else []
            if i > 0 and j > 0:
                before.append((value[i - 1, j - 1], start[i - 1, j - 1]))
            elif i > 0:
                before.append((np.inf, j))
            if i > 0:
                before.append((value[i - 1, j], start[i - 1, j]))
            if j > 0:
                before.append((value[i, j - 1], start[i, j - 1]))
            best = min(before, key=lambda pair: pair[0])  # the first of equals
            value[i, j], start[i, j] = best[0] + cost[i, j], best[1]
    return value[-1], start[-1]
