"""Operands: the items and the distance of a computation, as arrays that every process of a machine can share."""

import copy
import hashlib
import json
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise._labels import is_map_style
from likewise._modes import evaluating
from likewise.data.batch import Batch, as_sequences
from likewise.distances.distance import Distance
from likewise.models.config import describe
from likewise.models.metric import as_items, take, tensors_of
from likewise.ops.ground import zero_padding

Items = Batch | Tensor


@dataclass(frozen=True)
class Operand:
    """Sequences or vectors as arrays, which Ray maps into memory; it copies everything else.

    Example:
        >>> Operand.of(Batch.from_list([[1.0, 2.0], [3.0]])).part(slice(1, 2)).lengths
        tensor([1])
    """

    values: np.ndarray
    lengths: np.ndarray | None

    @classmethod
    def of(cls, items: Items) -> "Operand":
        """Items on the CPU, detached; NumPy has no bfloat16, which becomes float32."""
        if items.dtype == torch.bfloat16:
            items = items.to(torch.float32)
        if isinstance(items, Tensor):
            return cls(items.detach().cpu().contiguous().numpy(), None)
        return cls(items.values.detach().cpu().contiguous().numpy(), items.lengths.cpu().numpy())

    def __len__(self) -> int:
        return len(self.values)

    @property
    def items(self) -> Items:
        """The items, which share memory with the arrays; they are only read."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            values = torch.from_numpy(self.values)
            return values if self.lengths is None else Batch(values, torch.from_numpy(self.lengths))

    def part(self, rows: slice | Tensor) -> Items:
        """Some of the items; a Batch is trimmed to the longest of them."""
        return take(self.items, rows)


@dataclass(frozen=True)
class Operands:
    """The items to compare, and the distance; y is None for x against itself.

    distance: between encoded items. name: the distance as the caller gave it, for people.
    inputs: a hash of the distance and of the items as they were given.
    """

    x: Operand
    y: Operand | None
    distance: Distance
    name: str
    inputs: str
    _moved: dict[str, Distance] = field(default_factory=dict, compare=False, repr=False)

    @property
    def symmetric(self) -> bool:
        """Whether half of the matrix is enough."""
        return self.y is None and self.distance.symmetric

    @property
    def shape(self) -> tuple[int, int]:
        """(N, M) of all distances."""
        return len(self.x), len(self.x if self.y is None else self.y)

    def compare(self, rows: slice | Tensor, columns: slice | Tensor | None, device: str = "cpu") -> Tensor:
        """Distances between some items of x and some of y; columns None compares the rows with themselves."""
        return on_cpu(self.compare_on(device, rows, columns))

    def compare_on(self, device: str, rows: slice | Tensor, columns: slice | Tensor | None) -> Tensor:
        """The distances of ``compare``, on the device that computes them."""
        if device not in self._moved:
            self._moved[device] = self.distance if device == "cpu" else copy.deepcopy(self.distance).to(device)
        distance = self._moved[device]
        other = self.x if self.y is None else self.y
        x = self.x.part(rows).to(device)
        y = None if columns is None else other.part(columns).to(device)
        with torch.no_grad(), evaluating(distance):
            return distance.matrix(x, y)


def on_cpu(D: Tensor) -> Tensor:
    """The tensor in memory of the CPU. From a GPU to pinned memory, so that the next tile waits less for the copy."""
    if not D.is_cuda:
        return D
    return torch.empty(D.shape, dtype=D.dtype, pin_memory=True).copy_(D)


def read_operands(op: str, distance: object, X: object, Y: object = None) -> Operands:
    """Check the arguments of a computation, hash them, and encode the items if the distance is a Metric."""
    if not isinstance(distance, Distance):
        raise TypeError(f"{op}: expected distance to be a Distance or a Metric, got {type(distance).__name__}")
    own = Y is None or Y is X
    x = _read(op, "X", distance, X)
    y = x if own else _read(op, "Y", distance, Y)
    if not len(x) or not len(y):
        _check.refuse(op, f"expected at least one item, got {len(x)} in X and {len(y)} in Y")
    if not own:
        same = type(x) is type(y) and _width(x) == _width(y)
        if not same:
            _check.refuse(op, f"X and Y do not match: {_width(x)} and {_width(y)}")
        if x.dtype != y.dtype:
            raise TypeError(f"{op}: X is {x.dtype} and Y is {y.dtype}; convert one with .to")
    inputs = fingerprint(distance, *((x,) if own else (x, y)))
    name = " ".join(repr(distance).split())
    if callable(getattr(distance, "embed", None)):
        metric: Any = distance
        embed, inner = metric.embed, metric.distance
        first = embed(x)
        found = Operands(Operand.of(first), None if own else Operand.of(embed(y)), _on_cpu(inner), name, inputs)
    else:
        found = Operands(Operand.of(x), None if own else Operand.of(y), _on_cpu(distance), name, inputs)
    found.compare(slice(0, 1), slice(0, 1))  # raise the distance's own errors before anything is written
    return found


def _on_cpu(distance: Distance) -> Distance:
    """A distance that every worker can load: on the CPU, in a copy if it is elsewhere."""
    elsewhere = any(tensor.device.type != "cpu" for tensor in tensors_of(distance).values())
    return copy.deepcopy(distance).cpu() if elsewhere else distance


def _read(op: str, name: str, distance: Distance, value: object) -> Items:
    items = Batch(*as_sequences(op, name, value)) if is_map_style(value) else as_items(op, name, value)
    if isinstance(items, Batch):
        _check.finite(op, name, items.values, items.lengths)
    elif items.is_floating_point() and not items.isfinite().all():
        place = int((~items.isfinite()).flatten(1).any(1).nonzero()[0])
        _check.refuse(op, f"{name}[{place}] holds a number that is not finite")
    return items


def _width(items: Items) -> str:
    return f"{items.channels} channels" if isinstance(items, Batch) else f"items of shape {tuple(items.shape[1:])}"


def fingerprint(distance: Distance, *parts: Items) -> str:
    """A hash of a distance, its weights, and items; padding does not count.

    A function, such as a ground cost of your own, is known by its name only.

    Example:
        >>> from likewise import DTW
        >>> x = Batch(torch.tensor([[[1.0], [2.0]], [[3.0], [9.0]]]), [2, 1])
        >>> y = Batch(torch.tensor([[[1.0], [2.0]], [[3.0], [7.0]]]), [2, 1])
        >>> fingerprint(DTW(), x) == fingerprint(DTW(), y), fingerprint(DTW(), x) == fingerprint(DTW(band=1), x)
        (True, False)
    """
    found = hashlib.sha256()
    try:
        said = json.dumps(describe(distance), sort_keys=True)
    except TypeError:  # a class or a function, which JSON cannot hold
        said = f"{type(distance).__module__}.{distance!r}"
    found.update(said.encode())
    for name, tensor in sorted(tensors_of(distance).items()):
        _update(found, name, tensor)
    for items in parts:
        if isinstance(items, Batch):
            _update(found, "lengths", items.lengths)
            items = zero_padding(items.values, items.lengths)
        _update(found, "values", items)
    return found.hexdigest()


def _update(found: Any, name: str, tensor: Tensor) -> None:
    found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
    raw = tensor.detach().cpu().contiguous().flatten()
    if raw.numel():
        found.update(raw.view(torch.uint8).numpy())
