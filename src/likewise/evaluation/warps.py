"""Differentiable errors of warps against the true ones.

found and true (B, K) are the times of y to which each warp, and the true one, maps the change points. These are at
the ``times`` of x, (B, K) or (K,), increasing. Between change points the error is linear, and is integrated exactly.
``lengths`` (B,) is the number of real change points of each item; padding may hold anything.

Reference: Thickstun et al., Rethinking evaluation methodology for audio-to-score alignment (2020), arXiv:2009.14374;
Xu et al., Deep declarative dynamic time warping (2023), arXiv:2303.10778.
"""

import torch
from torch import Tensor

from likewise import _check


def time_error(found: Tensor, true: Tensor, times: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Mean absolute error over time, (B,): the integral of |e(s)| ds divided by the duration. TimeErr of the papers.

    Sign changes between two change points are integrated exactly. The derivative is zero where the error is zero.

    Example:
        >>> times = torch.tensor([0.0, 1.0, 2.0])
        >>> time_error(torch.tensor([[0.5, 1.0, 1.5]]), times[None], times)  # half a second early or late, then none
        tensor([0.2500])
    """
    first, second, spans, duration = _pieces("time_error", found, true, times, lengths)
    total = first.abs() + second.abs()
    safe = torch.where(total > 0, total, 1)
    crossed = (first.square() + second.square()) / safe
    return (spans * torch.where(first * second < 0, crossed, total) / 2).sum(1) / duration


def time_deviation(found: Tensor, true: Tensor, times: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Root of the mean squared error over time, (B,). TimeDev of the papers; its derivative is zero where it is zero.

    Example:
        >>> times = torch.tensor([0.0, 1.0])
        >>> time_deviation(torch.tensor([[1.0, 2.0]]), times[None], times)  # a second late throughout
        tensor([1.])
    """
    first, second, spans, duration = _pieces("time_deviation", found, true, times, lengths)
    mean = (spans * (first.square() + first * second + second.square()) / 3).sum(1) / duration
    return torch.where(mean > 0, torch.where(mean > 0, mean, 1).sqrt(), 0 * mean)


def position_error(found: Tensor, true: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Largest distance (B,) between found and true positions, both (B, K, C) or (B, K).

    Example:
        >>> position_error(torch.tensor([[[0.0, 0.0], [3.0, 4.0]]]), torch.zeros(1, 2, 2))
        tensor([5.])
    """
    return _distances("position_error", found, true, lengths).amax(1)


def trajectory_error(found: Tensor, true: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Root of the mean squared distance between found and true positions, (B,): the absolute trajectory error.

    Example:
        >>> trajectory_error(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
        tensor([3.5355])
    """
    distances = _distances("trajectory_error", found, true, lengths)
    count = distances.shape[1] if lengths is None else lengths.to(distances.device)
    return (distances.square().sum(1) / count).sqrt()


def share_below(errors: Tensor, thresholds: list[float] | tuple[float, ...]) -> dict[float, float]:
    """Share of errors (B,) below each threshold.

    Example:
        >>> share_below(torch.tensor([0.5, 1.5, 4.0, 9.0]), (1, 5))
        {1: 0.25, 5: 0.75}
    """
    if errors.ndim != 1 or not len(errors):
        _check.refuse("share_below", f"expected errors of shape (B,), at least one, got {tuple(errors.shape)}")
    return {threshold: float((errors < threshold).double().mean()) for threshold in thresholds}


def _pieces(
    op: str, found: Tensor, true: Tensor, times: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The errors at both ends of each stretch and its duration, (B, K - 1) and 0 in the padding; the total duration."""
    _alike(op, found, true)
    if found.ndim != 2 or found.shape[1] < 2:
        _check.refuse(op, f"expected found of shape (B, K), K at least 2, got {tuple(found.shape)}")
    if times.shape not in (found.shape, found.shape[1:]):
        _check.refuse(op, f"expected times of shape {tuple(found.shape)} or (K,), got {tuple(times.shape)}")
    times = times.expand_as(found)
    real = _real(op, found, lengths, least=2)
    errors = torch.where(real, found - true, 0)
    spans = torch.where(real[:, 1:], times.diff(dim=1), 0)
    wrong = ((spans <= 0) & real[:, 1:]).any(1)
    if wrong.any():
        _check.refuse(op, f"times[{int(wrong.nonzero()[0])}] do not increase")
    return torch.where(real[:, 1:], errors[:, :-1], 0), errors[:, 1:], spans, spans.sum(1)


def _distances(op: str, found: Tensor, true: Tensor, lengths: Tensor | None) -> Tensor:
    """Distances (B, K) between positions, zero in the padding; where these are equal, the derivative is zero too."""
    _alike(op, found, true)
    if found.ndim not in (2, 3) or found.shape[1] < 1:
        _check.refuse(op, f"expected found of shape (B, K) or (B, K, C), got {tuple(found.shape)}")
    real = _real(op, found, lengths, least=1)
    if found.ndim == 2:
        return torch.where(real, found - true, 0).abs()
    squares = torch.where(real[..., None], found - true, 0).square().sum(2)
    return torch.where(squares > 0, torch.where(squares > 0, squares, 1).sqrt(), 0 * squares)


def _alike(op: str, found: Tensor, true: Tensor) -> None:
    _check.is_tensor(op, "found", found)
    _check.is_tensor(op, "true", true)
    if found.shape != true.shape:
        _check.refuse(op, f"found is {tuple(found.shape)}, but true is {tuple(true.shape)}")


def _real(op: str, found: Tensor, lengths: Tensor | None, least: int) -> Tensor:
    """A mask (B, K) of the real change points."""
    steps = torch.arange(found.shape[1], device=found.device)
    if lengths is None:
        return torch.ones(found.shape[:2], dtype=torch.bool, device=found.device)
    _check.lengths_shape(op, "lengths", lengths, len(found))
    _check.lengths_range(op, "lengths", lengths, found.shape[1])
    if (lengths < least).any():
        _check.refuse(op, f"lengths must be at least {least}")
    return steps < lengths.to(found.device)[:, None]
