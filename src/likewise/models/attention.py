"""Attention of the positions of a feature map to one vector."""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.models.layers import FeatureMap
from likewise.ops.additive_attention import Layer, additive_attention
from likewise.ops.additive_attention.reference import over_real, without_padding


class Attention(nn.Module):
    """The sum of the positions q_j (C,) of a feature map, weighted by their similarity to a vector u (W,).

    The weights are a_j = softmax over j of S(q_j, u), and the summary is p = sum over j of a_j q_j. Subclasses define
    ``scores``. Without sizes, an Attention has only settings; ``sized`` makes a module with weights from it.

    channels, width: C and W.

    Example:
        >>> attention = Additive().sized(channels=3, width=4)
        >>> found = FeatureMap(torch.randn(2, 3, 5), None, (5,))
        >>> summary, weights = attention(found, torch.randn(2, 4))
        >>> summary.shape, weights.shape
        (torch.Size([2, 3]), torch.Size([2, 1, 5]))
    """

    def __init__(self, channels: int | None = None, width: int | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        if (channels is None) != (width is None):
            _check.refuse(name, "give both channels and width, or neither")
        self.channels = None if channels is None else _check.whole(name, "channels", channels)
        self.width = None if width is None else _check.whole(name, "width", width)

    def sized(self, channels: int, width: int) -> Self:
        """A copy with new weights, for maps with this many channels and vectors of this width."""
        raise NotImplementedError(f"{type(self).__name__}.sized")

    def scores(self, positions: Tensor, u: Tensor) -> Tensor:
        """S (B, 1, P), or (B, C, P) if each feature has its own, for positions (B, C, P) and u (B, W)."""
        raise NotImplementedError(f"{type(self).__name__}.scores")

    def weights(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Weights of the same shape: 0 in the padding, summing to 1 over the real positions."""
        return over_real(scores, mask).softmax(-1)

    def forward(self, found: FeatureMap, u: Tensor) -> tuple[Tensor, Tensor]:
        """The summary (B, C), and the weights (B, 1, P) or (B, C, P)."""
        if self.channels is None:
            _check.refuse(type(self).__name__, "has no weights yet; call sized(channels, width)")
        values = without_padding(found.values, found.mask)
        weights = self.weights(self.scores(values, u), found.mask)
        if weights.shape[1] == 1:
            return torch.bmm(weights, values.mT).squeeze(1), weights
        return (values * weights).sum(-1), weights


class Multiplicative(Attention):
    """S(q, u) = (W1 q) . u, or (W1 q) . (W2 u) with ``hidden``, the number of rows of W1 and W2.

    Reference: equations 8 and 9 of Al-Kaabi, Monsefi & Zabihzadeh, A Framework to Enhance Generalization of Deep Metric
    Learning methods; (9) is printed with a plus in place of the inner product.

    Example:
        >>> Multiplicative().sized(3, 4).scores(torch.zeros(2, 3, 5), torch.ones(2, 4)).shape
        torch.Size([2, 1, 5])
    """

    def __init__(self, hidden: int | None = None, *, channels: int | None = None, width: int | None = None) -> None:
        super().__init__(channels, width)
        self.hidden = None if hidden is None else _check.whole(type(self).__name__, "hidden", hidden)
        if self.channels is not None and self.width is not None:
            self.inward = _weight(self.hidden or self.width, self.channels)
            self.across = _weight(self.hidden, self.width) if self.hidden else None

    def sized(self, channels: int, width: int) -> Self:
        """A copy with new weights."""
        return type(self)(self.hidden, channels=channels, width=width)

    def scores(self, positions: Tensor, u: Tensor) -> Tensor:
        """S (B, 1, P) for positions (B, C, P) and u (B, W)."""
        wanted = u if self.across is None else u @ self.across.T
        # (W1 q) . u = q . (W1' u): the map is never projected to W features.
        return torch.bmm((wanted @ self.inward)[:, None], positions)


class Additive(Attention):
    """S(q, u) = w . tanh(W1 q + u), or w . tanh(W1 q + W2 u) with ``hidden``.

    hidden: the number of rows of W1 and W2; if the width of u is large, fewer rows are cheaper.
    tanh: without it, S is w . W1 q plus a constant, and the weights do not depend on u. (The authors' code for a
        related project leaves it out.)

    Reference: equations 10 and 11 of Al-Kaabi, Monsefi & Zabihzadeh, A Framework to Enhance Generalization of Deep
    Metric Learning methods; the activation is not named there.

    Example:
        >>> Additive().sized(3, 4).scores(torch.zeros(2, 3, 5), torch.ones(2, 4)).shape
        torch.Size([2, 1, 5])
    """

    rows = 1  # scores per position

    def __init__(
        self, hidden: int | None = None, tanh: bool = True, *, channels: int | None = None, width: int | None = None
    ) -> None:
        super().__init__(channels, width)
        self.hidden = None if hidden is None else _check.whole(type(self).__name__, "hidden", hidden)
        self.tanh = tanh
        if self.channels is not None and self.width is not None:
            inner = self.hidden or self.width
            self.inward = _weight(inner, self.channels)
            self.across = _weight(inner, self.width) if self.hidden else None
            self.outward = _weight(self.rows or self.channels, inner)

    def sized(self, channels: int, width: int) -> Self:
        """A copy with new weights."""
        return type(self)(self.hidden, self.tanh, channels=channels, width=width)

    def scores(self, positions: Tensor, u: Tensor) -> Tensor:
        """S (B, 1, P) for positions (B, C, P) and u (B, W)."""
        wanted = u if self.across is None else u @ self.across.T
        both = _project(self.inward, positions) + wanted[..., None]  # (B, W or hidden, P)
        return _project(self.outward, both.tanh() if self.tanh else both)

    def forward(self, found: FeatureMap, u: Tensor) -> tuple[Tensor, Tensor]:
        """The summary (B, C), and the weights (B, 1, P)."""
        if not self.is_one_operation(u):
            return super().forward(found, u)
        summary, (weights,) = additive_attention(u, [self.layer(found)])
        return summary, weights

    def is_one_operation(self, u: Tensor) -> bool:
        """Whether the op ``additive_attention`` can be used."""
        return type(self) is Additive and self.channels is not None and self.tanh and not _check.mixed_precision(u)

    def layer(self, found: FeatureMap) -> Layer:
        """The map and the weights as arguments of ``additive_attention``."""
        return Layer(found.values, found.mask, self.inward, self.across, self.outward)


class MultiDimensional(Additive):
    """Additive attention with weights for each feature: S(q, u) = W tanh(W1 q + u), C scores for each position.

    over_features: normalise over the features of a position, as equation 15 is printed, instead of over the positions,
        as the text says ("each feature independently") and DiSAN does. Weights then do not sum to 1 over positions.

    Reference: equations 12, 15 and 16 of the paper cited in ``Additive``; Shen et al. (2018), arXiv:1709.04696.

    Example:
        >>> MultiDimensional().sized(3, 4).scores(torch.zeros(2, 3, 5), torch.ones(2, 4)).shape
        torch.Size([2, 3, 5])
    """

    rows = 0  # one score per feature

    def __init__(
        self,
        hidden: int | None = None,
        tanh: bool = True,
        over_features: bool = False,
        *,
        channels: int | None = None,
        width: int | None = None,
    ) -> None:
        super().__init__(hidden, tanh, channels=channels, width=width)
        self.over_features = over_features

    def sized(self, channels: int, width: int) -> Self:
        """A copy with new weights."""
        return type(self)(self.hidden, self.tanh, self.over_features, channels=channels, width=width)

    def weights(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Weights (B, C, P), 0 in the padding."""
        if not self.over_features:
            return super().weights(scores, mask)
        weights = scores.softmax(1)
        return weights if mask is None else weights.masked_fill(~mask[:, None], 0)


def attend_all(
    attentions: Sequence[Attention], maps: Sequence[FeatureMap], u: Tensor
) -> tuple[Tensor, Sequence[Tensor]]:
    """The summaries of all maps, concatenated (B, C_1 + ... + C_m), and the weights of each.

    Example:
        >>> maps = [FeatureMap(torch.randn(2, channels, 5), None, (5,)) for channels in (3, 4)]
        >>> attentions = [Multiplicative().sized(channels, 6) for channels in (3, 4)]
        >>> attend_all(attentions, maps, torch.randn(2, 6))[0].shape
        torch.Size([2, 7])
    """
    pairs = list(zip(attentions, maps, strict=True))
    additive = [(each, found) for each, found in pairs if isinstance(each, Additive) and each.is_one_operation(u)]
    if len(additive) == len(pairs):
        return additive_attention(u, [each.layer(found) for each, found in additive])
    summaries, weights = zip(*(each(found, u) for each, found in pairs), strict=True)
    return torch.cat(summaries, 1), weights


def _project(weight: Tensor, positions: Tensor) -> Tensor:
    """weight (R, C) times the features (B, C, P) of each position: (B, R, P)."""
    if len(weight) <= positions.shape[2]:
        # The gradients of the weight, (B, R, C) before they are summed, take at most as much memory as the map.
        return torch.bmm(weight.expand(len(positions), -1, -1), positions)
    return nn.functional.linear(positions.mT, weight).mT


def _weight(rows: int, columns: int) -> nn.Parameter:
    """Uniform weights, initialised as in ``nn.Linear``."""
    bound = 1 / math.sqrt(columns)
    return nn.Parameter(torch.empty(rows, columns).uniform_(-bound, bound))
