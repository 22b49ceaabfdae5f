"""Step: a batch, its features and its matrix of distances; what a loss and its terms see."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.batch import Batch
from likewise.models.layers import FeatureMap, as_map, captured, find_layers
from likewise.models.metric import Encoded, Metric, take
from likewise.training.ranks import ALONE, Ranks


class Augmented(Protocol):
    """What an augmentation returns: changed sequences, and how they align with the original ones, if it knows."""

    @property
    def batch(self) -> Batch:
        """The augmented sequences, one for each original."""
        ...

    @property
    def plans(self) -> object:
        """Ground-truth alignments (B, Tx, T^), a list of (Tx_b, T^_b), or None."""
        ...


Augment = Callable[[Batch, torch.Generator], Augmented]


@dataclass(frozen=True)
class Step:
    """One step of training, as terms of the loss see it. With several processes, everything here is of the whole batch.

    metric: the Metric that is trained. batch, labels: the items and their labels (B,).
    features: encoded items, with gradients. D: (B, B), their distances; None without a loss.
    augmented, augmented_features: what the augmentation returned and its items encoded; None without augmentation.
    epoch: which epoch this is, from 0. total: steps before this one, in all epochs.
    maps: what layers inside the encoder gave, by name, for this process's rows; ``layer`` has those of the whole batch.

    A term may say what it needs: ``layers``, names of modules inside the encoder, and ``prepare(metric, items,
    labels)``, called once before the training, for terms that have parameters of a size that the data decides.

    Example:
        >>> from likewise import Euclidean
        >>> def keep_small(step):  # a term of fit(..., terms=[keep_small])
        ...     return step.features.values.square().mean()
        >>> step = take_step(Metric(None, Euclidean()), Batch(torch.ones(3, 4, 2)), torch.tensor([0, 0, 1]))
        >>> keep_small(step), step.D.shape
        (tensor(1.), torch.Size([3, 3]))
    """

    metric: Metric
    batch: Batch | Tensor
    labels: Tensor
    features: Encoded
    D: Tensor | None
    augmented: Augmented | None
    augmented_features: Encoded | None
    epoch: int
    total: int
    maps: Mapping[str, FeatureMap] = field(default_factory=dict)
    ranks: Ranks = ALONE

    def layer(self, name: str, pool: Callable[[FeatureMap], Tensor] = FeatureMap.mean) -> Tensor:
        """Features (B, C) that the encoder's layer of this name gave, pooled over their positions, with gradients."""
        if name not in self.maps:
            known = f"it has {', '.join(self.maps)}" if self.maps else "it has none"
            _check.refuse("Step", f"layer {name!r} was not asked for, {known}; name it in the term's layers")
        return self.ranks.gather(pool(self.maps[name]), len(self.batch))


Term = Callable[[Step], Tensor]


def take_step(
    metric: Metric,
    batch: Batch | Tensor,
    labels: Tensor,
    *,
    augmented: Augmented | None = None,
    matrix: bool = True,
    ranks: Ranks = ALONE,
    epoch: int = 0,
    total: int = 0,
    layers: Sequence[str] = (),
) -> Step:
    """Encode a batch and build its matrix of distances.

    With augmented items, the diagonal of D is (d(x_b, x^_b) + d(x^_b, x_b)) / 2, of original and augmented items. Each
    process encodes and compares its own rows; distances are computed in float32 or better. ``layers`` are names of
    modules inside the encoder whose outputs are kept.
    """
    count, rows = len(batch), ranks.rows(len(batch))
    if count < ranks.size:
        raise ValueError(f"a batch of {count} items cannot be shared by {ranks.size} processes")
    if augmented is not None and len(augmented.batch) != count:
        raise ValueError(f"augment returned {len(augmented.batch)} items for {count}")
    own_items = take(batch, rows)
    with captured("fit", _inside(metric), layers) as outputs:
        own = _precise(metric.encode(own_items))
    maps = _maps(metric, own_items, outputs, layers)
    features = ranks.gather_encoded(own, count)
    own_other = other = None
    if augmented is not None:
        own_other = _precise(metric.encode(take(augmented.batch, rows)))
        other = ranks.gather_encoded(own_other, count)
    D = None
    if matrix:
        D = metric.distance.matrix(own, features) if ranks.size > 1 else metric.distance.matrix(own)  # (rows, B)
        if own_other is not None:
            there = metric.distance(own, own_other)
            both = there if metric.distance.symmetric else (there + metric.distance(own_other, own)) / 2
            diagonal = torch.zeros_like(D, dtype=torch.bool)
            diagonal[:, rows] = torch.eye(len(D), dtype=torch.bool, device=D.device)
            D = torch.where(diagonal, both[:, None], D)
        D = ranks.gather(D, count)
        D = D.float() if D.dtype in (torch.float16, torch.bfloat16) else D
    labels = labels.to(features.device, non_blocking=features.device.type == "cuda")
    return Step(metric, batch, labels, features, D, augmented, other, epoch, total, maps, ranks)


def _maps(
    metric: Metric, items: Batch | Tensor, outputs: Mapping[str, object], layers: Sequence[str]
) -> dict[str, FeatureMap]:
    lengths = items.lengths if isinstance(items, Batch) else None
    modules = find_layers("fit", _inside(metric), layers)
    found = {}
    for name, module in modules.items():
        if name not in outputs:
            _check.refuse("fit", f"the layer {name!r} was not used when the batch was encoded")
        known = as_map("fit", f"the layer {name!r}", outputs[name], lengths, layer=module)
        half = known.features.dtype in (torch.float16, torch.bfloat16)
        found[name] = replace(known, features=known.features.float()) if half else known
    return found


def _inside(metric: Metric) -> nn.Module:
    return metric if metric.encoder is None else metric.encoder


def _precise(encoded: Encoded) -> Encoded:
    """Encoded items in float32 at least: an encoder in mixed precision gives halves."""
    return encoded.to(torch.float32) if encoded.dtype in (torch.float16, torch.bfloat16) else encoded
