"""Batch normalisation over all processes: the statistics are those of the whole batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.training.ranks import Ranks


@contextmanager
def together(module: nn.Module, ranks: Ranks) -> Iterator[None]:
    """Within the block, batch normalisation in training mode uses the mean and variance of the whole batch.

    Like torch.nn.SyncBatchNorm, but it works on the CPU too and does not replace the modules, so it leaves no trace in
    a saved metric. Each layer takes two sums over the processes in each direction.
    """
    found = [part for part in module.modules() if isinstance(part, _BatchNorm)] if ranks.size > 1 else []
    for part in found:
        part.forward = partial(_forward, part)  # type: ignore[assignment]
    try:
        yield
    finally:
        for part in found:
            del part.forward  # restores the method of the class


def _forward(module: _BatchNorm, x: Tensor) -> Tensor:
    if not module.training and module.running_mean is not None:
        return type(module).forward(module, x)
    module._check_input_dim(x)
    over = [axis for axis in range(x.ndim) if axis != 1]
    shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
    wide = x if x.dtype == torch.float64 else x.float()
    own = wide.new_tensor([x.numel() / max(1, x.shape[1])])
    count = _Sum.apply(own)
    mean = _Sum.apply(wide.sum(over)) / count
    centred = wide - mean.view(shape)
    variance = _Sum.apply(centred.square().sum(over)) / count
    if module.training and module.running_mean is not None and module.running_var is not None:
        _update(module, mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
    y = centred * (variance + module.eps).rsqrt().view(shape)
    if module.weight is not None:
        y = y * module.weight.view(shape)
    if module.bias is not None:
        y = y + module.bias.view(shape)
    return y.to(x.dtype)


def _update(module: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    assert module.num_batches_tracked is not None
    module.num_batches_tracked.add_(1)
    share = 1.0 / float(module.num_batches_tracked) if module.momentum is None else module.momentum
    for held, new in ((module.running_mean, mean), (module.running_var, variance)):
        assert held is not None
        held.lerp_(new.to(held.dtype), share)


class _Sum(torch.autograd.Function):
    """The sum over the processes. Derivatives are summed as well, since every process uses the result."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        total = own.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        total = grad.contiguous().clone()
        distributed.all_reduce(total)
        return total
