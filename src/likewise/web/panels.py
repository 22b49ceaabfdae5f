"""The content of each panel of the page, computed from a Collection as plain data."""

import base64
import contextlib
import threading
import time
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.distances.alignment import Alignment, PathAlignment
from likewise.models.attended_features import AttendedFeatures
from likewise.models.metric import Metric
from likewise.ops.ground import sqeuclidean
from likewise.search.normalization import normalized
from likewise.web import bodies
from likewise.web.collection import Collection
from likewise.web.judging import judge
from likewise.web.limits import Limits
from likewise.web.maps import draw_map
from likewise.web.pictures import as_picture, as_series, png, series, thumbnail, tiles
from likewise.web.refusals import Refusal
from likewise.web.understanding import contributions
from likewise.web.uploads import Uploads
from likewise.web.work import Job

GRID = 192  # cells of a picture of a matrix, each way
MOST_CELLS = 1 << 24  # cells of an alignment
COLUMNS = 512  # of the picture of contributions
MOST_PAIRS = 4000  # of a path that is drawn


class Panels:
    """The panels Look, Ask, Understand and Judge of a Collection. Maps and scores are computed once and kept."""

    def __init__(self, collection: Collection, limits: Limits, seed: int = 0) -> None:
        if collection.items is None:
            raise ValueError("the explorer needs items; give it data")
        self.collection, self.limits, self.seed = collection, limits, seed
        self.uploads = Uploads(limits, collection.like)
        self._kept: dict[Any, Any] = {}
        self._locks: dict[Any, Lock] = {}

    def _once(self, key: Any, job: Job, make: Any) -> Any:
        """Computed once for each key, on first use; concurrent callers wait for the result."""
        lock = self._locks.setdefault(key, Lock())
        while not lock.acquire(timeout=0.1):
            job.check()
        try:
            if key not in self._kept:
                self._kept[key] = make()
            return self._kept[key]
        finally:
            lock.release()

    def warm(self) -> None:
        """Compute the first map in advance."""
        name, _ = self.collection.metric(None)
        threading.Thread(target=self._try_map, args=(name,), daemon=True, name="likewise-map").start()

    def _try_map(self, name: str) -> None:
        with contextlib.suppress(Exception):  # raised again when the map is requested
            self.map(Job(), name, None)

    def describe(self) -> dict[str, Any]:
        """The collection, its metrics and its columns."""
        held = self.collection
        lengths, like = held.lengths, held.like
        return {
            "name": held.name,
            "kind": held.kind,
            "items": len(held),
            "classes": list(held.classes),
            "metrics": [
                {"name": name, "about": repr(metric).replace("\n", " ")[:200], "embeds": self._embeds(name)}
                for name, metric in held.metrics.items()
            ],
            "channels": like.channels,
            "image": like.image,
            "lengths": [int(lengths.min()), int(lengths.max())],
            "umap": _has_umap(),
        }

    def _embeds(self, name: str) -> bool:
        metric = self.collection.metrics[name]
        return isinstance(metric, Metric) and metric.encoder is not None

    def map(self, job: Job, name: str | None, method: str | None) -> dict[str, Any]:
        """Look: a place for every item, with its class, length and id."""
        name, _ = self.collection.metric(name)
        if method not in (None, "pca", "mds", "umap"):
            raise Refusal(422, "method: expected pca, mds or umap")
        found = self._once(
            ("map", name, method),
            job,
            lambda: draw_map(self.collection, name, job, method=method, seed=self.seed),
        )
        held = self.collection
        picked = found.items
        return {
            "metric": name,
            "method": found.method,
            "share": found.share,
            "total": len(held),
            "items": picked.tolist(),
            "x": _thousandths(found.places[:, 0]),
            "y": _thousandths(found.places[:, 1]),
            "codes": held.codes[picked].tolist() if held.labels is not None else None,
            "lengths": held.lengths[picked].tolist(),
            "ids": [held.ids[i] for i in picked.tolist()] if len(picked) <= 20_000 else None,
        }

    def thumbnails(self, items: list[int], size: int) -> Any:
        """Small series, or one PNG with all the tiles."""
        if self.collection.kind == "images":
            self.collection.take(items)  # refuses wrong positions
            return tiles(self.collection, items, size)
        found = self.collection.take(items)
        return {"series": [thumbnail(as_series(found[i])) for i in range(len(items))]}

    def item(self, text: str) -> Any:
        """One item, whole."""
        if not text.isdecimal() or len(text) > 12:
            raise Refusal(422, "item: expected a position")
        return self._drawn(self.collection.take([int(text)]), {"item": int(text)})

    def upload(self, body: bytes, kind: str) -> dict[str, Any]:
        """Keep a file's item in memory, and show it."""
        item = self.uploads.read(body, kind)
        name = self.uploads.add(item)
        return {"upload": name, **self._drawn(item, {})}

    def find(self, ref: Any) -> Batch | Tensor:
        """The item that a reference means, as a batch of one."""
        given = [name for name in ("item", "upload", "values") if getattr(ref, name) is not None]
        if len(given) != 1:
            raise Refusal(422, "expected one of item, upload and values")
        if ref.item is not None:
            found = self.collection.take([ref.item])
        elif ref.upload is not None:
            found = self.uploads.get(ref.upload)
        else:
            found = _sequence(ref.values, self.limits, self.collection)
        if ref.start is None and ref.end is None:
            return found
        if not isinstance(found, Batch):
            raise Refusal(422, "only sequences have stretches")
        steps = int(found.lengths[0])
        start, end = ref.start or 0, steps if ref.end is None else ref.end
        if not 0 <= start < end <= steps:
            raise Refusal(422, f"expected a stretch within {steps} steps, got {start} to {end}")
        return Batch(found.values[:, start:end].clone())

    def ask(self, job: Job, ref: Any, metrics: list[str], k: int) -> dict[str, Any]:
        """Ask: the neighbours of a query under several metrics; of a stretch, the other stretches that match it."""
        query, stretch = self.find(ref), _is_stretch(ref)
        skip = [ref.item] if ref.item is not None and not stretch else None
        answers = []
        for name in metrics:
            self.collection.metric(name)
            began = time.perf_counter()
            try:
                found = self.collection.search(name, query, k=k + stretch, skip=skip, windows=stretch, job=job)
            except (ValueError, NotImplementedError) as error:
                answers.append({"metric": name, "problem": str(error)[:300]})
                continue
            answers.append(
                {
                    "metric": name,
                    "hits": [self._hit(hit) for hit in found.hits[0] if not (stretch and _is_own(ref, hit))][:k],
                    "seconds": found.seconds,
                    "waited": time.perf_counter() - began,
                    "method": found.method,
                    "candidates": found.candidates,
                    "pruned": found.killed,
                }
            )
        return {"query": self._drawn(query, {}), "answers": answers, "stretch": stretch}

    def _hit(self, hit: Any) -> dict[str, Any]:
        held = self.collection
        label = None if held.labels is None else str(held.labels[hit.item])
        found = {"item": hit.item, "id": held.ids[hit.item], "label": label, "distance": hit.distance}
        found |= {"start": hit.start, "end": hit.end, "length": int(held.lengths[hit.item])}
        if held.kind != "images":
            item = as_series(held.take([hit.item])[0])
            found["series"] = thumbnail(item, 160)
        return found

    def understand(self, job: Job, x_ref: Any, y_ref: Any, name: str) -> dict[str, Any]:
        """Understand: how two items match, and which of their parts carry the distance."""
        name, metric = self.collection.metric(name)
        x, y = self.find(x_ref), self.find(y_ref)
        scaled = _is_stretch(x_ref) or _is_stretch(y_ref)
        if scaled and isinstance(x, Batch) and isinstance(y, Batch):  # as the search for stretches compares them
            x, y = normalized(x), normalized(y)
        answer: dict[str, Any] = {
            "metric": name,
            "scaled": scaled,
            "x": self._drawn(x, _named(x_ref)),
            "y": self._drawn(y, _named(y_ref)),
        }
        alignment = None
        if isinstance(x, Batch) and isinstance(y, Batch):
            if int(x.lengths[0]) * int(y.lengths[0]) > MOST_CELLS:
                raise Refusal(422, "these sequences are too long to align; choose a stretch of each")
            alignment = self.collection.try_align(name, x, y)
            job.check()
            answer["cost"] = self._cost(metric, x, y)
        if alignment is not None:
            answer["alignment"] = _alignment(alignment, x, y)  # type: ignore[arg-type]
        job.check()
        found = contributions(metric, x, y, alignment, job)
        answer["distance"] = float(found.parts.sum()) + found.rest
        answer["contributions"] = _parts(found.parts) | {"rest": found.rest, "method": found.method}
        if self.collection.kind == "images":
            answer["attention"] = [self._attention(metric, item) for item in (x, y)]
        return answer

    def _cost(self, metric: Any, x: Batch, y: Batch) -> dict[str, Any] | None:
        """The costs between frames, as the metric's distance sees them."""
        inner = metric.distance if isinstance(metric, Metric) else metric
        a, b = (metric.embed(part) if isinstance(metric, Metric) else part for part in (x, y))
        ground = getattr(inner, "ground", None)
        cost: Any = ground if callable(ground) else sqeuclidean
        if not isinstance(a, Batch) or not isinstance(b, Batch):
            return None
        with torch.no_grad():
            return _grid(cost(_thin(a), _thin(b))[0])

    def _attention(self, metric: Any, x: Batch | Tensor) -> dict[str, Any] | None:
        """Where an encoder of attended features looks, for each of its layers."""
        parts = [] if not isinstance(metric, Metric) or metric.encoder is None else metric.encoder.modules()
        encoder = next((part for part in parts if isinstance(part, AttendedFeatures)), None)
        if encoder is None or not isinstance(metric, Metric):
            return None
        with torch.no_grad(), evaluating(metric):
            maps = encoder.attend(metric._ready(x)).maps  # type: ignore[arg-type]
        return {layer: _grid(weights[0]) for layer, weights in maps.items() if weights.ndim == 3}

    def judge(self, job: Job, name: str | None) -> dict[str, Any]:
        """Judge: scores, confusions and the items behind them."""
        name, _ = self.collection.metric(name)
        found = self._once(("judge", name), job, lambda: judge(self.collection, name, job, seed=self.seed))
        held = self.collection
        return {
            "metric": name,
            "classes": list(held.classes),
            "total": len(held),
            "references": found.references,
            "scores": {key: list(value) for key, value in found.scores.items()},
            "confusion": found.confusion.tolist(),
            "curve": {"recall": found.curve[0], "precision": found.curve[1]},
            "queries": {
                "items": found.queries.tolist(),
                "ids": [held.ids[i] for i in found.queries.tolist()],
                "codes": held.codes[found.queries].tolist(),
                "predicted": found.predicted.tolist(),
                "nearest": found.nearest.tolist(),
                "distance": found.distance.tolist(),
                "precision": found.precision.round(4).tolist(),
            },
            "hardest": [row | self._names(row["query"], row["item"]) for row in found.hardest],
            "suspects": [
                row
                | {"id": held.ids[row["item"]], "label": str(held.labels[row["item"]])}  # type: ignore[index]
                | {"suggested": held.classes[row["suggested"]]}
                for row in found.suspects
            ],
        }

    def _names(self, query: int, item: int) -> dict[str, Any]:
        labels, ids = self.collection.labels, self.collection.ids
        assert labels is not None
        found = {"query_id": ids[query], "item_id": ids[item]}
        return found | {"query_label": str(labels[query]), "item_label": str(labels[item])}

    def _drawn(self, item: Batch | Tensor, about: dict[str, Any]) -> dict[str, Any]:
        """An item as the page draws it."""
        held = self.collection
        if "item" in about:
            place = about["item"]
            about = {**about, "id": held.ids[place], "label": None if held.labels is None else str(held.labels[place])}
        if isinstance(item, Tensor) and item.ndim == 4:
            picture = as_picture(item[0])
            return {**about, "png": base64.b64encode(png(picture)).decode(), "length": 1}
        values, step = series(as_series(item[0]))
        length = int(item.lengths[0]) if isinstance(item, Batch) else item.shape[1]
        return {**about, "series": values, "step": step, "length": length}


def _sequence(values: Any, limits: Limits, collection: Collection) -> Batch:
    """A drawn series, as a query."""
    if collection.like.image is not None:
        raise Refusal(422, "this collection holds images; a drawn series cannot be a query")
    return bodies.sequences("values", [values], limits, collection.like.channels)


def _has_umap() -> bool:
    from importlib.util import find_spec

    return find_spec("umap") is not None


def _is_stretch(ref: Any) -> bool:
    return ref.start is not None or ref.end is not None


def _is_own(ref: Any, hit: Any) -> bool:
    """Whether a match of a stretch is that stretch."""
    return hit.item == ref.item and 2 * abs(hit.start - (ref.start or 0)) < hit.end - hit.start


def _named(ref: Any) -> dict[str, Any]:
    if ref.item is None:
        return {}
    return {"item": ref.item} | ({"start": ref.start, "end": ref.end} if _is_stretch(ref) else {})


def _thousandths(values: np.ndarray) -> list[int]:
    """Places in [-1, 1] as whole thousandths of a percent: short in JSON."""
    return (values * 10_000).round().astype(int).tolist()


def _thin(batch: Batch) -> Tensor:
    """At most GRID frames of a batch of one, (1, n, C)."""
    steps = int(batch.lengths[0])
    return batch.values[:, torch.linspace(0, steps - 1, min(steps, GRID)).round().long()]


def _grid(values: Tensor) -> dict[str, Any]:
    """A matrix as bytes: 255 is the largest value; sides of more than GRID are thinned by their largest values."""
    values = values.detach().float()
    shape = [min(side, GRID) for side in values.shape]
    if shape != list(values.shape):
        values = torch.nn.functional.adaptive_max_pool2d(values[None], (shape[0], shape[1]))[0]
    low, high = float(values.min()), float(values.max())
    scaled = ((values - low) / max(high - low, 1e-30) * 255).round().to(torch.uint8).numpy()
    return {
        "rows": shape[0],
        "columns": shape[1],
        "low": low,
        "high": high,
        "bytes": base64.b64encode(scaled.tobytes()).decode(),
    }


def _alignment(alignment: Alignment, x: Batch, y: Batch) -> dict[str, Any]:
    with torch.no_grad():
        path = alignment.path(0)
        warp = alignment.warp[0, : int(x.lengths[0])].tolist()
        found: dict[str, Any] = {"steps": len(path), "warp": warp[:: max(1, len(warp) // MOST_PAIRS)]}
        found["path"] = path[:: max(1, -(-len(path) // MOST_PAIRS))].tolist()
        if not isinstance(alignment, PathAlignment):
            found["plan"] = _grid(alignment.plan[0, : int(x.lengths[0]), : int(y.lengths[0])])
    return found


def _parts(parts: Tensor) -> dict[str, Any]:
    """Contributions by frame, by channel, and as a picture; of an image, by position."""
    if parts.ndim == 3:  # (C, H, W)
        return {"by_channel": parts.sum((1, 2)).tolist(), "picture": _grid(parts.sum(0))}
    if parts.ndim == 1:
        parts = parts[:, None]
    picture = parts.abs().T
    if picture.shape[1] > COLUMNS:
        picture = torch.nn.functional.adaptive_max_pool1d(picture[None].float(), COLUMNS)[0]
    return {"by_frame": parts.sum(1).tolist(), "by_channel": parts.sum(0).tolist(), "picture": _grid(picture)}
