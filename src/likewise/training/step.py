"""Step: one batch and its features and distances, as passed to the functions of ``fit``.

``matrix_step`` and ``vector_step`` are the steps of most losses; ``path_step`` has its own file, and an ``EpisodeLoss``
and a ``SelfSupervised`` are steps with settings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from likewise import _check
from likewise.data.batch import Batch
from likewise.models.layers import FeatureMap, as_map, captured, find_layers, origin_of
from likewise.models.metric import Encoded, Metric, take
from likewise.training.ranks import ALONE, Ranks

HALVES = (torch.float16, torch.bfloat16)


class Augmented(Protocol):
    """The result of an augmentation: new sequences, and their alignment with the originals, if known."""

    @property
    def batch(self) -> Batch:
        """The augmented sequences, one for each original."""
        ...

    @property
    def plans(self) -> object:
        """Ground-truth alignments (B, Tx, T^), a list of (Tx_b, T^_b), or None."""
        ...


Augment = Callable[[Batch, torch.Generator], Augmented]
Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Shard:
    """The rows of a batch that this process has read, and the number of items of the whole batch."""

    own: Batch | Tensor
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class Step:
    """One step of training. With several processes, everything here refers to the whole batch.

    metric: the Metric that is trained. labels: (B,), the numbers of the items' classes.
    items: the items of the batch; or a Shard, if each process has read only its own.
    loss: the loss given to ``fit``, or None. index: (B,), the positions of the items in the training set.
    augment: the augmentation, or None. generator: seeded for this step, the same in all processes.
    epoch: counted from 0. total: the number of steps before this one, over all epochs.
    layers: names of modules inside the encoder whose outputs ``layer`` can return.

    The other attributes are computed on first use and then kept: ``features``, the encoded items; ``D`` (B, B), their
    distances; ``augmented`` and ``augmented_features``, the augmented items and their features.

    A function of a Step that returns a scalar is a step, ``fit(step=...)``, or an additional term,
    ``fit(terms=[...])``. It may have the attribute ``layers``, names of modules inside the encoder, and a method
    ``prepare(metric, items, labels)``, called once before training, for parameters whose size depends on the data.

    Example:
        >>> from likewise import Euclidean
        >>> def keep_small(step):  # a term of fit(..., terms=[keep_small])
        ...     return step.features.values.square().mean()
        >>> step = Step(Metric(None, Euclidean()), Batch(torch.ones(3, 4, 2)), torch.tensor([0, 0, 1]))
        >>> keep_small(step), step.D.shape
        (tensor(1.), torch.Size([3, 3]))
    """

    metric: Metric
    items: Any
    labels: Tensor
    loss: Loss | None = None
    index: Tensor | None = None
    augment: Augment | None = None
    generator: torch.Generator | None = None
    epoch: int = 0
    total: int = 0
    layers: tuple[str, ...] = ()
    ranks: Ranks = ALONE

    @property
    def count(self) -> int:
        """The number of items in the batch."""
        return len(self.items)

    @cached_property
    def batch(self) -> Any:
        """The items. If each process has read only its own, they are gathered when this is first used."""
        return self.ranks.gather_encoded(self.items.own, self.count) if isinstance(self.items, Shard) else self.items

    @property
    def rows(self) -> slice:
        """The rows of the batch that this process encodes and compares; all of them if there is only one."""
        count = self.count
        if count < self.ranks.size:
            raise ValueError(f"a batch of {count} items cannot be divided among {self.ranks.size} processes")
        return self.ranks.rows(count)

    @cached_property
    def features(self) -> Encoded:
        """The encoded items, with gradients, in float32 or better."""
        return self.ranks.gather_encoded(self._own[0], self.count)

    @cached_property
    def augmented(self) -> Augmented | None:
        """The augmented batch; None without an augmentation."""
        if self.augment is None:
            return None
        generator = torch.Generator() if self.generator is None else self.generator
        made = self.augment(self.batch, generator)
        if len(made.batch) != len(self.batch):
            raise ValueError(f"augment returned {len(made.batch)} items for a batch of {len(self.batch)}")
        return made

    @cached_property
    def augmented_features(self) -> Encoded | None:
        """The augmented items, encoded; None without an augmentation."""
        own = self._own_augmented
        return None if own is None else self.ranks.gather_encoded(own, self.count)

    @cached_property
    def D(self) -> Tensor:  # noqa: N802, the matrix has this name everywhere
        """Distances (B, B), in float32 or better.

        With an augmentation, the diagonal is (d(x_b, x^_b) + d(x^_b, x_b)) / 2, of original and augmented items.
        """
        distance, own, other = self.metric.distance, self._own[0], self._own_augmented
        D = distance.matrix(own) if self.ranks.size == 1 else distance.matrix(own, self.features)  # (rows, B)
        if other is not None:
            there = distance(own, other)
            both = there if distance.symmetric else (there + distance(other, own)) / 2
            diagonal = torch.zeros_like(D, dtype=torch.bool)
            diagonal[:, self.rows] = torch.eye(len(D), dtype=torch.bool, device=D.device)
            D = torch.where(diagonal, both[:, None], D)
        D = self.ranks.gather(D, self.count)
        return D.float() if D.dtype in HALVES else D

    def distances_to(self, others: Encoded) -> Tensor:
        """Distances (B, M) from the items of the batch to other encoded items, in float32 or better."""
        D = self.ranks.gather(self.metric.distance.matrix(self._own[0], others), self.count)
        return D.float() if D.dtype in HALVES else D

    def layer(self, name: str, pool: Callable[[FeatureMap], Tensor] = FeatureMap.mean) -> Tensor:
        """Features (B, C) of the encoder's layer of this name, pooled over positions, with gradients."""
        maps = self._own[1]
        if name not in maps:
            known = ", ".join(maps) or "none"
            _check.refuse(
                "Step", f"layer {name!r} was not requested (requested: {known}); name it in the term's layers"
            )
        if pool is not FeatureMap.mean and not maps[name].shape:
            what = getattr(pool, "__name__", "this pooling")
            _check.refuse(
                "Step", f"layer {name!r} returns vectors, for which {what} makes no difference; name a layer of maps"
            )
        return self.ranks.gather(pool(maps[name]), self.count)

    @cached_property
    def _own(self) -> tuple[Encoded, Mapping[str, FeatureMap]]:
        """The encoded rows of this process, and the outputs of the layers."""
        items = self.items.own if isinstance(self.items, Shard) else take(self.items, self.rows)
        if not self.layers:
            return _precise(self.metric.encode(items)), {}
        inside = self.metric if self.metric.encoder is None else self.metric.encoder
        with captured("fit", inside, self.layers) as outputs:
            encoded = _precise(self.metric.encode(items))
        return encoded, _maps(inside, items, outputs, self.layers)

    @cached_property
    def _own_augmented(self) -> Encoded | None:
        if self.augmented is None:
            return None
        self._own  # noqa: B018, the original items come first: both may draw random numbers
        return _precise(self.metric.encode(take(self.augmented.batch, self.rows)))


StepFunction = Callable[[Step], Tensor]
Term = StepFunction


def matrix_step(step: Step) -> Tensor:
    """The loss of the batch's matrix of distances: loss(D, labels), or loss(D, labels, labels) with an augmentation.

    Example:
        >>> from likewise import Euclidean, losses
        >>> items, labels = Batch(torch.tensor([[[0.0]], [[1.0]], [[5.0]]])), torch.tensor([0, 0, 1])
        >>> matrix_step(Step(Metric(None, Euclidean()), items, labels, losses.Contrastive(margin=2.0)))
        tensor(0.3333)
    """
    assert step.loss is not None
    more = () if step.augment is None else (step.labels,)  # then the diagonal of D counts too
    return step.loss(step.D, step.labels, *more)


def vector_step(step: Step) -> Tensor:
    """The loss of the encoded vectors: loss(features, labels). No matrix is made.

    Example:
        >>> from likewise import Euclidean, losses
        >>> items, labels = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]]), torch.tensor([0, 0, 1])
        >>> vector_step(Step(Metric(None, Euclidean()), items, labels, losses.Angular()))
        tensor(0.0037)
    """
    assert step.loss is not None
    return step.loss(step.features, step.labels)


def _maps(
    inside: nn.Module, items: Batch | Tensor, outputs: Mapping[str, object], layers: tuple[str, ...]
) -> dict[str, FeatureMap]:
    lengths = items.lengths if isinstance(items, Batch) else None
    found = {}
    for name, module in find_layers("fit", inside, layers).items():
        if name not in outputs:
            _check.refuse("fit", f"the layer {name!r} was not used when the batch was encoded")
        origin = origin_of(inside, name, items)
        known = as_map("fit", f"the layer {name!r}", outputs[name], lengths, layer=module, origin=origin)
        found[name] = replace(known, features=known.features.float()) if known.features.dtype in HALVES else known
    return found


def _precise(encoded: Encoded) -> Encoded:
    """Encoded items in float32 or better: in mixed precision, encoders return half precision."""
    return encoded.to(torch.float32) if encoded.dtype in HALVES else encoded
