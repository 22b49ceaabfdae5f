"""Dataset: what a reader returns."""

from dataclasses import dataclass

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch


@dataclass(frozen=True)
class Dataset:
    """Sequences with, where the file has them, their labels and the group that each came from.

    sequences: the Batch, N long.
    labels: (N,) int64 indices into classes, or float64 targets of a regression set; None without labels.
    classes: the names of the classes, in the order of the file's header; empty for a regression set.
    groups: (N,) int64, the subject or speaker of each sequence; None where the file does not say.

    The parts agree: labels or groups of another size or type are refused, and so are labels outside of the classes.

    Example:
        >>> import torch
        >>> data = Dataset(Batch(torch.zeros(2, 3, 1)), torch.tensor([0, 1]), ("walk", "run"))
        >>> data.classes[data.labels[1]]
        'run'
    """

    sequences: Batch
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sequences, Batch):
            raise TypeError(f"Dataset: expected sequences to be a Batch, got {type(self.sequences).__name__}")
        _check_vector("labels", self.labels, len(self), torch.int64, torch.float64)
        _check_vector("groups", self.groups, len(self), torch.int64)
        if len(set(self.classes)) != len(self.classes):
            _check.refuse("Dataset", "two classes have the same name")
        if self.labels is not None:
            _check_labels(self.labels, len(self.classes))

    def __len__(self) -> int:
        return len(self.sequences)


def _check_vector(name: str, values: Tensor | None, count: int, *dtypes: torch.dtype) -> None:
    if values is None:
        return
    if not isinstance(values, Tensor) or values.dtype not in dtypes:
        expected = " or ".join(str(dtype) for dtype in dtypes)
        got = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"Dataset: expected {name} of type {expected}, got {got}")
    if values.shape != (count,):
        _check.refuse("Dataset", f"expected {name} of shape ({count},), got {tuple(values.shape)}")


def _check_labels(labels: Tensor, classes: int) -> None:
    if labels.is_floating_point():
        if classes:
            _check.refuse("Dataset", "classes need int64 labels; these are float64 targets")
        wrong, rule = ~labels.isfinite(), "targets must be finite"
    elif classes:
        wrong, rule = (labels < 0) | (labels >= classes), f"but there are {classes} classes, counted from 0"
    else:
        wrong, rule = labels < 0, "labels count from 0"
    if wrong.any():
        item = int(wrong.nonzero()[0])
        _check.refuse("Dataset", f"labels[{item}] is {labels[item].item()}, {rule}")
