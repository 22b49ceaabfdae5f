"""Uploads of the page's visitors, held in memory; the oldest are dropped first."""

import csv
import io
import secrets
from collections import OrderedDict
from threading import Lock

import torch
from torch import Tensor

from likewise.data.batch import Batch
from likewise.web import bodies
from likewise.web.bodies import NPY, PICTURES, Like
from likewise.web.limits import Limits
from likewise.web.refusals import Refusal

MOST = 32
CSV = "text/csv"


class Uploads:
    """Items by a random name. Nothing is written to the disk."""

    def __init__(self, limits: Limits, like: Like) -> None:
        self.limits, self.like = limits, like
        self._held: OrderedDict[str, Batch | Tensor] = OrderedDict()
        self._lock = Lock()

    def read(self, body: bytes, kind: str) -> Batch | Tensor:
        """One item from a file's bytes: .npy, CSV with a row for each step, or a picture."""
        if kind in PICTURES:
            if self.like.image is None:
                raise Refusal(422, "this collection holds no images; upload a series as .csv or .npy")
            return bodies.picture(body, self.limits, self.like.image)
        if kind == NPY:
            found = bodies.array(body, "upload", self.limits, self.like)
        elif kind == CSV:
            if self.like.image is not None:
                raise Refusal(422, "this collection holds images; upload a PNG, JPEG or WebP picture")
            found = bodies.sequences("upload", [_rows(body)], self.limits, self.like.channels)
        else:
            raise Refusal(415, "expected a .csv or .npy file, or a picture")
        if len(found) != 1:
            raise Refusal(422, f"upload: expected one item, got {len(found)}")
        return found

    def add(self, item: Batch | Tensor) -> str:
        """Keep an item; returns its name."""
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._held[name] = item
            while len(self._held) > MOST:
                self._held.popitem(last=False)
        return name

    def get(self, name: str) -> Batch | Tensor:
        """An item by its name."""
        with self._lock:
            if name not in self._held:
                raise Refusal(422, "that upload is no longer held; upload it again")
            return self._held[name]


def _rows(body: bytes) -> list[list[float]]:
    """Rows of numbers; a first row of names is skipped."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refusal(422, "upload: this is not text; expected rows of numbers") from None
    rows: list[list[float]] = []
    lines = io.StringIO(text, newline=None)  # a carriage return ends a line, too
    try:
        for number, row in enumerate(csv.reader(lines, delimiter="\t" if "\t" in text[:1000] else ","), 1):
            values = _numbers(row, number, first=not rows and number == 1)
            rows += [values] if values else []
    except csv.Error as error:
        raise Refusal(422, f"upload: this is not CSV: {error}") from None
    if not rows:
        raise Refusal(422, "upload: the file holds no rows of numbers")
    return rows


def _numbers(row: list[str], number: int, *, first: bool) -> list[float]:
    """The numbers of a line; none of an empty one, or of names in the first one."""
    if not any(cell.strip() for cell in row):
        return []
    try:
        values = [float(cell) for cell in row]
    except ValueError:
        if first:
            return []
        raise Refusal(422, f"upload: line {number} does not hold numbers") from None
    if not torch.tensor(values).isfinite().all():
        raise Refusal(422, f"upload: line {number} holds a number that is not finite")
    return values
