"""Folders of WAV files, read with soundfile (extra ``audio``)."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.data.dataset import Dataset, names_of
from likewise.data.image_folders import Folder, list_classes
from likewise.data.padding import pad_stacked
from likewise.data.text import brief, file_size

FORMATS = ("WAV", "WAVEX", "RF64")
LIMIT = 4 << 30  # bytes of all samples in memory


def read_audio_folder(
    folder: Folder, part: str | None = None, *, rate: int | None = None, limit: int = LIMIT
) -> Dataset:
    """Read WAV files from one folder per class: folder/dog/1.wav. Samples are float32, from -1 to 1.

    part: None for all; "train", the first half of the classes, sorted by name; "test", the others.
    rate: the sampling rate in Hz that all files must have; by default, that of the first file.

    All files must have the same rate and number of channels: nothing is resampled or mixed. Hidden files are ignored;
    all others must be WAV files. If the padded samples take more than limit bytes, an error is raised before they are
    read.

    Example:
        >>> import tempfile, soundfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "dog").mkdir()
        ...     soundfile.write(Path(folder, "dog", "1.wav"), np.zeros((5, 2)), 8000)
        ...     read_audio_folder(folder)
        Dataset(1 sequence, 5 steps, 2 channels, 1 class)
    """
    op, soundfile = "read_audio_folder", _soundfile()
    listing = list_classes(op, Path(folder), "WAV files").part(op, part)
    rate = None if rate is None else _check.whole(op, "rate", rate)
    heads = [_head(soundfile, path) for path in listing.files]
    for path, head in zip(listing.files, heads, strict=True):
        if head.samplerate != (heads[0].samplerate if rate is None else rate):
            other = f"expected {rate}" if rate is not None else f"but {listing.files[0]} has {heads[0].samplerate}"
            _check.refuse(
                os.fspath(path), f"has {head.samplerate} samples a second, {other}; resample the files to one rate"
            )
        if head.channels != heads[0].channels:
            _check.refuse(
                os.fspath(path), f"has {head.channels} channels, but {listing.files[0]} has {heads[0].channels}"
            )
    lengths = np.array([head.frames for head in heads], np.int64)
    channels = heads[0].channels if heads else 1
    size = len(heads) * int(lengths.max(initial=0)) * channels * 4
    if size > limit:
        longest = listing.files[int(lengths.argmax())]
        _check.refuse(op, f"{len(heads)} files, padded to {longest}, take {size} bytes, more than limit={limit}")
    values = np.empty((int(lengths.sum()), channels), np.float32)
    ends = np.cumsum(lengths)
    for path, first, last in zip(listing.files, ends - lengths, ends, strict=True):
        _read(soundfile, path, values[first:last])
    return Dataset(
        pad_stacked(op, values, lengths, limit),
        names_of(listing.classes, listing.labels),
        ids=tuple(os.fspath(path) for path in listing.files),
        classes=listing.classes,
    )


def read_wav(path: Path) -> Tensor:
    """Read one WAV file as float32 samples (T, C), from -1 to 1."""
    soundfile = _soundfile()
    head = _head(soundfile, path)
    samples = np.empty((head.frames, head.channels), np.float32)
    _read(soundfile, path, samples)
    return torch.from_numpy(samples)


def _head(soundfile: Any, path: Path) -> Any:
    """The header of a file, checked for plausibility."""
    size = file_size(path)
    try:
        head = soundfile.info(os.fspath(path))
    except (RuntimeError, TypeError) as error:  # soundfile.LibsndfileError is a RuntimeError
        raise ValueError(f"{path}: not a WAV file, or a damaged one: {brief(error)}") from error
    if head.format not in FORMATS:
        _check.refuse(os.fspath(path), f"expected a WAV file, got {head.format}")
    if not 0 < head.frames <= 8 * size:  # the densest coding has one bit per sample
        _check.refuse(os.fspath(path), f"claims {head.frames} samples in {size} bytes")
    return head


def _read(soundfile: Any, path: Path, out: np.ndarray) -> None:
    """Fill an array (T, C) with the samples of a file."""
    try:
        found = soundfile.read(os.fspath(path), frames=len(out), dtype="float32", always_2d=True)[0]
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a WAV file, or a damaged one: {brief(error)}") from error
    if found.shape != out.shape:
        _check.refuse(os.fspath(path), f"ends after {len(found)} of {len(out)} samples")
    if not np.isfinite(found).all():
        step = int((~np.isfinite(found)).any(1).argmax())
        _check.refuse(os.fspath(path), f"sample {step} is not a finite number")
    out[:] = found


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: libsndfile is missing
        raise ImportError('WAV files are read by soundfile; install it with pip install "likewise[audio]"') from error
    return soundfile
