"""Whether the parts of a Dataset agree: asked before one is written, and after one is read."""

import torch

from likewise import _check
from likewise.data.dataset import Dataset


def check_consistency(where: str, dataset: Dataset) -> None:
    """Refuse labels or groups of another size or type, and labels outside of the classes.

    where begins the message.

    Example:
        >>> from likewise.data.batch import Batch
        >>> data = Dataset(Batch(torch.zeros(2, 3, 1)), torch.tensor([0, 2]), ("walk", "run"))
        >>> check_consistency("x.npz", data)
        Traceback (most recent call last):
        ValueError: x.npz: labels[1] is 2, but there are 2 classes, counted from 0
    """
    for name, values, dtypes in (
        ("labels", dataset.labels, (torch.int64, torch.float64)),
        ("groups", dataset.groups, (torch.int64,)),
    ):
        if values is None:
            continue
        if values.dtype not in dtypes:
            expected = " or ".join(str(dtype) for dtype in dtypes)
            raise TypeError(f"{where}: expected {name} of type {expected}, got {values.dtype}")
        if values.shape != (len(dataset),):
            _check.refuse(where, f"expected {name} of shape ({len(dataset)},), got {tuple(values.shape)}")
    if len(set(dataset.classes)) != len(dataset.classes):
        _check.refuse(where, "two classes have the same name")
    labels = dataset.labels
    if labels is None:
        return
    if labels.is_floating_point():
        if dataset.classes:
            _check.refuse(where, "classes need int64 labels; these are float64 targets")
        wrong = ~labels.isfinite()
    else:
        wrong = labels < 0
        if dataset.classes:
            wrong |= labels >= len(dataset.classes)
    if wrong.any():
        item = int(wrong.nonzero()[0])
        rule = "targets must be finite" if labels.is_floating_point() else "labels count from 0"
        if dataset.classes:
            rule = f"but there are {len(dataset.classes)} classes, counted from 0"
        _check.refuse(where, f"labels[{item}] is {labels[item].item()}, {rule}")
