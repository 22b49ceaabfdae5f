"""Summarise a Dataset, and warn about what looks wrong with it."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from likewise.data.batch import Batch
from likewise.data.dataset import Dataset

LONG, SHORT = 3.0, 1 / 3  # lengths beyond these multiples of the median are outliers
SCALES = 1000.0  # ratio of the deviations of two channels that is worth a warning
UNEVEN = 10.0  # ratio of the largest class to the smallest that is worth a warning
NAMED = 5  # items or channels that a warning names


@dataclass(frozen=True)
class Summary:
    """The result of ``summarize``; ``print`` it for a table.

    items, channels, classes, groups: the number of each; None if the Dataset has no labels or groups.
    lengths: the shortest, median and longest length; None for images. counts: the number of items of each class.
    warnings: one line for each problem.

    Example:
        >>> summarize(Dataset(torch.zeros(2, 3, 1), ["a", "a"])).warnings[0]
        'channel 0 is constant'
    """

    items: int
    channels: int
    lengths: tuple[int, float, int] | None
    classes: int | None
    counts: dict[str, int]
    groups: int | None
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Numbers and lists, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        head = f"{self.items:,} items, {self.channels} channel{'s' * (self.channels != 1)}"
        if self.lengths is not None:
            head += f", {self.lengths[0]} to {self.lengths[2]} steps (median {self.lengths[1]:g})"
        if self.groups is not None:
            head += f", {self.groups} groups"
        lines = [head]
        if self.classes is not None:
            shown = [f"{name} {count}" for name, count in list(self.counts.items())[:20]]
            more = f", and {len(self.counts) - 20} more" if len(self.counts) > 20 else ""
            lines.append(f"{self.classes} classes: {', '.join(shown)}{more}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


def summarize(data: Dataset) -> Summary:
    """Count the items, channels and classes of a Dataset or an ImageSet, and list what looks wrong.

    The warnings are about constant channels, channels of very different scales, lengths far from the median, equal
    items (with equal or different labels), classes with a single item, and very uneven classes.

    Example:
        >>> x = torch.arange(12.0).reshape(3, 4, 1)
        >>> print(summarize(Dataset(torch.cat([x, x[:1]]), ["a", "a", "b", "b"])))
        4 items, 1 channel, 4 to 4 steps (median 4)
        2 classes: a 2, b 2
        warning: 1 item equals another one and has another label: 3 and 0
    """
    sequences = data.items if isinstance(data.items, Batch) else None
    counts = dict(sorted(Counter(data.labels.tolist()).items())) if data.codes is not None else {}
    warnings = [*_channels(sequences), *_lengths(data)] if sequences is not None else []
    warnings += [*_duplicates(data), *_classes(counts)]
    lengths = None
    if sequences is not None and len(sequences):
        found = sequences.lengths.sort().values
        middle = (len(found) - 1) // 2, len(found) // 2
        lengths = int(found[0]), float(found[list(middle)].double().mean()), int(found[-1])
    return Summary(
        items=len(data),
        channels=data.items.shape[1] if sequences is None else sequences.channels,  # type: ignore[attr-defined]
        lengths=lengths,
        classes=None if data.codes is None else len(counts),
        counts=counts,
        groups=None if data.groups is None else len(set(data.groups.tolist())),
        warnings=tuple(warnings),
    )


def _channels(items: Batch) -> Iterator[str]:
    """Channels that never change, and channels of very different scales."""
    if not len(items):
        return
    frames = items.values[items.mask].double()  # (sum of T_i, C)
    constant = (frames == frames[0]).all(0)
    for channel in torch.nonzero(constant).flatten().tolist()[:NAMED]:
        yield f"channel {channel} is constant"
    if int(constant.sum()) > NAMED:
        yield f"{int(constant.sum()) - NAMED} more channels are constant"
    spread = frames[:, ~constant].std(0, correction=0) if int((~constant).sum()) > 1 else frames.new_empty(0)
    if len(spread) and spread.max() > SCALES * spread.min():
        low, high = (torch.nonzero(~constant).flatten()[int(i)] for i in (spread.argmin(), spread.argmax()))
        ratio = float(spread.max() / spread.min())
        yield (
            f"channel {int(high)} varies {ratio:.3g} times as much as channel {int(low)}: a distance without an "
            "encoder sees only the former; standardise the channels"
        )


def _lengths(data: Dataset) -> Iterator[str]:
    lengths = data.items.lengths
    if not len(lengths):
        return
    median = float(lengths.double().median())
    far = torch.nonzero((lengths > LONG * median) | (lengths < SHORT * median)).flatten().tolist()
    if far:
        shown = [f"{data.ids[i]} ({int(lengths[i])})" for i in far]
        yield f"{_several(len(far))} far from the median length of {median:g} steps: {_some(shown)}"


def _duplicates(data: Dataset) -> Iterator[str]:
    """Items that are equal to an earlier one."""
    seen: dict[bytes, int] = {}
    same, different = [], []
    for i in range(len(data)):
        item = data.items[i].contiguous()
        key = hashlib.sha256(str(tuple(item.shape)).encode() + item.cpu().numpy().tobytes()).digest()
        first = seen.setdefault(key, i)
        if first != i:
            clash = data.labels is not None and data.labels[i] != data.labels[first]
            (different if clash else same).append(f"{data.ids[i]} and {data.ids[first]}")
    for found, label in ((different, " and has another label"), (same, "")):
        if found:
            number = f"{len(found)} item{'s' * (len(found) != 1)} equal{'s' * (len(found) == 1)}"
            has = label if len(found) == 1 else label.replace("has", "have")
            yield f"{number} another one{has}: {_some(found)}"


def _classes(counts: dict[str, int]) -> Iterator[str]:
    single = [name for name, count in counts.items() if count == 1]
    if single:
        number = f"{len(single)} class{'es' * (len(single) != 1)} {'has' if len(single) == 1 else 'have'}"
        yield f"{number} a single item, which nothing can match: {_some(single)}"
    if counts and max(counts.values()) > UNEVEN * min(counts.values()):
        largest, smallest = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
        yield f"classes are uneven: {largest} has {counts[largest]} items, {smallest} has {counts[smallest]}"


def _several(count: int) -> str:
    return f"{count} item{'s are' if count != 1 else ' is'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
