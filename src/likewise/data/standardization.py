"""Standardization: scale channels by their mean and deviation in the training items."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check

CONSTANT = 1e-12  # a channel whose deviation is below this share of its mean is constant up to rounding


class Standardization(nn.Module):
    """(x - mean) / deviation for each channel of frames (..., C), or x itself until mean and deviation are set.

    Both are buffers, saved in checkpoints and by ``Metric.save``. ``fit`` sets them from the training items before the
    first step, in every module where they are not set yet. A constant channel is only centred.

    Example:
        >>> scaling = Standardization(1)
        >>> x = torch.tensor([[[1.0], [3.0]], [[5.0], [99.0]]])  # 99 is padding
        >>> with watching([scaling]):
        ...     scaling(x, torch.tensor([2, 1]))[0, :, 0]
        tensor([-1.2247,  0.0000])
        >>> scaling.mean, scaling.frames
        (tensor([3.]), tensor(3))
    """

    mean: Tensor
    deviation: Tensor
    frames: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = _check.whole("Standardization", "channels", channels)
        self.register_buffer("mean", torch.zeros(self.channels))
        self.register_buffer("deviation", torch.ones(self.channels))
        self.register_buffer("frames", torch.zeros((), dtype=torch.int64))  # number of frames that they come from
        self.known = False  # frames > 0, without a GPU synchronisation
        self.watches = False

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Standardised frames (..., C). lengths: (B,), the number of real steps of each sequence of x (B, T, C)."""
        if self.watches and not self.known:
            self._learn(x, lengths)
        return (x - self.mean) / self.deviation if self.known else x

    @torch.no_grad()
    def _learn(self, x: Tensor, lengths: Tensor | None) -> None:
        frames = x.detach().cpu().double()
        if lengths is not None:
            frames = frames[torch.arange(x.shape[1]) < lengths.cpu()[:, None]]
        frames = frames.reshape(-1, self.channels)
        if not len(frames) or not frames.isfinite().all():
            return  # the next module reports the error
        mean, deviation = frames.mean(0), frames.std(0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > CONSTANT * mean.abs(), deviation, 1))
        self.frames.fill_(len(frames))
        self.known = True

    def _load_from_state_dict(self, *given: Any, **named: Any) -> None:
        super()._load_from_state_dict(*given, **named)
        if not self.frames.is_meta:
            self.known = bool(self.frames > 0)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"{self.channels}"


@contextmanager
def watching(parts: Iterable[Standardization]) -> Iterator[None]:
    """Set missing means and deviations from the next frames that pass through the modules."""
    parts = list(parts)
    for part in parts:
        part.watches = True
    try:
        yield
    finally:
        for part in parts:
            part.watches = False
