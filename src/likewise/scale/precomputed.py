"""Precomputed: distances that are looked up in a matrix."""

from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise.distances.distance import Distance


class Precomputed(Distance):
    """Distances looked up in a matrix: items are positions, x those of rows and y those of columns.

    D: a TiledMatrix, an array or a tensor (N, M).

    It lets everything that takes a distance use a matrix: ``Index``, ``evaluate``, ``KMedoids``, ``Hierarchical``.

    Example:
        >>> D = torch.tensor([[0.0, 2.0, 9.0], [2.0, 0.0, 8.0], [9.0, 8.0, 0.0]])
        >>> items = torch.tensor([[[0.0]], [[2.0]]])  # items 0 and 2
        >>> Precomputed(D).matrix(items)
        tensor([[0., 9.],
                [9., 0.]])
    """

    def __init__(self, D: Any) -> None:
        super().__init__()
        if len(getattr(D, "shape", ())) != 2 or not hasattr(D, "__getitem__"):
            raise TypeError(f"Precomputed: expected D to be a matrix (N, M), got {type(D).__name__}")
        self.D = D
        square = D.shape[0] == D.shape[1]
        known = getattr(D, "symmetric", None)
        if known is None:
            known = square and bool((torch.as_tensor(D) == torch.as_tensor(D).T).all())
        self.symmetric = bool(known)

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) between rows and columns of the matrix."""
        rows = self._places("x", x, self.D.shape[0])
        columns = self._places("y", x if y is None else y, self.D.shape[1])
        if hasattr(self.D, "block"):
            return torch.from_numpy(self.D.block(rows.numpy(), columns.numpy()))
        return torch.as_tensor(self.D)[rows[:, None], columns]

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of pairs of positions."""
        rows, columns = self._places("x", x, self.D.shape[0]), self._places("y", y, self.D.shape[1])
        if not hasattr(self.D, "block"):
            return torch.as_tensor(self.D)[rows, columns]
        found = [self.D[int(i), int(j)] for i, j in zip(rows, columns, strict=True)]
        return torch.tensor(found, dtype=torch.float32)

    def _places(self, name: str, items: Tensor, size: int) -> Tensor:
        if items.shape[1:] != (1, 1):
            _check.refuse(self.name, f"expected {name} to be positions (B, 1, 1), got {tuple(items.shape)}")
        places = items.flatten().cpu()
        if not ((places == places.round()) & (places >= 0) & (places < size)).all():
            _check.refuse(self.name, f"expected {name} to hold whole numbers from 0 to {size - 1}")
        return places.long()

    def config(self) -> dict[str, object]:
        """Refuse: a file of settings cannot hold a matrix."""
        raise TypeError("Precomputed: a file cannot hold its matrix; save the items, and keep the matrix beside them")

    def extra_repr(self) -> str:
        """The shape."""
        return f"{self.D.shape[0]} x {self.D.shape[1]}"
