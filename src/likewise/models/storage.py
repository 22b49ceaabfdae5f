"""Files with numbers and settings but no code: safetensors and JSON, written atomically."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from likewise import _check
from likewise._output import writing

MOST_JSON = 1 << 20  # bytes
# Floating-point types are interchangeable, so that a model can be saved in half or double precision.
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
OTHERS = {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
DTYPES = FLOATS | OTHERS | {"BOOL": torch.bool}


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
        _check.refuse(str(path), f"more than {MOST_JSON} bytes; this is not a file of likewise")
    return parse_json(str(path), content)


def parse_json(where: str, content: str | bytes) -> object:
    """Parse JSON, rejecting NaN, numbers with thousands of digits, and deep nesting."""
    try:
        return json.loads(content, parse_constant=_no_constant)
    except RecursionError:
        _check.refuse(where, "nested too deeply")
    except ValueError as error:
        raise ValueError(f"{where}: no valid JSON: {error}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: str = "") -> None:
    """Write named tensors and a note to one safetensors file."""
    # Copy: safetensors rejects tensors that share memory, such as tied weights.
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    with writing(path) as part:
        try:
            save_file(copies, part, metadata={"note": note} if note else None)
        except SafetensorError as error:  # a full disk, for example
            code = re.search(r"\(os error (\d+)\)", str(error))
            if code is None:
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


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
                _check.refuse(str(path), f"{name} holds {part.get_dtype()}, which likewise never writes")
            shapes[name] = torch.empty(part.get_shape(), dtype=dtype, device="meta")
    return shapes


def read_tensors(path: Path, expected: Mapping[str, Tensor], *, limit: int) -> dict[str, Tensor]:
    """Read the expected tensors. Extra or missing ones and wrong shapes raise an error before any is loaded.

    ``expected`` gives names, shapes and types, and may live on the meta device. A floating-point tensor may be stored
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
                _check.refuse(where, f"{name} has shape {shape}, the model's has {tuple(tensor.shape)}")
            if dtype is None or (
                dtype != tensor.dtype and not (dtype.is_floating_point and tensor.is_floating_point())
            ):
                _check.refuse(where, f"{name} holds {part.get_dtype()}, the model's holds {tensor.dtype}")
            size += tensor.numel() * dtype.itemsize
        if size > limit:
            _check.refuse(where, f"{size} bytes of tensors, more than the limit of {limit}")
        return {name: file.get_tensor(name) for name in expected}


def _same_names(where: str, names: set[str], expected: Iterable[str]) -> None:
    missing, extra = sorted(set(expected) - names), sorted(names - set(expected))
    if missing:
        _check.refuse(where, f"lacks {len(missing)} of the model's tensors, {missing[0]!r} among them")
    if extra:
        _check.refuse(where, f"holds {len(extra)} tensors that the model does not have, {extra[0]!r} among them")


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
        _check.refuse(str(path), "no regular file")
    return path


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")
