"""Batch normalisation with statistics that are fixed in training too."""

from typing import TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

Network = TypeVar("Network", bound=nn.Module)


def freeze_batch_norm(module: Network) -> Network:
    """Fix the running mean and variance of every batch normalisation in a module; return the module.

    They stay fixed under ``module.train()`` and ``fit``; weights and biases are still learned. This is useful for
    pretrained networks and small batches. Freezing is not saved: repeat it after ``Metric.load`` to continue training.

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
