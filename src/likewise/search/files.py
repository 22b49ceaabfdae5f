"""Files: items outside the database, one file each, in a folder or in object storage."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from likewise import _check
from likewise.models.storage import encoded

MOST_BYTES = 1 << 30  # of one item
KEY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{64}")


class Files:
    """Items by key, as safetensors files: ``<root>/<key[17:19]>/<key>.safetensors``.

    root: a folder, or an address that fsspec reads, such as s3://bucket/speech; options go to its file system.

    A key always names the same content, so a file is never changed, and writing it twice does no harm. Files are not
    trusted: nothing is pickled, and sizes, types and the number of bytes are checked.

    Example:
        >>> files = Files("memory://speech")
        >>> key = "0" * 16 + "-" + "1" * 64
        >>> files.write({key: files.bytes_of(torch.tensor([[1.0], [2.0]]))})
        >>> Files.item("speech", files.read([key])[key])
        tensor([[1.],
                [2.]])
    """

    def __init__(self, root: str, *, limit: int = MOST_BYTES, **options: Any) -> None:
        from fsspec.core import url_to_fs

        self.root = root
        self.limit = limit
        self._system, self._folder = url_to_fs(root, **options)
        self._made: set[str] = set()

    @staticmethod
    def bytes_of(item: Tensor) -> bytes:
        """The content of an item's file."""
        return b"".join(encoded({"item": item}))

    @staticmethod
    def item(where: str, content: bytes) -> Tensor:
        """The item of a file, checked."""
        try:
            found = load(content)
        except (SafetensorError, KeyError, ValueError) as error:
            raise ValueError(f"{where}: damaged, or not a safetensors file: {error}") from None
        item = found.get("item")
        if item is None or len(found) != 1 or not item.ndim or 0 in item.shape:
            _check.refuse(where, f"expected one tensor, item, got {sorted(found)!r:.80}")
        if not (item.is_floating_point() or item.dtype == torch.uint8):
            _check.refuse(where, f"expected numbers of floating point, got {item.dtype}")
        if item.is_floating_point() and not item.isfinite().all():
            _check.refuse(where, "holds numbers that are not finite")
        return item

    def path(self, key: str) -> str:
        """Where the file of a key is."""
        if not KEY.fullmatch(key):
            _check.refuse(self.root, f"{key!r:.100} is not a key")
        return f"{self._folder}/{key[17:19]}/{key}.safetensors"

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Write the files of some keys."""
        paths = {self.path(key): content for key, content in contents.items()}
        for folder in {path.rpartition("/")[0] for path in paths} - self._made:
            self._system.makedirs(folder, exist_ok=True)
            self._made.add(folder)
        self._system.pipe(paths)

    def read(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The contents of those files that exist, by key."""
        paths = {self.path(key): key for key in keys}
        if not paths:
            return {}
        found = self._system.cat_ranges(list(paths), [0] * len(paths), [self.limit + 1] * len(paths), on_error="return")
        contents = {}
        for (path, key), content in zip(paths.items(), found, strict=True):
            if isinstance(content, FileNotFoundError):
                continue
            if isinstance(content, Exception):
                raise content
            if len(content) > self.limit:
                _check.refuse(path, f"more than {self.limit} bytes; allow more with limit=")
            contents[key] = bytes(content)
        return contents

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the files of some keys, where there are some."""
        for key in keys:
            try:
                self._system.rm_file(self.path(key))
            except FileNotFoundError:
                continue

    def __repr__(self) -> str:
        return f"Files({self.root!r})"
