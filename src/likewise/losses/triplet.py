"""The triplet loss and the ways to choose its triplets."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from likewise import _check
from likewise.losses.loss import Loss
from likewise.losses.pairs import Pairs


@dataclass(frozen=True)
class Triplets:
    """Triplets of an anchor, one of P positives and one of Q negatives.

    positive: (N, P, 1), distances to positives.
    negative: (N, 1, Q), distances to negatives.
    keep: (N, P, Q) bool, which triplets count.

    Example:
        >>> import torch
        >>> pairs = Pairs.of("loss", torch.tensor([[0.1, 0.8, 0.5]]), [0], [0, 0, 1])
        >>> all_triplets(pairs, margin=0.2).keep.sum().item()
        2
    """

    positive: Tensor
    negative: Tensor
    keep: Tensor


def all_triplets(pairs: Pairs, margin: float) -> Triplets:
    """Combine every positive with every negative: O(N M^2) memory.

    Example:
        >>> import torch
        >>> all_triplets(Pairs.of("loss", torch.tensor([[0.1, 0.8, 0.5]]), [0], [0, 0, 1]), margin=0.2).keep[0].int()
        tensor([[0, 0, 1],
                [0, 0, 1],
                [0, 0, 0]], dtype=torch.int32)
    """
    keep = pairs.positives[:, :, None] & pairs.negatives[:, None, :]
    return Triplets(pairs.distances[:, :, None], pairs.distances[:, None, :], keep)


def hard_triplets(pairs: Pairs, margin: float) -> Triplets:
    """Combine the farthest positive with the nearest negative: one triplet for each anchor (Hermans et al., 2017).

    Example:
        >>> import torch
        >>> hard = hard_triplets(Pairs.of("loss", torch.tensor([[0.1, 0.8, 0.5]]), [0], [0, 0, 1]), margin=0.2)
        >>> hard.positive.item(), hard.negative.item()
        (0.800..., 0.5)
    """
    positive, negative = pairs.farthest_positive(), pairs.nearest_negative()
    return Triplets(positive[:, None, None], negative[:, None, None], pairs.complete[:, None, None])


def semi_hard_triplets(pairs: Pairs, margin: float) -> Triplets:
    """Keep negatives farther than the positive, but by less than the margin (Schroff et al., 2015): O(N M^2) memory.

    Example:
        >>> import torch
        >>> pairs = Pairs.of("loss", torch.tensor([[0.1, 0.2, 0.7]]), [0], [0, 1, 1])
        >>> semi_hard_triplets(pairs, margin=0.3).keep.nonzero().tolist()  # the last negative is far enough
        [[0, 0, 1]]
    """
    every = all_triplets(pairs, margin)
    gap = every.negative - every.positive  # (N, M, M)
    return Triplets(every.positive, every.negative, every.keep & (gap > 0) & (gap < margin))


class Triplet(Loss):
    """A positive should be closer than a negative by a margin: mean over triplets of max(0, p - n + margin).

    mining: chooses the triplets that count: ``all_triplets``, ``hard_triplets``, ``semi_hard_triplets``, or your own
        function of (pairs, margin) that returns ``Triplets``.

    An anchor's loss is the mean over its chosen triplets, including those that are satisfied already, or 0 if there are
    none.
    Reference: Schroff, Kalenichenko & Philbin (2015), arXiv:1503.03832; Hermans et al. (2017), arXiv:1703.07737.

    Example:
        >>> import torch
        >>> D = torch.tensor([[0.1, 0.8, 0.5, 2.0]])
        >>> Triplet(mining=hard_triplets)(D, [0], [0, 0, 1, 1])
        tensor(0.5000)
    """

    def __init__(
        self,
        margin: float = 0.2,
        *,
        mining: Callable[[Pairs, float], Triplets] = all_triplets,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.margin = _check.number(self.name, "margin", margin)
        if not callable(mining):
            raise TypeError(f"{self.name}: expected mining to be a function such as hard_triplets, got {mining!r}")
        self.mining = mining

    def per_anchor(self, pairs: Pairs) -> Tensor:
        """The losses (N,) of the anchors."""
        triplets = self.mining(pairs, self.margin)
        hinge = (triplets.positive - triplets.negative + self.margin).relu()  # (N, P, Q)
        count = triplets.keep.sum((1, 2)).clamp(min=1)
        return hinge.masked_fill(~triplets.keep, 0).sum((1, 2)) / count
