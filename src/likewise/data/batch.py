"""Batch: sequences of unequal length in one padded tensor."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Self, overload

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

from likewise import _check
from likewise._labels import has_labels, items_of


class Batch:
    """Sequences of unequal length, padded to one tensor.

    values (B, T, C) holds the sequences, time before channels; lengths (B,) is the number of real steps of each.
    Padding may hold anything, NaN included: no result depends on it. Lengths are int64 and stay on the CPU, because
    they control loops rather than arithmetic.

    A batch indexes and slices like a tensor along its first dimension; an integer returns that sequence, (T_i, C).

    Example:
        >>> batch = Batch.from_list([[1.0, 2.0, 3.0], [4.0, 5.0]])
        >>> batch
        Batch(2 sequences, 2..3 steps, 1 channel, torch.float32, cpu)
        >>> batch[1]
        tensor([[4.],
                [5.]])
        >>> batch[:1].lengths
        tensor([3])
    """

    __slots__ = ("lengths", "values")
    __hash__ = None  # type: ignore[assignment]  # compared by value

    def __init__(self, values: Tensor, lengths: Tensor | Sequence[int] | None = None) -> None:
        _check.sequences("Batch", "values", values)
        count, steps, _ = values.shape
        lengths = torch.full((count,), steps) if lengths is None else _whole_numbers(lengths)
        if lengths.shape != (count,):
            _check.refuse("Batch", f"expected lengths of shape ({count},), got {tuple(lengths.shape)}")
        _check.lengths_range("Batch", "lengths", lengths, steps)
        self.values = values
        self.lengths = lengths

    @classmethod
    def from_list(cls, items: Iterable[object]) -> Self:
        """Pad arrays, tensors or nested lists of shape (T_i, C) or (T_i,) to one batch.

        Example:
            >>> Batch.from_list([torch.zeros(5, 3), torch.zeros(2, 3)]).lengths
            tensor([5, 2])
        """
        return cls(*_padded("Batch.from_list", "items", items))

    def to_list(self) -> list[Tensor]:
        """Return the sequences without their padding, each (T_i, C).

        Example:
            >>> [tuple(s.shape) for s in Batch(torch.zeros(2, 4, 1), [4, 3]).to_list()]
            [(4, 1), (3, 1)]
        """
        return list(self)

    @classmethod
    def from_aeon(cls, series: np.ndarray | Sequence[np.ndarray]) -> Self:
        """Convert from aeon's layout: an array (N, C, T), or a list of arrays (C, T_i).

        Example:
            >>> Batch.from_aeon(np.zeros((10, 3, 50)))
            Batch(10 sequences, 50 steps, 3 channels, torch.float64, cpu)
        """
        if isinstance(series, np.ndarray):
            if series.ndim != 3:
                _check.refuse("Batch.from_aeon", f"expected an array of shape (N, C, T), got {series.shape}")
            return cls(_floating("Batch.from_aeon", "series", series).mT.contiguous())
        for i, item in enumerate(series):
            if np.ndim(item) != 2:
                _check.refuse("Batch.from_aeon", f"expected item {i} of shape (C, T), got {np.shape(item)}")
        return cls.from_list([np.asarray(item).T for item in series])

    def to_aeon(self) -> np.ndarray | list[np.ndarray]:
        """Return an array (N, C, T) if all lengths are equal, else a list of arrays (C, T_i), as aeon expects.

        Example:
            >>> Batch(torch.zeros(2, 4, 3)).to_aeon().shape
            (2, 3, 4)
        """
        items = [item.detach().cpu().numpy().T for item in self]
        return np.stack(items) if items and len(set(self.lengths.tolist())) == 1 else items

    @classmethod
    def from_tslearn(cls, series: np.ndarray) -> Self:
        """Convert from tslearn's layout: an array (N, T, C) in which shorter series end in rows of NaN.

        Example:
            >>> Batch.from_tslearn(np.array([[[1.0], [2.0]], [[3.0], [np.nan]]])).lengths
            tensor([2, 1])
        """
        values = _floating("Batch.from_tslearn", "series", series)
        if values.ndim != 3:
            _check.refuse("Batch.from_tslearn", f"expected an array of shape (N, T, C), got {tuple(values.shape)}")
        real = ~values.isnan().all(dim=2)  # (N, T)
        steps = torch.arange(1, values.shape[1] + 1)
        return cls(values, (real * steps).amax(dim=1) if len(values) else None)

    def to_tslearn(self) -> np.ndarray:
        """Return an array (N, T, C) with NaN for padding, as tslearn expects.

        Example:
            >>> Batch(torch.zeros(1, 3, 1), [2]).to_tslearn().ravel()
            array([ 0.,  0., nan], dtype=float32)
        """
        values = self.values.detach().cpu().masked_fill(~self.mask.cpu()[..., None], torch.nan)
        return values.numpy()

    @classmethod
    def from_packed(cls, packed: PackedSequence) -> Self:
        """Convert from a PackedSequence, in its original order.

        Example:
            >>> batch = Batch.from_list([[1.0], [2.0, 3.0]])
            >>> Batch.from_packed(batch.to_packed()) == batch
            True
        """
        values, lengths = pad_packed_sequence(packed, batch_first=True)
        return cls(values, lengths)

    def to_packed(self) -> PackedSequence:
        """Return a PackedSequence, for torch.nn.GRU and similar modules.

        Example:
            >>> Batch(torch.zeros(2, 3, 1), [1, 3]).to_packed().batch_sizes
            tensor([2, 1, 1])
        """
        return pack_padded_sequence(self.values, self.lengths, batch_first=True, enforce_sorted=False)

    @classmethod
    def cat(cls, batches: Iterable["Batch"]) -> Self:
        """Concatenate batches along the first dimension, padding them to the longest.

        Example:
            >>> Batch.cat([Batch(torch.zeros(2, 3, 1)), Batch(torch.zeros(1, 5, 1))])
            Batch(3 sequences, 3..5 steps, 1 channel, torch.float32, cpu)
        """
        parts = list(batches)
        if not parts:
            _check.refuse("Batch.cat", "expected at least one batch")
        for i, part in enumerate(parts):
            if not isinstance(part, Batch):
                raise TypeError(f"Batch.cat: expected batches, got {type(part).__name__} at {i}")
            if part.channels != parts[0].channels:
                _check.refuse(
                    "Batch.cat", f"batch {i} has {part.channels} channels, but batch 0 has {parts[0].channels}"
                )
        steps = max(part.values.shape[1] for part in parts)
        padded = [torch.nn.functional.pad(part.values, (0, 0, 0, steps - part.values.shape[1])) for part in parts]
        return cls(torch.cat(padded), torch.cat([part.lengths for part in parts]))

    def to(self, *args: object, **kwargs: object) -> Self:
        """Move or convert the values as ``Tensor.to`` does; the lengths stay on the CPU.

        Example:
            >>> Batch(torch.zeros(1, 2, 1)).to(torch.float64).dtype
            torch.float64
        """
        values = self.values.to(*args, **kwargs)  # type: ignore[arg-type]
        return self if values is self.values else type(self)(values, self.lengths)

    def pin_memory(self) -> Self:
        """Copy to page-locked memory, for asynchronous transfer to a GPU. DataLoader calls this."""
        return type(self)(self.values.pin_memory(), self.lengths)

    @property
    def mask(self) -> Tensor:
        """(B, T), True for real steps and False for padding, on the values' device."""
        return (torch.arange(self.values.shape[1]) < self.lengths[:, None]).to(self.values.device)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self.values.device

    @property
    def channels(self) -> int:
        """Number of channels, C."""
        return self.values.shape[2]

    def __len__(self) -> int:
        return self.values.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        for values, length in zip(self.values, self.lengths.tolist(), strict=True):
            yield values[:length]

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Tensor | np.ndarray) -> Self: ...
    def __getitem__(self, index: object) -> "Tensor | Batch":
        if not isinstance(index, slice):
            index = _index(index)
            if index.ndim == 0:
                return self.values[index, : self.lengths[index]]
        return type(self)(self.values[index], self.lengths[index])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        if self.values.shape[2] != other.values.shape[2] or not torch.equal(self.lengths, other.lengths):
            return False
        return all(torch.equal(a, b) for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        count, steps, channels = len(self), "0", self.channels
        if count:
            shortest, longest = int(self.lengths.min()), int(self.lengths.max())
            steps = str(longest) if shortest == longest else f"{shortest}..{longest}"
        return (
            f"Batch({count} sequence{'s' * (count != 1)}, {steps} step{'s' * (steps != '1')}, "
            f"{channels} channel{'s' * (channels != 1)}, {self.dtype}, {self.device})"
        )


def as_sequences(op: str, name: str, value: object) -> tuple[Tensor, Tensor | None]:
    """Values (B, T, C) and lengths of a Batch, a tensor or array (B, T, C), a list of sequences, or labelled items.

    Lengths are None if every step is real.
    """
    if isinstance(value, Batch):
        return value.values, value.lengths
    if isinstance(value, np.ndarray):
        value = _floating(op, name, value)
    if isinstance(value, Tensor):
        return _check.sequences(op, name, value), None
    items = items_of(value)
    if items is not value:
        return as_sequences(op, name, items)
    if has_labels(value):  # a map-style dataset
        return _padded(op, name, (value[i][0] for i in range(len(value))))  # type: ignore[index, arg-type]
    if isinstance(value, (list, tuple)):
        return _padded(op, name, value)
    raise TypeError(
        f"{op}: expected {name} to be a Batch, a tensor (B, T, C) or a list of sequences, got {type(value).__name__}"
    )


def _padded(op: str, name: str, items: Iterable[object]) -> tuple[Tensor, Tensor]:
    """Values (B, T, C) and lengths (B,) of sequences of shape (T_i, C) or (T_i,)."""
    tensors = [_sequence(op, f"{name}[{i}]", item) for i, item in enumerate(items)]
    if not tensors:
        return torch.empty(0, 0, 1), torch.empty(0, dtype=torch.int64)
    channels, dtype = tensors[0].shape[1], tensors[0].dtype
    for i, tensor in enumerate(tensors):
        if tensor.shape[1] != channels:
            _check.refuse(op, f"{name}[{i}] has {tensor.shape[1]} channels, but {name}[0] has {channels}")
        dtype = torch.promote_types(dtype, tensor.dtype)
    values = pad_sequence([tensor.to(dtype) for tensor in tensors], batch_first=True)
    return values, torch.tensor([len(tensor) for tensor in tensors])


def _sequence(op: str, name: str, item: object) -> Tensor:
    tensor = _floating(op, name, item)
    if tensor.ndim == 1:
        tensor = tensor[:, None]
    if tensor.ndim != 2:
        _check.refuse(op, f"expected {name} of shape (T, C) or (T,), got {tuple(tensor.shape)}")
    if 0 in tensor.shape:
        _check.refuse(op, f"{name} is empty: its shape is {tuple(tensor.shape)}")
    return tensor


def _floating(op: str, name: str, value: object) -> Tensor:
    """Numbers as a floating-point tensor; shares memory where possible."""
    tensor = _tensor(op, name, value)
    if tensor.is_complex():
        raise TypeError(f"{op}: expected {name} to be real, got {tensor.dtype}")
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def _whole_numbers(lengths: object) -> Tensor:
    """Lengths as an int64 tensor on the CPU; nothing is rounded."""
    tensor = lengths if isinstance(lengths, Tensor) else _tensor("Batch", "lengths", lengths)
    if tensor.numel() and (tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex()):
        raise TypeError(f"Batch: expected lengths to be whole numbers, got {tensor.dtype}")
    return tensor.to("cpu", torch.int64)


def _index(index: object) -> Tensor:
    """One position, positions (K,) or a mask (B,), on the CPU."""
    if isinstance(index, tuple):
        raise TypeError("Batch: index sequences only, with one index; slice steps or channels on .values")
    tensor = _tensor("Batch", "the index", index).cpu()
    if tensor.numel() == 0:
        tensor = tensor.long()
    if tensor.dtype == torch.bool and tensor.ndim == 1:
        return tensor
    # uint8 means a mask to PyTorch and positions to NumPy.
    if tensor.ndim > 1 or tensor.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8):
        shape = tuple(tensor.shape)
        raise TypeError(
            f"Batch: expected an integer, a slice, positions (K,) or a mask (B,), got {tensor.dtype} of shape {shape}"
        )
    return tensor.long()


def _tensor(op: str, name: str, value: object) -> Tensor:
    try:
        return torch.as_tensor(_readable(value) if isinstance(value, np.ndarray) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{op}: {name} is not an array of numbers: {error}") from error


def _readable(array: np.ndarray) -> np.ndarray:
    """Copy arrays that PyTorch does not accept: read-only, with negative strides, or in another byte order."""
    if array.flags.writeable and array.dtype.isnative and min(array.strides, default=0) >= 0:
        return array
    return array.astype(array.dtype.newbyteorder("="), order="C")
