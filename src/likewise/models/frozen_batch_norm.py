"""Batch normalisation that goes by what it has learned, in training too."""

from typing import TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

Network = TypeVar("Network", bound=nn.Module)


def freeze_batch_norm(module: Network) -> Network:
    """Let every batch normalisation inside a module use its running mean and variance for good, and return the module.

    ``module.train()`` and ``fit`` no longer change that, nor do batches change the statistics; weights and biases are
    still learned. For pretrained networks and small batches. A file does not keep it: freeze again after
    ``Metric.load`` to train on.

    Example:
        >>> import torch
        >>> network = freeze_batch_norm(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))).train()
        >>> _ = network(torch.randn(4, 2))
        >>> network[1].running_mean
        tensor([0., 0., 0.])
    """
    for part in module.modules():
        if isinstance(part, _BatchNorm) and _stay not in part._forward_pre_hooks.values():
            part.register_forward_pre_hook(_stay)
    return module


def _stay(module: nn.Module, given: object) -> None:
    module.training = False
