"""Averaging: a moving average of the weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from likewise.models.metric import put_tensors, tensors_of


class MovingAverage:
    """mean = share * mean + (1 - share) * weight after every step, starting from the initial weights.

    Floating-point buffers, such as those of a batch normalisation, are averaged too; others are copied.

    Example:
        >>> line = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.zeros_(line.weight)
        >>> average = MovingAverage(line, 0.75)
        >>> _ = nn.init.ones_(line.weight)
        >>> average.update()
        >>> average.tensors["weight"]
        tensor([[0.2500]])
    """

    def __init__(self, module: nn.Module, share: float) -> None:
        self.module = module
        self.share = share
        self.tensors = {name: tensor.detach().clone() for name, tensor in tensors_of(module).items()}

    @torch.no_grad()
    def update(self) -> None:
        """Update the average with the weights after a step."""
        for name, tensor in tensors_of(self.module).items():
            mean = self.tensors[name]
            if mean.is_floating_point():
                mean.lerp_(tensor, 1 - self.share)
            else:
                mean.copy_(tensor)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Resume from the average of an earlier run."""
        for name, mean in self.tensors.items():
            mean.copy_(tensors[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average into the module for the duration of the block."""
        own = {name: tensor.detach().clone() for name, tensor in tensors_of(self.module).items()}
        put_tensors(self.module, self.tensors)
        try:
            yield
        finally:
            put_tensors(self.module, own)
