"""Explanation: why a query and an item match."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from likewise import _check
from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.alignment import Alignment
from likewise.distances.distance import Distance
from likewise.ops.ground import sqeuclidean
from likewise.search.choice import comparing, encoded
from likewise.search.costs import Costs, by_channel, costs
from likewise.search.segments import Segment, segments

MOST_SPANS = 3


class Explanation:
    """Why two sequences are as far apart as they are.

    value: their distance. query, match: (Tx, C) and (Ty, C), as they were compared.
    alignment: the Alignment of the two; None if the distance does not align, such as between vectors.
    cost: (Tx, C) float64, the part of the distance that each step and channel of the query has; match_cost: (Ty, C), of
        the match. Both sum to value - rest. One column if the distance does not divide among channels, None if it does
        not divide at all. Under a Metric, channels are those of the encoded frames.
    rest: what belongs to no step: the entropy of soft-DTW, the penalty of GDTW's slopes; 0 for DTW and most others.
    segments: the path as straight pieces, each with its shift, stretch, amplitude and cost.
    counterfactual: what the nearest item of another class differs in; None without labels or other classes.

    ``print`` shows a summary, ``plot`` a picture.

    Example:
        >>> from likewise import DTW, Index
        >>> bump = torch.exp(-(torch.arange(40.0) - 15).square() / 20)[:, None]
        >>> later = 2 * torch.exp(-(torch.arange(40.0) - 19).square() / 20)[:, None]
        >>> why = Index(DTW(), [later, torch.zeros(40, 1)]).search([bump], k=1).explain()
        >>> bool(abs(why.cost.sum() - why.value) < 1e-4)
        True
        >>> max(why.segments, key=lambda s: s.cost).shift
        4.0
    """

    def __init__(
        self,
        distance: Distance,
        query: Tensor,
        match: Tensor,
        *,
        value: float | None = None,
        tolerance: float = 0.1,
        name: str = "",
        other: Callable[[], "tuple[str, object, Explanation] | None"] | None = None,
    ) -> None:
        self.distance = distance
        self.query = query
        self.match = match
        self.tolerance = _check.not_negative("Explanation", "tolerance", tolerance)
        self.name = name
        self._other = other
        with torch.no_grad(), evaluating(distance):
            self._x, self._y = (_frames(distance, part) for part in (query, match))
            inner = comparing(distance)
            try:
                if self._x.shape[1] > 1 and inner.separate:
                    raise NotImplementedError  # each channel has an alignment of its own
                self.alignment: Alignment | None = inner.align(self._x[None], self._y[None])
                aligned = float(self.alignment.value[0])
            except NotImplementedError:
                self.alignment = None
                aligned = float(inner(self._x[None], self._y[None])[0])
            self.value = aligned if value is None else value
            self._costs: Costs | None = costs(inner, self._x, self._y, self.alignment, self.value)

    @property
    def cost(self) -> Tensor | None:
        """(Tx, C), the part of the distance that each step and channel of the query has."""
        return None if self._costs is None else self._costs.x

    @property
    def match_cost(self) -> Tensor | None:
        """(Ty, C), the part of the distance that each step and channel of the match has."""
        return None if self._costs is None else self._costs.y

    @property
    def rest(self) -> float:
        """The part of the distance that belongs to no step."""
        return self.value if self._costs is None else self._costs.rest

    @property
    def by_step(self) -> Tensor | None:
        """(Tx,), the part of the distance that each step of the query has."""
        return None if self._costs is None else self._costs.x.sum(1)

    @property
    def by_channel(self) -> Tensor | None:
        """(C,), the part of the distance that each channel has; None if it does not divide among them."""
        one_of_several = self._costs is not None and self._costs.x.shape[1] != self._x.shape[1]
        return None if self._costs is None or one_of_several else self._costs.x.sum(0)

    @cached_property
    def path(self) -> Tensor | None:
        """(K, 2) int64, the matched steps of the query and the match; None if the distance does not align."""
        with torch.no_grad():
            return None if self.alignment is None else self.alignment.path(0).cpu()

    @cached_property
    def segments(self) -> list[Segment]:
        """The path as straight pieces; empty if the distance does not align."""
        if self.path is None:
            return []
        x, y = self._x.double().cpu(), self._y.double().cpu()
        ground: Any = getattr(comparing(self.distance), "ground", sqeuclidean)
        ground = ground if callable(ground) else sqeuclidean
        by_step = torch.zeros(len(x)) if self.by_step is None else self.by_step
        return segments(self.path, x, y, lambda i, j: by_channel(ground, x[i], y[j]).sum(1), by_step, self.tolerance)

    @cached_property
    def counterfactual(self) -> "Counterfactual | None":
        """How the nearest item of another class differs."""
        found = None if self._other is None else self._other()
        return None if found is None else Counterfactual(*found, self)

    @property
    def channel(self) -> str:
        """The kind of the channels of ``cost``: those of the items, or of encoded items."""
        return "channel" if getattr(self.distance, "encoder", None) is None else "encoded channel"

    def plot(self, ax: Any = None) -> Any:
        """Draw the explanation; see ``viz.plot_explanation``."""
        # Only drawing needs matplotlib, which is imported on first use.
        return importlib.import_module("likewise.viz").plot_explanation(self, ax=ax)

    def __str__(self) -> str:
        lines = [f"{self.distance.name} {self.value:.6g}{f' to {self.name}' if self.name else ''}"]
        lines += [f"  {segment}" for segment in self.segments]
        if self.by_channel is not None and len(self.by_channel) > 1:
            most = self.by_channel.argsort(descending=True)[:3].tolist()
            lines.append("  " + ", ".join(f"{self.channel} {c}: {float(self.by_channel[c]):.4g}" for c in most))
        if abs(self.rest) > 1e-6 * max(1.0, abs(self.value)):
            lines.append(f"  not in any step: {self.rest:.4g}")
        if self.counterfactual is not None:
            lines.append(f"  {self.counterfactual}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        shapes = f"{tuple(self.query.shape)}, {tuple(self.match.shape)}"
        return f"Explanation({self.distance.name} {self.value:.6g}, {shapes})"


@dataclass(frozen=True)
class Span:
    """Steps of the query, [start, end), where another item costs more, how much, and most of it in which channel."""

    start: int
    end: int
    channel: int | None
    excess: float


class Counterfactual:
    """How the nearest item of another class differs.

    id, label: of that item. explanation: of the query and that item. distance: between the two; margin: how much
    farther it is than the match.
    excess: (Tx, C) or (Tx, 1), how much more each step and channel of the query costs there than in the match; None if
    the distance does not divide. spans: the stretches of the query with the most excess.

    Example:
        >>> from likewise import DTW, Index
        >>> index = Index(DTW(), [[0.0, 1.0, 3.0], [0.0, 5.0, 3.0]], labels=["low", "high"])
        >>> other = index.search([[0.0, 1.0, 2.0]], k=1).explain().counterfactual
        >>> other.label, other.margin, [(span.start, span.end) for span in other.spans]
        ('high', 10.0, [(1, 3)])
    """

    def __init__(self, id: str, label: object, explanation: Explanation, match: Explanation) -> None:  # noqa: A002
        self.id = id
        self.label = label
        self.explanation = explanation
        theirs, ours = explanation.cost, match.cost
        self.excess = None if theirs is None or ours is None else theirs - ours
        self.distance = explanation.value
        self.margin = explanation.value - match.value

    @property
    def spans(self) -> list[Span]:
        """At most three stretches of steps, the largest excess first."""
        if self.excess is None:
            return []
        more = self.excess.sum(1)
        above = (more > 0).tolist()
        found, start = [], 0
        for step, inside in enumerate([*above, False]):
            if inside and (step == 0 or not above[step - 1]):
                start = step
            if not inside and step and above[step - 1]:
                part = self.excess[start:step]
                channel = int(part.sum(0).argmax()) if part.shape[1] > 1 else None
                found.append(Span(start, step, channel, float(part.sum())))
        return sorted(found, key=lambda span: -span.excess)[:MOST_SPANS]

    def __str__(self) -> str:
        text = f"nearest of another class: {self.id} ({self.label}), {self.distance:.6g}"
        for span in self.spans[:1]:
            where = "" if span.channel is None else f", most in {self.explanation.channel} {span.channel}"
            text += f"; steps {span.start}..{span.end - 1} cost {span.excess:.4g} more there{where}"
        return text


def _frames(distance: Distance, item: Tensor) -> Tensor:
    """Frames (T, C) as the distance compares them: encoded, if there is an encoder; a vector is one frame."""
    one = Batch(item[None]) if item.ndim == 2 else item[None]
    found = encoded(distance, one)
    if isinstance(found, Batch):
        return found[0]
    return found[0][None] if found.ndim == 2 else found[0]
