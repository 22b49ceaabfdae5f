"""The lines of unseen classes: what rows and losses are called, and the epoch that held-out classes choose."""

import statistics
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from papers.common import read_lines

HERE = Path(__file__).parent
DATA = {
    "flowers102": "Flowers-102", "utd_mhad": "UTD-MHAD", "utd_mixed": "UTD-MHAD, every other action",
    "sad": "Spoken Arabic Digits",
}  # fmt: skip
LOSSES = {"triplet": "triplet", "proxy_nca": "Proxy-NCA", "am_softmax": "AM-softmax", "angular": "angular"}
ADDITIONS = {
    "none": "the loss alone", "pooled": "the layers' means (control of GDFL)", "gdfl": "attended features (GDFL)",
    "soft_adv": "soft adversary", "adapt_adv": "adaptive adversary", "jrd": "JRD",
    "pooled+soft_adv": "the layers' means, soft adversary", "gdfl+soft_adv": "GDFL, soft adversary",
    "gdfl+adapt_adv": "GDFL, adaptive adversary", "gdfl+soft_adv+jrd": "GDFL, soft adversary, JRD",
    "energy": "energy confusion", "mrd": "MRD", "jmmd": "JMMD",
    "jrd_c": "JRD-C", "jrd_pooling": "JRD-Pooling", "intra": "spread within classes (equation 5)",
}  # fmt: skip

UNTRAINED = {None: "untrained features", "untrained+pooled": "the layers' means, untrained"}


@cache
def lines_of(data: str) -> list[dict]:
    """The lines of a set of data."""
    return [line for line in read_lines(HERE / "lines.jsonl") if line["data"] == data]


def test_lines(data: str, loss: str, add: str) -> list[dict]:
    """The lines of a row on the unseen classes, one for each seed."""
    return [ln for ln in lines_of(data) if not ln["validate"] and (ln["loss"], ln.get("add")) == (loss, add)]


@dataclass(frozen=True, order=True)
class Best:
    """An epoch, and how well it did: by Recall@1 and, among equals, MAP@R, in the mean of some lines' curves."""

    recall: float
    map_at_r: float
    epoch: int


def best_epoch(lines: list[dict]) -> Best:
    """The best epoch of some lines, the first of equals."""
    found = [
        Best(statistics.mean(map(recall_of, same)), statistics.mean(point["map_at_r"] for point in same), epoch)
        for epoch, same in by_epoch(lines).items()
    ]
    return max(found, key=lambda one: (one.recall, one.map_at_r, -one.epoch))


def by_epoch(lines: list[dict]) -> dict[int, list[dict]]:
    """The points of the lines' curves, those of one epoch together."""
    points: dict[int, list[dict]] = {}
    for point in (point for line in lines for point in line["curve"]):
        points.setdefault(point["epoch"], []).append(point)
    return points


def recall_of(scores: dict) -> float:
    """Recall@1."""
    return scores["recall"]["1"]


def nmi_of(scores: dict) -> float:
    """The agreement of clusters with classes."""
    return scores["nmi"]
