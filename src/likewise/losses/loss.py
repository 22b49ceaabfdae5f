"""Loss: the base class of losses of distances."""

from torch import Tensor, nn

from likewise import _check
from likewise.losses.pairs import Pairs


class Loss(nn.Module):
    """A loss of distances: ``loss(D, row_labels, col_labels=None)`` is a scalar. Smaller distances are closer.

    D is (N, M): rows are anchors, columns are the items, proxies or prototypes that they are compared with. Without
    col_labels, D is square, and the diagonal is left out. With col_labels, every cell is a pair. D need not be
    symmetric. Labels are integers: a tensor, a sequence or an array.

    reduction: "sum" adds the losses of the anchors, "mean" divides that by N, the number of rows, including rows
        without pairs.

    Half precision is computed and returned in float32. Without useful pairs (a batch of one class, no two items of a
    class, an empty matrix), the loss is 0 and can be differentiated, unless stated otherwise. Subclasses define
    ``per_anchor``; ``repr`` shows their public attributes.

    Example:
        >>> import torch
        >>> from likewise.losses.pairs import sum_of
        >>> class Attraction(Loss):
        ...     def per_anchor(self, pairs):
        ...         return sum_of(pairs.distances, pairs.positives)
        >>> Attraction()(torch.tensor([[0.0, 3.0], [1.0, 0.0]]), [7, 7])
        tensor(2.)
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = read_reduction(self.name, reduction)

    @property
    def name(self) -> str:
        """The name of this loss in errors."""
        return type(self).__name__

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        raise NotImplementedError(f"{self.name}.per_anchor")

    def forward(self, D: Tensor, row_labels: object, col_labels: object | None = None) -> Tensor:
        """The loss, a scalar, of distances D (N, M) between items with row_labels (N,) and col_labels (M,)."""
        pairs = Pairs.of(self.name, D, row_labels, col_labels)
        if pairs.distances.numel() == 0:
            return pairs.distances.sum()
        losses = self.per_anchor(pairs)  # (N,)
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return describe_settings(self)


def read_reduction(op: str, reduction: str) -> str:
    """Return ``reduction`` if it is "mean" or "sum"."""
    if reduction not in ("mean", "sum"):
        _check.refuse(op, f"expected reduction to be 'mean' or 'sum', got {reduction!r}")
    return reduction


def describe_settings(loss: nn.Module) -> str:
    """The public attributes of a loss, for ``extra_repr``; functions are shown by name."""
    settings = {name: value for name, value in vars(loss).items() if name[0] != "_" and name != "training"}
    return ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in settings.items())
