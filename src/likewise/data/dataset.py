"""Dataset: what a reader returns."""

from dataclasses import dataclass

from torch import Tensor

from likewise.data.batch import Batch


@dataclass(frozen=True)
class Dataset:
    """Sequences with, where the file has them, their labels and the group that each came from.

    sequences: the Batch, N long.
    labels: (N,) int64 indices into classes, or float64 targets of a regression set; None without labels.
    classes: the names of the classes, in the order of the file's header; empty for a regression set.
    groups: (N,) int64, the subject or speaker of each sequence; None where the file does not say.

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

    def __len__(self) -> int:
        return len(self.sequences)
