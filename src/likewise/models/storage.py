"""Files with numbers and settings but without code: safetensors and JSON, written atomically."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from likewise import _check
from likewise._output import writing

MOST_JSON = 1 << 20  # bytes
# Floating-point types are interchangeable, so that a model can be saved in half or double precision.
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
OTHERS = {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
DTYPES = FLOATS | OTHERS | {"BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    with writing(path) as part:
        part.write_text(text, encoding="utf-8")


def read_json(path: Path) -> object:
    """Read a JSON file of at most MOST_JSON bytes."""
    with _regular(path).open("rb") as file:
        content = file.read(MOST_JSON + 1)
    if len(content) > MOST_JSON:
        _check.refuse(str(path), f"has more than {MOST_JSON} bytes; likewise does not write such files")
    return parse_json(str(path), content)


def parse_json(where: str, content: str | bytes) -> object:
    """Parse JSON, rejecting NaN, numbers with thousands of digits, and deep nesting."""
    try:
        return json.loads(content, parse_constant=_no_constant)
    except RecursionError:
        _check.refuse(where, "nested too deeply")
    except ValueError as error:
        raise ValueError(f"{where}: not valid JSON: {error}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: str = "") -> None:
    """Write named tensors and a note to one safetensors file."""
    with writing(path) as part, part.open("wb") as file:
        for piece in encoded(tensors, note):
            file.write(piece)


def encoded(tensors: Mapping[str, Tensor], note: str = "") -> Iterator[Any]:
    """The content of a safetensors file, piece by piece: its header, then the bytes of each tensor.

    This replaces safetensors' own ``save``, which keeps a ctypes type for every size that it has seen (0.8, through
    NumPy) and refuses tensors that share memory.

    Example:
        >>> from safetensors.torch import load
        >>> load(b"".join(encoded({"a": torch.tensor([1.0, 2.0])})))
        {'a': tensor([1., 2.])}
    """
    header: dict[str, Any] = {"__metadata__": {"note": note}} if note else {}
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so all are aligned
    end = 0
    for name in names:
        tensor, start = tensors[name], end
        if tensor.dtype not in NAMES:
            raise TypeError(f"{name}: a file cannot hold {tensor.dtype}")
        end += tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield tensors[name].detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()


def read_note(path: Path) -> str:
    """The note of a safetensors file."""
    with _opened(path) as file:
        return (file.metadata() or {}).get("note", "")


def read_shapes(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, on the meta device: shapes and types without data."""
    shapes = {}
    with _opened(path) as file:
        for name in file.keys():  # noqa: SIM118, not a dict
            part = file.get_slice(name)
            dtype = DTYPES.get(part.get_dtype())
            if dtype is None:
                _check.refuse(str(path), f"{name} holds {part.get_dtype()}, a type that likewise does not write")
            shapes[name] = torch.empty(part.get_shape(), dtype=dtype, device="meta")
    return shapes


def read_tensors(path: Path, expected: Mapping[str, Tensor], *, limit: int) -> dict[str, Tensor]:
    """Read the expected tensors. Extra or missing ones and wrong shapes raise an error before any is loaded.

    ``expected`` gives names, shapes and types, and may be on the meta device. A floating-point tensor may be stored
    in another floating-point type; it is returned in that type.
    """
    where = str(path)
    with _opened(path) as file:
        names = set(file.keys())
        _same_names(where, names, expected)
        size = 0
        for name, tensor in expected.items():
            part = file.get_slice(name)
            shape, dtype = tuple(part.get_shape()), DTYPES.get(part.get_dtype())
            if shape != tuple(tensor.shape):
                _check.refuse(where, f"{name} has shape {shape}, but the model's has {tuple(tensor.shape)}")
            if dtype is None or (
                dtype != tensor.dtype and not (dtype.is_floating_point and tensor.is_floating_point())
            ):
                _check.refuse(where, f"{name} is {part.get_dtype()}, but the model's is {tensor.dtype}")
            size += tensor.numel() * dtype.itemsize
        if size > limit:
            _check.refuse(where, f"has {size} bytes of tensors, more than limit={limit}")
    return mapped(path, expected)


def mapped(path: Path, names: Iterable[str]) -> dict[str, Tensor]:
    """Tensors of a safetensors file that ``safe_open`` accepts, mapped into memory: unused data are not read.

    safetensors' own ``get_tensor`` leaks a few bytes at each call (0.8).
    """
    content, found = np.memmap(path, np.uint8, mode="c"), {}
    try:
        start = 8 + int.from_bytes(content[:8].tobytes(), "little")
        header = json.loads(content[8:start].tobytes())
        for name in names:
            dtype, (first, last) = DTYPES[header[name]["dtype"]], header[name]["data_offsets"]
            part = content[start + first : start + last]
            if (start + first) % dtype.itemsize:
                part = part.copy()
            found[name] = torch.from_numpy(part).view(dtype).reshape(header[name]["shape"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path}: damaged, or not a safetensors file: {error}") from None
    return found


def _same_names(where: str, names: set[str], expected: Iterable[str]) -> None:
    missing, extra = sorted(set(expected) - names), sorted(names - set(expected))
    if missing:
        _check.refuse(where, f"lacks {len(missing)} of the model's tensors, such as {missing[0]!r}")
    if extra:
        _check.refuse(where, f"has {len(extra)} tensors that the model does not have, such as {extra[0]!r}")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """safe_open with errors that name the file."""
    try:
        with safe_open(_regular(path), framework="pt") as file:
            yield file
    except (SafetensorError, UnicodeError) as error:
        raise ValueError(f"{path}: damaged, or not a safetensors file: {error}") from None


def _regular(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        _check.refuse(str(path), "not a regular file")
    return path


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")
