"""Argument checks. Errors say what was expected, what was given, and how to fix it.

Each check names the operation and the argument. Most checks use only shapes and types. Checks of values (lengths,
finiteness) are skipped under ``torch.compile``, which cannot trace data-dependent branches.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor


def refuse(op: str, problem: str) -> NoReturn:
    """Raise a ``ValueError`` that begins with the name of the operation."""
    raise ValueError(f"{op}: {problem}")


def is_tensor(op: str, name: str, value: object) -> Tensor:
    """Return ``value`` if it is a floating-point tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{op}: expected {name} to be a torch.Tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        raise TypeError(
            f"{op}: expected {name} to be floating point, got {value.dtype}; convert it with {name}.float()"
        )
    return value


def sequences(op: str, name: str, value: object) -> Tensor:
    """Return ``value`` if it is a floating-point tensor of shape (B, T, C)."""
    tensor = is_tensor(op, name, value)
    if tensor.ndim != 3:
        hint = ""
        if tensor.ndim == 2:
            hint = f"; add a channel with {name}[..., None]"
        elif tensor.ndim == 1:
            hint = f"; add a batch and a channel with {name}[None, :, None]"
        refuse(op, f"expected {name} of shape (B, T, C), got {tuple(tensor.shape)}{hint}")
    count, steps, channels = tensor.shape
    if count > 0 and (steps == 0 or channels == 0):
        refuse(op, f"expected {name} with at least one step and one channel, got {tuple(tensor.shape)}")
    return tensor


def costs(op: str, cost: object, x_lengths: Tensor | None, y_lengths: Tensor | None) -> None:
    """Check that ``cost`` is a floating-point tensor of shape (B, Tx, Ty), and its lengths."""
    tensor = is_tensor(op, "cost", cost)
    if tensor.ndim != 3:
        hint = "; add a batch with cost[None]" if tensor.ndim == 2 else ""
        refuse(op, f"expected cost of shape (B, Tx, Ty), got {tuple(tensor.shape)}{hint}")
    if tensor.shape[0] > 0 and (tensor.shape[1] == 0 or tensor.shape[2] == 0):
        refuse(op, f"expected cost with at least one row and one column, got {tuple(tensor.shape)}")
    lengths_shape(op, "x_lengths", x_lengths, tensor.shape[0])
    lengths_shape(op, "y_lengths", y_lengths, tensor.shape[0])


def pair(op: str, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None, *, paired: bool) -> None:
    """Check that x and y are sequences that agree in channels, type and device and, if paired, in number."""
    sequences(op, "x", x)
    lengths_shape(op, "x_lengths", x_lengths, x.shape[0])
    if y is x and y_lengths is x_lengths:
        return
    sequences(op, "y", y)
    lengths_shape(op, "y_lengths", y_lengths, y.shape[0])
    agree(op, x, y, paired=paired)


def agree(op: str, x: Tensor, y: Tensor, *, paired: bool) -> None:
    """Check that x (B, Tx, C) and y (B, Ty, C) agree in channels, type and device and, if paired, in number."""
    (rows, _, x_channels), (columns, _, y_channels) = x.shape, y.shape
    if paired and rows != columns:
        refuse(op, f"x has {rows} sequences and y has {columns}; for all pairs, use .matrix")
    if x_channels != y_channels:
        refuse(op, f"x has {x_channels} channels and y has {y_channels}")
    if x.dtype != y.dtype:
        raise TypeError(f"{op}: x is {x.dtype} and y is {y.dtype}; convert one with .to")
    if x.device != y.device:
        refuse(op, f"x is on {x.device} and y is on {y.device}; move one with .to")


def lengths_shape(op: str, name: str, lengths: Tensor | None, count: int) -> None:
    """Check the type and the shape of a vector of lengths."""
    if lengths is None:
        return
    if not isinstance(lengths, Tensor) or lengths.dtype != torch.int64:
        kind = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
        raise TypeError(f"{op}: expected {name} to be an int64 tensor, got {kind}")
    if lengths.shape != (count,):
        refuse(op, f"expected {name} of shape ({count},), got {tuple(lengths.shape)}")


def numbers_hidden() -> bool:
    """Whether values cannot be read: in code that ``torch.compile`` traces or a CUDA graph records."""
    return torch.compiler.is_compiling() or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def mixed_precision(x: Tensor) -> bool:
    """Whether autocast is active for products of x; not every device supports it."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """A context in which autocast does not lower the precision of products of x."""
    return torch.autocast(x.device.type, enabled=False) if mixed_precision(x) else nullcontext()


def lengths_range(op: str, name: str, lengths: Tensor, steps: int) -> None:
    """Check that every length is in 1..steps; skipped where values cannot be read."""
    if lengths.is_cuda and numbers_hidden():
        return
    wrong = (lengths < 1) | (lengths > steps)
    if wrong.any():
        item = int(wrong.nonzero()[0])
        refuse(op, f"{name}[{item}] is {int(lengths[item])}; lengths must be between 1 and {steps}")


def all_finite(x: Tensor) -> bool:
    """Whether all numbers are finite. If their sum is, they are; on a GPU that takes a third of the launches."""
    x = x.detach()
    total = x.sum(dtype=torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x.sum()
    return math.isfinite(total.item()) or bool(x.isfinite().all())  # only the sum may overflow


def finite(op: str, name: str, x: Tensor, lengths: Tensor | None) -> None:
    """Raise an error for NaN and infinities in sequences (B, T, C); skipped where values cannot be read."""
    if numbers_hidden() or all_finite(x):
        return
    wrong = ~x.isfinite()
    if lengths is not None:  # padding may hold anything
        wrong &= (torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None])[..., None]
    if wrong.any():
        item, step, channel = wrong.nonzero()[0].tolist()
        refuse(op, f"{name}[{item}] holds {x[item, step, channel].item()} at step {step}, channel {channel}")


def finite_values(op: str, values: Tensor) -> Tensor:
    """Return distances if all are finite; with finite input, only an overflow can make one infinite or NaN.

    In code that ``torch.compile`` generates, the check is an operator of the graph on the CPU, and is skipped on a GPU.
    In CUDA graphs it is skipped too.
    """
    if numbers_hidden():
        return _finite_values(values, op) if values.is_cpu and torch.compiler.is_compiling() else values
    if not math.isfinite(values.sum().item()):  # only the sum may overflow
        wrong = (~values.isfinite()).nonzero().tolist()
        if wrong:
            wider = "float64" if values.dtype == torch.float32 else "float32"
            fix = "scale the sequences down" + f", or use {wider}" * (values.dtype != torch.float64)
            refuse(op, f"the value of pair {wrong[0]} is not finite: the costs overflow {values.dtype}; {fix}")
    return values


@torch.library.custom_op("likewise::finite_values", mutates_args=())
def _finite_values(values: Tensor, op: str) -> Tensor:
    return finite_values(op, values).clone()  # an operator may not return its argument


_finite_values.register_fake(lambda values, op: torch.empty_like(values))
_finite_values.register_autograd(lambda context, gradient: (gradient, None))


def fits(op: str, values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return finite distances in another type; raise an error for those that are too large for it."""
    return values if values.dtype == dtype else finite_values(op, values.to(dtype))


def positive(op: str, name: str, value: float) -> float:
    """Return ``value`` as a float if it is a positive finite number."""
    value = number(op, name, value)
    if not 0 < value < float("inf"):
        refuse(op, f"{name} must be positive and finite, got {value}")
    return float(value)


def not_negative(op: str, name: str, value: object) -> float:
    """Return ``value`` as a float if it is zero or a positive finite number."""
    found = number(op, name, value)
    if not 0 <= found < float("inf"):
        refuse(op, f"{name} must be 0 or more, got {value}")
    return float(found)


def number(op: str, name: str, value: object) -> int | float:
    """Return ``value`` as a Python int or float. NumPy's numbers are accepted, booleans are not."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    raise TypeError(f"{op}: expected {name} to be a number, got {type(value).__name__}")


def whole(op: str, name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``least`` and at most ``most``, if given."""
    count = value if type(value) is int else number(op, name, value)
    if not isinstance(count, int) or count < least or (most is not None and count > most):
        limit = f"of {least} or more" if most is None else f"from {least} to {most}"
        refuse(op, f"{name} must be a whole number {limit}, got {value!r}")
    return count


def fraction(op: str, name: str, value: object) -> float:
    """Return ``value`` as a float if it is at least 0 and less than 1."""
    share = number(op, name, value)
    if not 0 <= share < 1:
        refuse(op, f"{name} must be at least 0 and less than 1, got {value!r}")
    return float(share)
