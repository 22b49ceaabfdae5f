"""AlignedPairs: pairs of sequences whose true alignment is known."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.models.metric import Encoded, as_items, take


@dataclass(frozen=True)
class AlignedPairs:
    """Pairs x[b], y[b] with a known true alignment, for training with a path loss.

    x, y: N items each, such as sequences.
    truth: (N, K), the times of y that match the points. points: (N, K) or (K,), times of x; by default x's frames.
    x_times, y_times: (T,) or (N, T), the times of the frames; by default spread evenly from 0 to 1 over each sequence.
    lengths: (N,), the number of real points, by default all.

    Example:
        >>> pairs = AlignedPairs(torch.zeros(5, 4, 2), torch.zeros(5, 6, 2), torch.rand(5, 4).sort().values)
        >>> len(pairs), len(pairs[torch.tensor([0, 3])])
        (5, 2)
    """

    x: Any
    y: Any
    truth: Tensor
    points: Tensor | None = None
    x_times: Tensor | None = None
    y_times: Tensor | None = None
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            object.__setattr__(self, name, as_items("AlignedPairs", name, getattr(self, name)))
        if len(self.x) != len(self.y):
            _check.refuse("AlignedPairs", f"there are {len(self.x)} items in x, but {len(self.y)} in y")
        truth = _check.is_tensor("AlignedPairs", "truth", self.truth)
        if truth.ndim != 2 or len(truth) != len(self.x):
            _check.refuse("AlignedPairs", f"expected truth of shape ({len(self.x)}, K), got {tuple(truth.shape)}")
        if self.points is not None:
            points = _check.is_tensor("AlignedPairs", "points", self.points)
            if points.shape not in (truth.shape, truth.shape[1:]):
                shapes = f"{tuple(truth.shape)} or {tuple(truth.shape[1:])}"
                _check.refuse("AlignedPairs", f"expected points of shape {shapes}, got {tuple(points.shape)}")
        for name in ("x_times", "y_times"):
            times = getattr(self, name)
            if (
                times is not None
                and _check.is_tensor("AlignedPairs", name, times).ndim == 2
                and len(times) != len(self)
            ):
                _check.refuse("AlignedPairs", f"expected {name} of shape (T,) or ({len(self)}, T)")
        _check.lengths_shape("AlignedPairs", "lengths", self.lengths, len(self))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Any) -> "AlignedPairs":
        """The pairs at an index: a slice or positions."""
        index = index if isinstance(index, slice) else torch.as_tensor(index)
        kept = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in kept.items():
            if isinstance(value, Batch) or name in ("x", "y"):
                kept[name] = take(value, index)
            elif isinstance(value, Tensor) and (value.ndim == 2 or name == "lengths"):
                kept[name] = value[index if isinstance(index, slice) else index.to(value.device)]
        return AlignedPairs(**kept)

    def encoded(self, x: Encoded, y: Encoded) -> "AlignedPairs":
        """The same pairs with features in place of the items, all on the features' device."""
        device = x.device
        rest = {
            item.name: value.to(device) if isinstance(value, Tensor) and item.name != "lengths" else value
            for item in fields(self)[2:]
            for value in [getattr(self, item.name)]
        }
        return AlignedPairs(x, y, **rest)
