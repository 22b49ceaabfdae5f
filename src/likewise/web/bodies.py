"""Request bodies: JSON, .npy arrays or pictures, checked before anything is computed."""

from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from torch import Tensor

from likewise.data.batch import Batch
from likewise.data.images import decode
from likewise.data.npz import decode_npy
from likewise.web.limits import Limits
from likewise.web.refusals import Refusal

JSON, NPY = "application/json", "application/x-npy"
LARGEST = 1e18  # the squares of such numbers still fit float32
PICTURES = ("image/png", "image/jpeg", "image/webp")

Frame = Annotated[list[FiniteFloat], Field(min_length=1, fail_fast=True)]
# Numbers for one channel, or frames for several.
Sequence = Annotated[
    Annotated[list[FiniteFloat], Field(min_length=1, fail_fast=True)]
    | Annotated[list[Frame], Field(min_length=1, fail_fast=True)],
    Field(union_mode="left_to_right", examples=[[0.0, 1.0, 2.0], [[0.0, 1.0], [1.0, 1.0]]]),
]
Items = Annotated[list[Sequence], Field(min_length=1)]
Metric = Annotated[str | None, Field(max_length=200, description="One of /healthz's metrics; the first by default.")]

Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """A body that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class SearchOptions(Strict):
    """How to search; with an .npy body, these are parameters of the address."""

    metric: Metric = None
    k: Annotated[int, Field(ge=1, description="How many neighbours.")] = 10
    within: Annotated[FiniteFloat | None, Field(ge=0, description="The largest distance of a neighbour.")] = None


class SearchBody(SearchOptions):
    """Queries for /search."""

    queries: Items


class EmbedOptions(Strict):
    """How to embed."""

    metric: Metric = None


class EmbedBody(EmbedOptions):
    """Items for /embed."""

    items: Items


class PairsBody(Strict):
    """Pairs for /align and /explain: x[b] with y[b]."""

    metric: Metric = None
    x: Items
    y: Items


def parse(model: type[Model], body: bytes | bytearray) -> Model:
    """A JSON body as a model; what does not fit is refused with the place."""
    try:
        return model.model_validate_json(bytes(body), strict=True)  # true is not a number
    except ValidationError as error:
        raise Refusal(422, _first_problem(error)) from None


def parse_options(model: type[Model], given: dict[str, Any]) -> Model:
    """Parameters of the address as a model."""
    try:
        return model.model_validate_strings(given)
    except ValidationError as error:
        raise Refusal(422, _first_problem(error)) from None


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("list[", "constrained")))
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{place[:200] or 'body'}: {first['msg']}{more}"


def sequences(name: str, items: list[Any], limits: Limits, channels: int | None = None) -> Batch:
    """Sequences of a JSON body as a Batch, within the limits."""
    _check_count(name, len(items), limits)
    tensors: list[Tensor] = []
    for i, item in enumerate(items):
        _check_length(name, i, len(item), limits)
        width = len(item[0]) if isinstance(item[0], list) else 1
        if isinstance(item[0], list) and any(len(frame) != width for frame in item):
            raise Refusal(422, f"{name}[{i}]: frames have different numbers of channels")
        tensors.append(torch.tensor(item, dtype=torch.float64).reshape(len(item), width))
        _check_channels(name, i, width, limits, channels)
    widths = {tensor.shape[1] for tensor in tensors}
    if len(widths) > 1:
        raise Refusal(422, f"{name}: items have different numbers of channels: {', '.join(map(str, sorted(widths)))}")
    batch = Batch.from_list(tensors)
    _check_size(name, batch.values)
    return batch.to(torch.float32)


def array(body: bytes | bytearray, name: str, limits: Limits, like: "Like") -> Batch | Tensor:
    """An .npy body as items: (B, T, C), (T, C) or (T,) for sequences, (B, C, H, W) or (C, H, W) for images."""
    try:
        found = decode_npy(bytes(body), name, limit=limits.body)
    except ValueError as error:
        raise Refusal(422, str(error)) from None
    if found.dtype.kind not in "fiu":
        raise Refusal(422, f"{name}: expected numbers, got {found.dtype}")
    if like.image is not None:
        return _images(found, name, limits, like.image)
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim == 2:
        found = found[None]
    if found.ndim != 3 or 0 in found.shape:
        raise Refusal(422, f"{name}: expected shape (B, T, C), (T, C) or (T,), got {found.shape}")
    _check_count(name, len(found), limits)
    _check_length(name, 0, found.shape[1], limits)
    _check_channels(name, 0, found.shape[2], limits, like.channels)
    values = torch.from_numpy(_float32(found))
    _check_size(name, values)
    return Batch(values)


def _float32(found: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        return np.array(found, dtype=np.float32, order="C")


def _images(found: np.ndarray, name: str, limits: Limits, shape: tuple[int, ...]) -> Tensor:
    found = found[None] if found.ndim == 3 else found
    if found.ndim != 4 or found.shape[1:] != shape or found.dtype != np.uint8 or not len(found):
        expected = f"uint8 of shape (B, {', '.join(map(str, shape))})"
        raise Refusal(422, f"{name}: expected {expected}, got {found.dtype} of shape {found.shape}")
    _check_count(name, len(found), limits)
    return torch.from_numpy(np.array(found))


def picture(body: bytes | bytearray, limits: Limits, shape: tuple[int, ...]) -> Tensor:
    """A PNG, JPEG or WebP picture as one item, (1, C, H, W) uint8, in the size of the collection's images."""
    import io

    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(body), formats=("PNG", "JPEG", "WEBP")) as image:
            pixels = image.width * image.height  # known from the header; nothing is decoded yet
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise Refusal(422, "the picture cannot be read") from None
    if pixels > limits.pixels:
        raise Refusal(413, f"the picture has {pixels} pixels, more than {limits.pixels}")
    try:
        return decode(bytes(body), "picture", size=shape[1], channels=shape[0])[None]
    except ValueError as error:
        raise Refusal(422, str(error)) from None


class Like:
    """The form of the collection's items: the channels of its sequences, or the shape of its images."""

    def __init__(self, channels: int | None = None, image: tuple[int, ...] | None = None) -> None:
        self.channels, self.image = channels, image


def _check_count(name: str, count: int, limits: Limits) -> None:
    if count > limits.queries:
        raise Refusal(422, f"{name}: {count} items, more than {limits.queries}; send them in parts")


def _check_length(name: str, i: int, length: int, limits: Limits) -> None:
    if length > limits.length:
        raise Refusal(422, f"{name}[{i}]: {length} steps, more than {limits.length}")


def _check_size(name: str, values: Tensor) -> None:
    if not (values.abs() <= LARGEST).all():  # NaN is not, either
        raise Refusal(422, f"{name}: numbers must be finite, from {-LARGEST:g} to {LARGEST:g}")


def _check_channels(name: str, i: int, channels: int, limits: Limits, expected: int | None) -> None:
    if channels > limits.channels:
        raise Refusal(422, f"{name}[{i}]: {channels} channels, more than {limits.channels}")
    if expected is not None and channels != expected:
        raise Refusal(422, f"{name}[{i}]: expected {expected} channels, got {channels}")
