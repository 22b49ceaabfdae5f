"""The service's responses, as models of its OpenAPI description."""

import json
import math
from typing import Any

from pydantic import BaseModel


class Health(BaseModel):
    """The state of the service, its items and its metrics."""

    status: str
    version: str
    items: int
    kind: str
    metrics: list[str]
    embeds: list[str]


class Neighbour(BaseModel):
    """A hit: the item's position, id and label, its distance, and the steps [start, end) that matched."""

    item: int
    id: str
    label: str | None
    distance: float | None
    start: int
    end: int


class Neighbours(BaseModel):
    """The hits of every query, nearest first.

    candidates: the number of pairs; pruned: those that each stage ruled out without a full comparison.
    """

    metric: str
    hits: list[list[Neighbour]]
    seconds: float
    method: str
    candidates: int
    pruned: dict[str, int]


class Aligned(BaseModel):
    """The distance of a pair, its matched steps (i, j), and where in y each step of x is matched."""

    distance: float | None
    path: list[tuple[int, int]]
    warp: list[float | None]


class Alignments(BaseModel):
    """One alignment for each pair."""

    metric: str
    alignments: list[Aligned]
    seconds: float


class Explained(BaseModel):
    """Parts of a distance: contributions (T, C) of x's frames and channels, and a rest; they sum to it."""

    distance: float | None
    contributions: list[Any]
    rest: float | None
    method: str
    path: list[tuple[int, int]] | None


class Explanations(BaseModel):
    """One explanation for each pair."""

    metric: str
    explanations: list[Explained]
    seconds: float


class Embeddings(BaseModel):
    """The encoded items: vectors (B, D), or a sequence (T, D) for each."""

    metric: str
    embeddings: list[Any]
    seconds: float


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


def finite(value: Any) -> Any:
    """Numbers in nested lists that JSON can hold; None for those that it cannot."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [finite(part) for part in value] if isinstance(value, (list, tuple)) else value


def to_json(answer: Any) -> bytes:
    """JSON without NaN or infinity."""
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
