"""Errors of warps against the true ones, as losses."""

import torch
from torch import Tensor

from likewise import _check
from likewise.losses.path_loss import PathLoss


class WarpError(PathLoss):
    """The error of a warp at known points: the mean over a pair's points of |found - true|^power.

    found, true: (B, K), times or positions of K points. lengths: (B,), the number of real points of each pair.
    power: 1 or 2, the absolute or the squared error. The derivative of |e| is 0 at e = 0.

    Example:
        >>> found, true = torch.tensor([[0.5, 1.0, 2.0]]), torch.tensor([[0.0, 1.0, 3.0]])
        >>> WarpError(power=1)(found, true), WarpError(power=2)(found, true)
        (tensor(0.5000), tensor(0.4167))
    """

    def __init__(self, power: int = 2, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.power = _check.whole(self.name, "power", power, least=1, most=2)

    def forward(self, found: Tensor, true: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The loss, a scalar."""
        found = self._numbers("found", found, "BK")
        real = self._real("lengths", lengths, found, found.shape[1])
        errors = torch.where(real, found - self._alike("true", true, "found", found), 0)
        errors = errors.abs() if self.power == 1 else errors.square()
        return self.reduced(errors.sum(1) / real.sum(1).clamp(min=1))


class TimeError(PathLoss):
    """TimeErr of audio-to-score alignment: (1 / S) integral |found(s) - true(s)| ds, exact between change points.

    found, true: (B, K), times of y to which the warp and the true warp map the change points, such as ``warp(times)``.
    times: (B, K) or (K,), the change points in x's time, increasing; S is their span. lengths: (B,), the number of real
        change points, two or more.

    Between two change points with errors e1 and e2 the error is linear, and its integral divided by the span is
    (|e1| + |e2|) / 2 if they have the same sign, else (e1^2 + e2^2) / (2 (|e1| + |e2|)): two triangles. Its derivative
    is finite everywhere and zero where the error is zero; in the published code it is NaN there.
    ``likewise.evaluation.time_error`` returns the numbers (B,) for evaluation.
    Reference: Thickstun et al. (2020), arXiv:2009.14374; Xu et al. (2023), arXiv:2303.10778.

    Example:
        >>> times = torch.tensor([0.0, 1.0, 2.0])
        >>> TimeError()(torch.tensor([[1.0, 0.0, 2.0]]), times[None], times)  # a second late, a second early, none
        tensor(0.5000)
    """

    def forward(self, found: Tensor, true: Tensor, times: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The loss, a scalar."""
        found = self._numbers("found", found, "BK")
        if found.shape[1] < 2:
            _check.refuse(self.name, f"expected found with two change points or more, got {tuple(found.shape)}")
        if not isinstance(times, Tensor) or times.shape not in (found.shape, found.shape[1:]):
            shape = tuple(times.shape) if isinstance(times, Tensor) else type(times).__name__
            _check.refuse(self.name, f"expected times of shape {tuple(found.shape)} or (K,), got {shape}")
        real = self._real("lengths", lengths, found, found.shape[1], least=2)
        errors = torch.where(real, found - self._alike("true", true, "found", found), 0)
        spans = torch.where(real[:, 1:], times.to(found).expand_as(found).diff(dim=1), 0)  # (B, K - 1)
        wrong = ((spans <= 0) & real[:, 1:]).any(1)
        if wrong.any():
            _check.refuse(self.name, f"times[{int(wrong.nonzero()[0])}] do not increase")
        first, second = errors[:, :-1], errors[:, 1:]
        total = first.abs() + second.abs()
        crossed = (first.square() + second.square()) / torch.where(total > 0, total, 1)
        areas = spans * torch.where(first * second < 0, crossed, total) / 2
        return self.reduced(areas.sum(1) / spans.sum(1))


class MaxPositionError(PathLoss):
    """The largest error of a pair's points: max_i |found_i - true_i|^power.

    found, true: (B, K, C), positions of K points in C dimensions, or (B, K). lengths: (B,), the number of real points.
    power: 1 or 2; place recognition uses 2.
    temperature: None for the maximum itself, whose gradient reaches the worst point only (shared among ties); otherwise
        temperature * log mean exp(error / temperature), a lower bound with a gradient for every point. It has the unit
        of the errors, to that power.

    Reference: Xu et al. (2023), arXiv:2303.10778, section 7.2.

    Example:
        >>> found, true = torch.tensor([[[3.0, 4.0], [1.0, 0.0]]]), torch.zeros(1, 2, 2)
        >>> MaxPositionError(power=1)(found, true)
        tensor(5.)
        >>> MaxPositionError(power=1, temperature=1.0)(found, true)
        tensor(4.3250)
    """

    def __init__(self, power: int = 2, *, temperature: float | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.power = _check.whole(self.name, "power", power, least=1, most=2)
        self.temperature = None if temperature is None else _check.positive(self.name, "temperature", temperature)

    def forward(self, found: Tensor, true: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The loss, a scalar."""
        found = self._numbers("found", found, "BK" if getattr(found, "ndim", 0) == 2 else "BKC")
        if found.shape[1] == 0:
            _check.refuse(self.name, f"expected found with at least one point, got {tuple(found.shape)}")
        real = self._real("lengths", lengths, found, found.shape[1])
        inside = real if found.ndim == 2 else real[..., None]
        errors = torch.where(inside, found - self._alike("true", true, "found", found), 0).square()
        errors = errors if found.ndim == 2 else errors.sum(2)  # (B, K)
        if self.power == 1:
            errors = torch.where(errors > 0, torch.where(errors > 0, errors, 1).sqrt(), 0 * errors)
        if self.temperature is None:
            return self.reduced(errors.amax(1))  # never negative, so zeros in the padding do not change the maximum
        logits = (errors / self.temperature).masked_fill(~real, -torch.inf)
        return self.reduced(self.temperature * (logits.logsumexp(1) - real.sum(1).log()))
