"""A bridge to the losses and miners of pytorch-metric-learning, which is imported only when the bridge is used."""

import copy
import functools
from typing import Any

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.losses.pairs import Pairs
from likewise.losses.vector_loss import VectorLoss

_COSINE = "needs cosine similarities of vectors"
_VECTORS = "needs the vectors themselves"
_SPHERE = "needs Euclidean distances of vectors of length 1"
# Classes that cannot work with a matrix of distances, and the reasons. Their subclasses raise an error too.
_REFUSED = {
    "AngularLoss": _VECTORS,
    "CircleLoss": _COSINE,
    "DynamicSoftMarginLoss": _SPHERE,
    "FastAPLoss": _SPHERE,
    "HistogramLoss": "needs similarities between -1 and 1",
    "InstanceLoss": _COSINE,
    "ManifoldLoss": _VECTORS,
    "P2SGradLoss": _VECTORS,
    "PNPLoss": _COSINE,
    "SignalToNoiseRatioContrastiveLoss": _VECTORS,
    "SmoothAPLoss": _COSINE,
    "ThresholdConsistentMarginLoss": _COSINE,
    "TupletMarginLoss": _COSINE,
    "VICRegLoss": _VECTORS,
    "WeightRegularizerMixin": "compares vectors with its class weights",
    "AngularMiner": _VECTORS,
    "DistanceWeightedMiner": _SPHERE,
    "BaseLossWrapper": "wraps a loss of vectors that it stores or pairs itself; pass the inner loss",
    "MultipleLosses": "combines several losses; convert each of them and add the results",
}


def from_pml(loss: nn.Module, miner: nn.Module | None = None) -> "FromPML":
    """A loss of pytorch-metric-learning, with an optional miner, as ``loss(D, row_labels, col_labels=None)``.

    D replaces the distance of the loss and of the miner: their own ``distance``, with its power and normalisation, has
    no effect. The loss's reducer is used. Without col_labels the diagonal is left out. With col_labels every cell is a
    pair; losses without references (NPairsLoss, RankedListLoss) then raise an error.

    The loss and the miner are copied: pass ``parameters()`` of the result to the optimizer. Losses that need vectors or
    cosine similarities (CircleLoss, AngularLoss, proxy and classification losses, ...) raise an error; use
    ``from_pml_vectors`` for these.

    Example:
        >>> from pytorch_metric_learning.losses import ContrastiveLoss
        >>> loss = from_pml(ContrastiveLoss(pos_margin=0, neg_margin=1))
        >>> loss(torch.tensor([[0.5, 0.8], [0.9, 0.1]]), [0, 1], [0, 1])
        tensor(0.4500)
    """
    from pytorch_metric_learning.losses import BaseMetricLossFunction
    from pytorch_metric_learning.miners import BaseMiner

    _check_kind(loss, "loss", BaseMetricLossFunction)
    if miner is not None:
        _check_kind(miner, "miner", BaseMiner)
    return FromPML(loss, miner)


class FromPML(nn.Module):
    """The result of ``from_pml``."""

    def __init__(self, loss: nn.Module, miner: nn.Module | None) -> None:
        super().__init__()
        self.distance = _precomputed()()
        self.loss, self.miner = copy.deepcopy(loss), copy.deepcopy(miner)
        for module in self.modules():
            if hasattr(module, "distance"):
                module.distance = self.distance

    @property
    def name(self) -> str:
        """The name of this loss in errors."""
        return f"from_pml({type(self.loss).__name__})"

    def forward(self, D: Tensor, row_labels: object, col_labels: object | None = None) -> Tensor:
        """The loss, a scalar, of distances D (N, M) between items with row_labels (N,) and col_labels (M,)."""
        pairs = Pairs.of(self.name, D, row_labels, col_labels)
        D, labels = pairs.distances, pairs.row_labels
        nothing = (D * 0).sum()  # pytorch-metric-learning returns zeros without a gradient
        if D.numel() == 0:
            return nothing
        # The "embeddings" are row and column numbers, with which the distance reads D.
        rows = torch.arange(D.shape[0], device=D.device).to(D.dtype)[:, None]
        columns, column_labels = None, None
        if col_labels is not None:
            columns = torch.arange(D.shape[1], device=D.device).to(D.dtype)[:, None]
            column_labels = pairs.col_labels
        self.distance.matrix = D
        try:
            hard = None if self.miner is None else self.miner(rows, labels, columns, column_labels)
            found = self.loss(rows, labels, hard, columns, column_labels)
        except ValueError as error:
            self._explain(error)
            raise
        finally:
            self.distance.matrix = None
        if not isinstance(found, Tensor) or found.numel() != 1:
            _check.refuse(self.name, "its reducer must give one number")
        found = found.reshape(())
        # Some reducers return the mean of an empty set.
        empty = found.isnan() & ~(pairs.positives.any() & pairs.negatives.any())
        return torch.where(empty, nothing, found + nothing)

    def _explain(self, error: ValueError) -> None:
        """Replace errors of pytorch-metric-learning with clearer ones."""
        if "ref_emb is not supported" in str(error):
            _check.refuse(self.name, "this loss takes no col_labels: pass a square D of items against themselves")
        if "indices_tuple is not supported" in str(error):
            _check.refuse(self.name, "this loss takes no miner")


def from_pml_vectors(loss: nn.Module, miner: nn.Module | None = None) -> VectorLoss:
    """A loss of pytorch-metric-learning, with an optional miner, as ``loss(x, labels)`` of vectors x (N, C).

    For losses that ``from_pml`` does not take: proxy and classification losses, losses of cosines. Their own distance
    is used. Loss and miner are copied: pass ``parameters()`` of the result to the optimizer, as ``fit`` does.

    Example:
        >>> from pytorch_metric_learning.losses import ProxyAnchorLoss
        >>> loss = from_pml_vectors(ProxyAnchorLoss(num_classes=3, embedding_size=8))
        >>> loss(torch.randn(5, 8), [0, 2, 1, 1, 0]).ndim
        0
    """
    from pytorch_metric_learning.losses import BaseMetricLossFunction
    from pytorch_metric_learning.miners import BaseMiner

    for what, module, base in (("loss", loss, BaseMetricLossFunction), ("miner", miner, BaseMiner)):
        if module is not None and not isinstance(module, base):
            got = type(module).__name__
            raise TypeError(f"from_pml_vectors: expected {what} to be a {what} of pytorch-metric-learning, got {got}")
    return FromPMLVectors(loss, miner)


class FromPMLVectors(VectorLoss):
    """The result of ``from_pml_vectors``."""

    def __init__(self, loss: nn.Module, miner: nn.Module | None) -> None:
        super().__init__()
        self.loss, self.miner = copy.deepcopy(loss), copy.deepcopy(miner)

    @property
    def name(self) -> str:
        """The name of this loss in errors."""
        return f"from_pml_vectors({type(self.loss).__name__})"

    def value(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss; if its reducer keeps nothing, a zero that can be differentiated."""
        hard = None if self.miner is None else self.miner(x, labels)
        found = self.loss(x, labels, hard)
        if not isinstance(found, Tensor) or found.numel() != 1:
            _check.refuse(self.name, "its reducer must give one number")
        return found.reshape(()) + (x * 0).sum()


@functools.cache
def _precomputed() -> Any:
    """The class of distances that look up values in a matrix."""
    from pytorch_metric_learning.distances import BaseDistance

    class Precomputed(BaseDistance):
        """Distances between rows and columns of ``matrix``, which are given by number."""

        def __init__(self) -> None:
            super().__init__(normalize_embeddings=False)
            self.matrix: Tensor | None = None

        def compute_mat(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
            """Distances (n, m) between rows query_emb (n, 1) and columns ref_emb (m, 1)."""
            assert self.matrix is not None
            return self.matrix[query_emb[:, 0].long()[:, None], ref_emb[:, 0].long()]

        def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
            """Distances (n,) between rows query_emb (n, 1) and columns ref_emb (n, 1)."""
            assert self.matrix is not None
            return self.matrix[query_emb[:, 0].long(), ref_emb[:, 0].long()]

    return Precomputed


def _check_kind(module: object, what: str, base: type) -> None:
    for kind in type(module).__mro__:
        if kind.__name__ in _REFUSED and kind.__module__.startswith("pytorch_metric_learning"):
            _check.refuse("from_pml", f"{type(module).__name__} {_REFUSED[kind.__name__]}")
    if not isinstance(module, base):
        raise TypeError(
            f"from_pml: expected {what} to be a {what} of pytorch-metric-learning, got {type(module).__name__}"
        )
    if getattr(module, "embedding_regularizer", None) is not None:
        _check.refuse("from_pml", f"the embedding_regularizer of {type(module).__name__} {_VECTORS}")
