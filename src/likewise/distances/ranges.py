"""Ranges of learned settings: free parameters that are mapped into a range."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Range:
    """Numbers from least to most. ``inside`` maps any number smoothly into the range; ``outside`` is its inverse.

    Between two finite ends the map is a sigmoid, otherwise a softplus, which is the identity far from its end.

    Example:
        >>> share = Range(0.0, 1.0)
        >>> share.inside(torch.tensor([-1e9, 0.0, 1e9]))
        tensor([0.0000, 0.5000, 1.0000])
        >>> share.inside(share.outside(torch.tensor(0.2)))
        tensor(0.2000)
    """

    least: float
    most: float = math.inf

    def inside(self, free: Tensor) -> Tensor:
        """Map each number into the range."""
        if math.isinf(self.most):
            return self.least + torch.nn.functional.softplus(free)
        return self.least + (self.most - self.least) * free.sigmoid()

    def outside(self, value: Tensor) -> Tensor:
        """The inverse of ``inside``; an end of the range is replaced by a value close to it."""
        if math.isinf(self.most):
            above = (value - self.least).clamp(min=1e-8)
            return above + (-(-above).expm1()).log()
        share = (value - self.least) / (self.most - self.least)
        return share.clamp(1e-6, 1 - 1e-6).logit()

    def holds(self, value: Tensor) -> bool:
        """Whether all values are in the range."""
        return bool(((value >= self.least) & (value <= self.most)).all())
