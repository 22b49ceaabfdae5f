"""A device that is not here: tensors with values that say they live elsewhere, and refuse to meet tensors that do not.

What a GPU would refuse is found without one. ``away(x)`` and ``send(module)`` put things there, and within ``Elsewhere``
operations run on the CPU. The device is called "meta"; factories and ``to`` take it as they would take "cuda".
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PLACE = torch.device("meta")
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class Away(Tensor):
    """A tensor that lives elsewhere."""

    held: Tensor

    @staticmethod
    def __new__(cls, held):
        like = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        return Tensor._make_wrapper_subclass(cls, held.shape, device=PLACE, **like)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _call(func, args, kwargs or {})


class Elsewhere(TorchDispatchMode):
    """Within it, factories that are given the place make tensors there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _call(func, args, kwargs or {})


def away(x: Tensor) -> Tensor:
    """The tensor, elsewhere."""
    return Away(x.detach())


def send(module: nn.Module) -> nn.Module:
    """The module, with all that it has elsewhere."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and not isinstance(parameter, Away):
                part._parameters[name] = nn.Parameter(away(parameter), parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, Away):
                part._buffers[name] = away(buffer)
    return module


def _call(func: Any, args: tuple, kwargs: dict) -> Any:
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    there = [x for x in tensors if isinstance(x, Away)]
    here = [x for x in tensors if not isinstance(x, Away) and x.ndim > 0]  # single numbers may come from anywhere
    indexed = func.name().startswith("aten::index") and isinstance(args[0], Away) and not any(map(_floating, here))
    if there and here and func not in MOVES and not indexed:
        raise RuntimeError(f"{func.name()}: expected all tensors to be on the same device")
    device = kwargs.get("device")
    goes = bool(there) if device is None else torch.device(device) == PLACE
    local = {name: torch.device("cpu") if name == "device" and goes else value for name, value in kwargs.items()}
    found = func(*tree_map(_held, args), **tree_map(_held, local))
    if func._schema.is_mutable and isinstance(args[0], Tensor):
        return args[0]
    return tree_map(lambda x: Away(x) if goes and isinstance(x, Tensor) else x, found)


def _held(x: Any) -> Any:
    return x.held if isinstance(x, Away) else x


def _floating(x: Tensor) -> bool:
    return x.is_floating_point()
