"""Metric: an encoder and a distance, trained, saved and loaded as one."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from likewise import _check
from likewise._labels import is_map_style, items_of
from likewise._modes import evaluating
from likewise._progress import track
from likewise.data.batch import Batch, as_sequences
from likewise.data.loading import Loader
from likewise.data.standardization import Standardization, watching
from likewise.distances.alignment import Alignment
from likewise.distances.distance import Distance
from likewise.distances.training_defaults import TrainingDefaults
from likewise.models.attended_features import Attended, AttendedFeatures
from likewise.models.config import build, describe, sketch
from likewise.models.pixels import takes_bytes
from likewise.models.storage import read_json, read_shapes, read_tensors, write_json, write_tensors

# A Metric takes a Dataset or an ImageSet, a pair (items, labels), a Batch, a list of sequences, or a tensor that its
# encoder takes, such as (B, T, C) or (B, C, H, W).
Items = object
Encoded = Batch | Tensor

CONFIG, WEIGHTS = "config.json", "model.safetensors"
CHUNK = 256  # items encoded at once, without gradients
MOST_BYTES = 8 << 30  # bytes of weights in a file, unless the caller allows more


class Metric(Distance):
    """The distance between encoded items: d(encoder(x), encoder(y)). A Metric is itself a distance.

    encoder: a module that maps items (a Batch, or images (B, C, H, W)) to a Batch or to vectors (B, D); None leaves
        items unchanged.
    distance: a Distance between the encoder's outputs.

    Items are moved to the encoder's device and type. ``matrix``, ``()`` and ``align`` carry gradients, so that
    ``loss(metric.matrix(batch), labels).backward()`` trains it; for large sets call them under ``torch.no_grad()``, or
    compare the results of ``embed``. ``save`` and ``load`` use JSON and safetensors.

    Example:
        >>> from likewise import DTW
        >>> from likewise.models.frame_mlp import FrameMLP
        >>> metric = Metric(FrameMLP(3, hidden=16, out=8), DTW())
        >>> batch = Batch(torch.randn(4, 10, 3), [10, 7, 5, 9])
        >>> metric.matrix(batch).shape
        torch.Size([4, 4])
        >>> metric.embed(batch)
        Batch(4 sequences, 5..10 steps, 8 channels, torch.float32, cpu)
    """

    def __init__(self, encoder: nn.Module | None, distance: Distance) -> None:
        super().__init__()
        if encoder is not None and not isinstance(encoder, nn.Module):
            raise TypeError(f"Metric: expected encoder to be an nn.Module or None, got {type(encoder).__name__}")
        if not isinstance(distance, Distance):
            raise TypeError(f"Metric: expected distance to be a Distance, got {type(distance).__name__}")
        self.encoder = encoder
        self.distance = distance
        self.symmetric = distance.symmetric

    @property
    def name(self) -> str:
        """The name of this metric in errors and lists, such as "learned TAP"; without an encoder, its distance's."""
        return self.distance.name if self.encoder is None else f"learned {self.distance.name}"

    @property
    def training_defaults(self) -> TrainingDefaults:  # type: ignore[override]
        """The defaults of ``fit``: those of the distance and of the encoder, combined.

        If the distance has no parameters, all but its loss come from the encoder.
        """
        own = self.distance.training_defaults
        parts = () if self.encoder is None else self.encoder.modules()  # including those inside an Embedder
        found = (part.training_defaults for part in parts if hasattr(part, "training_defaults"))
        encoder: TrainingDefaults | None = next(found, None)  # type: ignore[assignment]
        if encoder is None:
            return own
        if next(self.distance.parameters(), None) is None:
            return encoder if own.loss is None else replace(encoder, loss=own.loss)
        return own.combined(encoder)

    @property
    def unprepared(self) -> list[Standardization]:
        """The parts that standardise their input but have no mean and deviation yet."""
        return [part for part in self.modules() if isinstance(part, Standardization) and not part.known]

    def prepare(self, x: Items) -> None:
        """Set the mean and deviation of ``unprepared`` parts from their input for these items. ``fit`` calls it."""
        parts = self.unprepared
        if not parts:
            return
        with torch.no_grad(), evaluating(self), watching(parts):
            encoded = self._encode(as_items("Metric.prepare", "x", x))
            if not all(part.known for part in parts):  # those of the distance
                self.distance(encoded, encoded)

    def encode(self, x: Items) -> Encoded:
        """Encode items with gradients, in the encoder's current mode (train or eval).

        Under ``torch.no_grad()`` large sets are encoded piece by piece.
        """
        x = items_of(x)
        if is_map_style(x):
            return self._joined(self._encode(items) for items in Loader(x).pieces(CHUNK))
        items = as_items("Metric", "x", x)
        if torch.is_grad_enabled() or len(items) <= CHUNK:
            return self._encode(items)
        starts = range(0, len(items), CHUNK)
        return self._joined(self._encode(take(items, slice(start, start + CHUNK))) for start in starts)

    def _encode(self, items: Batch | Tensor) -> Encoded:
        x = self._ready(items)
        if self.encoder is None:
            return x
        encoded = self.encoder(x)
        if not isinstance(encoded, (Batch, Tensor)) or len(encoded) != len(x):
            got = repr(encoded) if isinstance(encoded, Batch) else type(encoded).__name__
            _check.refuse("Metric", f"expected the encoder to return a Batch or a tensor of {len(x)} items, got {got}")
        return encoded

    def embed(self, x: Items, *, chunk: int = CHUNK, workers: int = 0, progress: bool = False) -> Encoded:
        """Encode items in eval mode, without gradients, ``chunk`` at a time: a Batch, or vectors (N, D).

        x: items, a Dataset, or a map-style dataset of (item, label) with ``labels``, whose items are read by
            ``workers`` processes and are never all in memory.
        """
        chunk, x = _check.whole("Metric.embed", "chunk", chunk), items_of(x)
        if is_map_style(x):
            pieces: Iterable[Any] = Loader(x, workers).pieces(chunk)
        else:
            x = as_items("Metric.embed", "x", x)
            pieces = (take(x, slice(start, start + chunk)) for start in range(0, max(1, len(x)), chunk))
        if progress:
            count = len(x)  # type: ignore[arg-type]
            pieces = track(pieces, f"Encoding {count:,} items", max(1, -(-count // chunk)))
        return self.embed_pieces(pieces, len(x))  # type: ignore[arg-type]

    def embed_pieces(self, pieces: Iterable[Any], total: int) -> Encoded:
        """Like ``embed``, for items that arrive in pieces, ``total`` in all."""
        with torch.no_grad(), evaluating(self):
            return self._gathered((self._encode(piece) for piece in pieces), total)

    def attend(self, x: Items, *, chunk: int = CHUNK) -> Attended:
        """The features and attention maps of the encoder's ``AttendedFeatures`` for these items; see its ``attend``.

        Images are bytes or scaled floats, as for ``embed``; with a RandomCrop, the maps are of the centre crop. This
        runs in eval mode, without gradients.
        """
        parts = () if self.encoder is None else self.encoder.modules()
        part = next((part for part in parts if isinstance(part, AttendedFeatures)), None)
        if part is None or self.encoder is None:
            _check.refuse("Metric.attend", "the encoder has no AttendedFeatures, which attend needs")
        items, given = as_items("Metric.attend", "x", x), []
        handle = part.register_forward_pre_hook(lambda module, arguments: given.append(arguments[0]))
        try:
            with torch.no_grad(), evaluating(self):
                found = []
                for start in range(0, max(1, len(items)), chunk):
                    self._encode(take(items, slice(start, start + chunk)))
                    found.append(part.attend(given.pop()))
        finally:
            handle.remove()
        return Attended(
            torch.cat([one.features for one in found]),
            {name: torch.cat([one.maps[name] for one in found]) for name in found[0].maps},
        )

    def _gathered(self, encoded: Iterable[Encoded], total: int) -> Encoded:
        """Like ``_joined``, without gradients: vectors are copied into the result as they arrive.

        Keeping many small tensors between large ones that are freed would fragment the heap.
        """
        pieces = iter(encoded)
        first = next(pieces, None)
        if first is None or isinstance(first, Batch) or len(first) == total:
            return self._joined([] if first is None else [first, *pieces])
        whole, done = first.new_empty((total, *first.shape[1:])), 0
        for piece in chain([first], pieces):
            whole[done : done + len(piece)] = piece  # type: ignore[assignment]
            done += len(piece)
        return whole

    def _joined(self, encoded: Iterable[Encoded]) -> Encoded:
        parts = list(encoded)
        if not parts:
            _check.refuse("Metric", "there are no items")
        if isinstance(parts[0], Batch):
            return parts[0] if len(parts) == 1 else Batch.cat(parts)  # type: ignore[arg-type]
        return torch.cat(parts)  # type: ignore[arg-type]

    def forward(self, x: Items, y: Items) -> Tensor:
        """Distances (B,) between x[b] and y[b]."""
        return self.distance(self.encode(x), self.encode(y))

    def matrix(self, x: Items, y: Items | None = None, *, progress: bool = False) -> Tensor:
        """Distances (N, M) between every x[i] and every y[j]; without y, (N, N) between all pairs of x."""
        encoded = self.encode(x)
        return self.distance.matrix(encoded, None if y is None or y is x else self.encode(y), progress=progress)

    def align(self, x: Items, y: Items) -> Alignment:
        """Align x[b] and y[b], for every b."""
        return self.distance.align(self.encode(x), self.encode(y))

    def paired(self, x: Tensor, y: Tensor, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (B,) of padded pairs."""
        return self(Batch(x, x_lengths), Batch(y, y_lengths))

    def all_pairs(self, x: Tensor, y: Tensor | None, x_lengths: Tensor | None, y_lengths: Tensor | None) -> Tensor:
        """Distances (N, M) of padded sequences."""
        return self.matrix(Batch(x, x_lengths), None if y is None else Batch(y, y_lengths))

    def save(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors to a folder, which is created if needed.

        The first holds the classes and their settings, the second the weights. Neither contains code.
        """
        folder = Path(folder)
        description, weights = describe(self), tensors_of(self)  # before anything is written
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(folder / WEIGHTS, weights)
        write_json(folder / CONFIG, {"likewise": 1, "metric": description})

    @classmethod
    def load(cls, folder: str | Path, *, classes: Iterable[type[nn.Module]] = (), limit: int = MOST_BYTES) -> Self:
        """Load a metric that ``save`` wrote, on the CPU and in eval mode.

        classes: your own classes that the metric uses. Only these and likewise's classes are ever instantiated. Their
        settings still come from the file: be careful with files from untrusted sources.
        limit: the largest size of the weights in bytes, checked before memory is allocated.
        """
        folder, classes = Path(folder), list(classes)
        path = folder / CONFIG
        config = read_json(path)
        if not isinstance(config, dict) or config.get("likewise") != 1 or set(config) != {"likewise", "metric"}:
            _check.refuse(str(path), 'not a metric saved by likewise: expected {"likewise": 1, "metric": ...}')
        if not isinstance(config["metric"], dict):
            _check.refuse(str(path), "not a metric saved by likewise: expected a mapping of class and settings")
        tensors = len(read_shapes(folder / WEIGHTS))
        expected = sketch(str(path), config["metric"], [cls, *classes], tensors, WEIGHTS)  # check sizes first
        if not isinstance(expected, cls):
            _check.refuse(str(path), f"expected a {cls.__name__}, got a {type(expected).__name__}")
        beside = sum(b.numel() * b.element_size() for b in expected.buffers())
        if beside > limit:
            _check.refuse(str(path), f"has {beside} bytes of buffers, more than limit={limit}")
        weights = read_tensors(folder / WEIGHTS, tensors_of(expected), limit=limit)
        with torch.random.fork_rng(devices=[]):  # drawing the initial weights must not advance the caller's generator
            metric = build(str(path), config["metric"], [cls, *classes])
        put_tensors(metric, weights)
        assert isinstance(metric, cls)
        return metric.eval()

    def _ready(self, x: Batch | Tensor) -> Batch | Tensor:
        """Items on the device and in the type of the first parameter; bytes for an encoder that scales pixels."""
        for parameter in self.parameters():
            if parameter.is_floating_point():
                if x.dtype == torch.uint8 and takes_bytes(self.encoder):
                    return x.to(parameter.device)
                return x.to(parameter.device, parameter.dtype)
        return x


def as_items(op: str, name: str, value: Items) -> Batch | Tensor:
    """Items as a Batch or a tensor: sequences become a Batch; images and vectors stay tensors."""
    if isinstance(value, Batch):
        return value
    value = items_of(value)
    if isinstance(value, np.ndarray) and value.ndim in (2, 4):
        value = torch.as_tensor(value if value.flags.writeable else value.copy())
    if isinstance(value, Tensor) and value.ndim == 4 and value.dtype == torch.uint8:
        return value  # images stay bytes until they are encoded
    if isinstance(value, Tensor) and value.ndim in (2, 4):
        return _check.is_tensor(op, name, value)
    return Batch(*as_sequences(op, name, value))


def take(items: Batch | Tensor, index: slice | Tensor) -> Batch | Tensor:
    """Select some of the items; a Batch is trimmed to the longest of them."""
    if isinstance(items, Tensor):
        return items[index]
    lengths = items.lengths[index]
    longest = int(lengths.max()) if len(lengths) else items.values.shape[1]
    return Batch(items.values[index, :longest], lengths)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a module by name."""
    state = module.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{type(module).__name__}: a file cannot hold its extra state {name!r}")
    return state


def put_tensors(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load the tensors that ``tensors_of`` returned into a module, in their types."""
    for name, tensor in module.state_dict(keep_vars=True).items():
        if tensor.dtype != tensors[name].dtype:
            tensor.data = tensor.data.to(tensors[name].dtype)
    module.load_state_dict(tensors)
