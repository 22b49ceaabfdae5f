"""A second device without one: its tensors hold numbers on the CPU, and refuse to meet the CPU's own, as a GPU's do.

It is called "meta", since PyTorch does not differentiate on devices with other names.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten, AWAY = torch.ops.aten, torch.device("meta")
# Copies between devices, and what a GPU takes from the CPU as well: the indices of its tensors, lengths to pack by.
BRIDGES = {
    aten._to_copy.default, aten.copy_.default, aten.index.Tensor, aten.index_put_.default, aten.index_put.default,
    aten._index_put_impl_.default, aten._pack_padded_sequence.default,
}  # fmt: skip


class Elsewhere(torch.Tensor):
    """A tensor of the second device."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=AWAY,
        )

    def __init__(self, held):
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


@contextmanager
def second_device():
    """While this lasts, device="meta" is the second device."""
    with Operators(), Literals():
        yield


class Literals(TorchFunctionMode):
    """torch.tensor([...], device="meta") is never dispatched as an operator."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.tensor and str(kwargs.get("device")) == "meta":
            return torch.tensor(*args, **{**kwargs, "device": "cpu"}).to("meta")
        return function(*args, **kwargs)


class Operators(TorchDispatchMode):
    """Every operator, also those that make tensors."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


def run(function, args, kwargs):
    """Run an operator where its tensors are; refuse what a GPU would."""
    away, home = [], []

    def sort(each):
        (away if isinstance(each, Elsewhere) else home).append(each)
        return each.held if isinstance(each, Elsewhere) else each

    asked = kwargs.get("device")
    at_home = {} if asked is None else {"device": torch.device("cpu")}
    args, kwargs = mapped(sort, args), {name: mapped(sort, value) for name, value in kwargs.items()}
    goes = bool(away) if asked is None else torch.device(asked).type == "meta"
    if function is aten.copy_.default:
        goes = any(args[0] is each.held for each in away)
    ours = function.namespace == "likewise"  # takes lengths from the CPU, and nothing else
    shapes = [tuple(each.shape) for each in home if each.ndim > 0 and not (ours and each.dtype == torch.int64)]
    if away and shapes and function not in BRIDGES:
        raise RuntimeError(f"{function}: tensors of two devices; those on the CPU have shapes {shapes}")
    changes = function._schema.is_mutable and any(args[0] is each for each in home)
    if away and changes and function not in BRIDGES:
        raise RuntimeError(f"{function}: a tensor on the CPU cannot take what is not")
    found = function(*args, **(kwargs | at_home))
    if not goes:
        return found
    known = {id(each.held): each for each in away}  # what was changed in place stays the same tensor

    def place(each):
        return known[id(each)] if id(each) in known else Elsewhere(each)

    if function is aten._pack_padded_sequence.default:
        return place(found[0]), found[1]  # how many sequences there are at each step stays on the CPU
    return mapped(place, found)


def mapped(function, value):
    """The value with a function of each tensor in it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    return type(value)(mapped(function, each) for each in value) if isinstance(value, (list, tuple)) else value
