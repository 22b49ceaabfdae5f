"""CrossBatchMemory: compare each batch with earlier ones too."""

from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.losses.vector_loss import VectorLoss
from likewise.models.metric import Encoded
from likewise.training.step import Step


class CrossBatchMemory:
    """A term of ``fit``: the loss of the distances from the batch to the items of the last batches.

    The term is weight * loss(M, labels, kept_labels), where M (B, K B) are the distances to the items of the last K
    batches. These keep their encodings of that time, without gradients. So a batch of 32 has hundreds of negatives, at
    the cost of B x K B more distances per step and the memory of K B encoded items.

    batches: K. weight: the weight of the term. start: the number of steps before the term counts; early in training,
        features change too quickly for old ones to be useful.

    The loss is the one given to ``fit``, which must take a matrix and labels. With several processes, each keeps the
    whole batches and computes the rows of M for its own items. Checkpoints include the memory: a resumed run equals an
    uninterrupted one.

    Reference: Wang et al., Cross-batch memory for embedding learning (CVPR 2020), for vectors. Here it works for any
    distance.

    Example:
        >>> import likewise as lw
        >>> x, y = torch.randn(12, 6, 2), torch.arange(12) % 3
        >>> metric = lw.Metric(lw.FrameMLP(2, hidden=8), lw.SoftDTW())
        >>> terms = [CrossBatchMemory(batches=4)]
        >>> history = lw.fit(metric, (x, y), lw.losses.Triplet(), terms=terms, batch_size=4, epochs=2, verbose=False)
        >>> len(terms[0])
        16
    """

    def __init__(self, batches: int = 8, *, weight: float = 1.0, start: int = 0) -> None:
        self.batches = _check.whole("CrossBatchMemory", "batches", batches)
        self.weight = _check.positive("CrossBatchMemory", "weight", weight)
        self.start = _check.whole("CrossBatchMemory", "start", start, least=0)
        self._kept: deque[tuple[Encoded, Tensor]] = deque(maxlen=self.batches)

    def __len__(self) -> int:
        """The number of items that are kept."""
        return sum(len(labels) for _, labels in self._kept)

    def __call__(self, step: Step) -> Tensor:
        """The term, a scalar; then the batch replaces the oldest one in memory."""
        if step.loss is None or isinstance(step.loss, VectorLoss):
            _check.refuse("CrossBatchMemory", "needs a loss of a matrix and labels, not one of vectors")
        value = torch.zeros((), device=step.labels.device)
        if self._kept and step.total >= self.start:
            kept = [features for features, _ in self._kept]
            others = Batch.cat(kept) if isinstance(kept[0], Batch) else torch.cat(kept)  # type: ignore[arg-type]
            labels = torch.cat([labels for _, labels in self._kept]).to(step.labels.device)
            value = self.weight * step.loss(step.distances_to(others), step.labels, labels)
        features = step.features
        fixed = Batch(features.values.detach(), features.lengths) if isinstance(features, Batch) else features.detach()
        self._kept.append((fixed, step.labels))
        return value

    def state(self) -> dict[str, Tensor]:
        """The kept batches as tensors by name, for checkpoints."""
        found: dict[str, Tensor] = {}
        for place, (features, labels) in enumerate(self._kept):
            found[f"{place}.labels"] = labels
            found[f"{place}.values"] = features.values if isinstance(features, Batch) else features
            if isinstance(features, Batch):
                found[f"{place}.lengths"] = features.lengths
        return found

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Restore the result of ``state`` from a checkpoint; it is empty when a run begins."""
        places = sorted({name.partition(".")[0] for name in state}, key=lambda place: (len(place), place))
        if places != [str(i) for i in range(len(places))] or len(places) > self.batches:
            _check.refuse(
                "CrossBatchMemory", f"the checkpoint has {len(places)} batches; expected at most {self.batches}"
            )
        self._kept.clear()
        for place in places:
            names = {name.partition(".")[2] for name in state if name.startswith(f"{place}.")}
            if not {"labels", "values"} <= names:
                _check.refuse("CrossBatchMemory", f"batch {place} of the checkpoint is damaged")
            labels, values = state[f"{place}.labels"].to(device), state[f"{place}.values"].to(device)
            if labels.dtype != torch.int64 or labels.shape != values.shape[:1] or not values.isfinite().all():
                _check.refuse("CrossBatchMemory", f"batch {place} of the checkpoint is damaged")
            self._kept.append((Batch(values, state[f"{place}.lengths"]) if "lengths" in names else values, labels))
