"""The Sussex-Huawei Locomotion challenge, preprocessed as in the coupled-GRU paper.

The challenge (2018, and later ones with the same layout) provides each part, train or test, as a folder of text files.
There is one for each of 20 signals, Acc_x.txt to Pressure.txt, with a row for every frame and a column for every step
(one minute at 100 Hz), and Label.txt with the activity, 1 to 8, at every step. The optional file train_order.txt gives
the position of each frame in the recording before the frames were shuffled.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from likewise import _check
from likewise.data.batch import Batch
from likewise.data.dataset import Dataset, names_of
from likewise.data.text import Line, numpy_type, parse_integer, parse_numbers, quote, read_lines, word_offset

CLASSES = ("still", "walk", "run", "bike", "car", "bus", "train", "subway")
VECTORS = ("Acc", "Gyr", "Mag", "Gra", "LAcc")  # accelerometer, gyroscope, magnetometer, gravity, linear acceleration
WITH_MAGNITUDE = 3  # the first three
SIGNALS = (*(f"{name}_{axis}" for name in VECTORS for axis in "xyz"), *(f"Ori_{axis}" for axis in "wxyz"), "Pressure")
EULER = ("roll", "pitch", "yaw")
CHANNELS = (
    *(f"{name}_{axis}" for name in VECTORS for axis in "xyz"),
    *(f"{name}_{axis}" for name in VECTORS for axis in ("north", "east", "down")),
    *(f"{name}_magnitude" for name in VECTORS[:WITH_MAGNITUDE]),
    *EULER,
)
MOST_STEPS = 1 << 20  # the most steps of a frame, which lasts a minute
MOST_BYTES = 64 << 20  # the most bytes of a line


def read_shl(
    folder: str | os.PathLike[str],
    *,
    steps: int = 300,
    mixed: bool = False,
    pressure: bool = False,
    most: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dataset:
    r"""Read a folder of the SHL challenge as frames of 36 channels, resampled to ``steps``.

    ``shl_features`` computes 36 channels from the 20 signals of each frame. These are averaged over ``steps`` equal
    pieces (for angles, the direction of the mean vector), so that 6,000 steps become 300. Use ``standardize`` next.

    mixed: keep frames in which the activity changes, labelled by the most frequent one; otherwise they are dropped.
    pressure: keep the pressure as a 37th channel.
    most: the number of frames to read, all by default.

    Missing numbers ('nan') are interpolated in time; frames in which a whole signal is missing are dropped. The groups
    are the positions of the frames in the recording (train_order.txt or test_order.txt) or, without that file, in the
    folder. Neighbouring frames are nearly alike, so make folds from groups. Files are read in parallel, a frame at a
    time, so memory is that of the result.

    Reference: Wang et al. (2018), Summary of the Sussex-Huawei locomotion-transportation recognition challenge.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for signal in SIGNALS:
        ...         value = "1.0" if signal == "Ori_w" else "0.5"
        ...         _ = Path(folder, f"{signal}.txt").write_text(f"{value} {value} {value} {value}\n")
        ...     _ = Path(folder, "Label.txt").write_text("2 2 2 2\n")
        ...     data = read_shl(folder, steps=2)
        >>> data, data.labels[0].item()
        (Dataset(1 sequence, 2 steps, 36 channels, 8 classes), 'walk')
    """
    numpy_type("read_shl", dtype)
    steps = _check.whole("read_shl", "steps", steps)
    limit = None if most is None else _check.whole("read_shl", "most", most)
    order = _read_order(Path(folder))
    values, labels, groups = [], [], []
    for place, (label, signals) in enumerate(_frames(Path(folder), limit, mixed)):
        if order is not None and place >= len(order):
            _check.refuse("read_shl", f"the order file has {len(order)} numbers, but there are more frames")
        if label is None or signals is None:
            continue
        if signals.shape[0] % steps:
            _check.refuse("read_shl", f"steps must divide the {signals.shape[0]} steps of a frame, got {steps}")
        values.append(_resample(shl_features(torch.from_numpy(signals), pressure=pressure), steps).to(dtype))
        labels.append(label)
        groups.append(place if order is None else order[place])
    if not values:
        _check.refuse("read_shl", f"{os.fspath(folder)} has no frame of a single activity; try mixed=True")
    names = names_of(CLASSES, labels)
    return Dataset(Batch(torch.stack(values)), names, groups=np.array(groups, np.int64), classes=CLASSES)


def shl_features(signals: Tensor, *, pressure: bool = False) -> Tensor:
    """The 36 channels (..., T, 36), named by ``CHANNELS``, of the 20 signals (..., T, 20) in the order of ``SIGNALS``.

    The five vectors in the axes of the phone (15) and rotated to North-East-Down by the orientation (15), magnitudes of
    the accelerometer, gyroscope and magnetometer (3), and Euler angles of the orientation (3), in radians.

    The orientation q = (w, x, y, z) is Android's: it rotates the phone's axes to East-North-Up, v_world = q v q*, and
    (north, east, down) = (v_y, v_x, -v_z). It is normalised first. The angles are those of the rotation to
    North-East-Down: yaw about down from north, then pitch, then roll.

    The paper lists these steps and the total of 36, but not the channels. This is the only choice of entire signals
    that adds up to 36; it leaves out the pressure, which ``pressure=True`` adds as a 37th channel.

    Example:
        >>> still = torch.zeros(1, 20)
        >>> still[:, 9:12], still[:, 15] = torch.tensor([0.0, 0.0, 9.81]), 1.0  # gravity points up, no rotation
        >>> features = shl_features(still)
        >>> features[0, 24:27]  # in North-East-Down
        tensor([ 0.0000,  0.0000, -9.8100])
    """
    _check.is_tensor("shl_features", "signals", signals)
    if signals.ndim < 2 or signals.shape[-1] != len(SIGNALS):
        _check.refuse("shl_features", f"expected signals of shape (..., T, 20), got {tuple(signals.shape)}")
    vectors = signals[..., :15].unflatten(-1, (5, 3))  # (..., T, 5, 3)
    rotation = _to_north_east_down(signals[..., 15:19])  # (..., T, 3, 3)
    turned = (rotation[..., None, :, :] @ vectors[..., None])[..., 0]
    lengths = torch.linalg.vector_norm(vectors[..., :WITH_MAGNITUDE, :], dim=-1)
    angles = torch.stack(
        [
            torch.atan2(rotation[..., 2, 1], rotation[..., 2, 2]),
            -torch.asin(rotation[..., 2, 0].clamp(-1, 1)),
            torch.atan2(rotation[..., 1, 0], rotation[..., 0, 0]),
        ],
        -1,
    )
    parts = [vectors.flatten(-2), turned.flatten(-2), lengths, angles]
    return torch.cat([*parts, signals[..., 19:]] if pressure else parts, -1)


def standardize(train: Dataset, *others: Dataset) -> tuple[Dataset, ...]:
    """Standardise every channel to mean 0 and deviation 1 over the training frames; transform the others alike.

    Constant channels are only centred. The paper standardises before it resamples; here deviations are those of the
    resampled frames, which the network sees.

    Example:
        >>> train = Dataset(Batch(torch.tensor([[[1.0], [3.0]]])))
        >>> standardize(train, Dataset(Batch(torch.tensor([[[5.0]]]))))[1].items.values
        tensor([[[3.]]])
    """
    frames = train.items.values[train.items.mask]  # (frames, C)
    if not len(frames):
        _check.refuse("standardize", "there are no training frames")
    mean, deviation = frames.double().mean(0), frames.double().std(0, correction=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)
    parts = []
    for part in (train, *others):
        if part.items.channels != len(mean):
            _check.refuse("standardize", f"expected {len(mean)} channels, got {part.items.channels}")
        values = ((part.items.values.double() - mean) / deviation).to(part.items.dtype)
        parts.append(replace(part, items=Batch(values, part.items.lengths)))
    return tuple(parts)


def _to_north_east_down(orientation: Tensor) -> Tensor:
    """Rotation matrices (..., 3, 3) from the phone's axes, for quaternions (..., 4)."""
    size = torch.linalg.vector_norm(orientation, dim=-1, keepdim=True)
    if not (size > 0).all():
        _check.refuse("shl_features", "an orientation is the zero quaternion")
    w, x, y, z = (orientation / size).unbind(-1)
    east = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1)
    north = torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1)
    up = torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)
    return torch.stack([north, east, -up], -2)


def _resample(features: Tensor, steps: int) -> Tensor:
    """Means (steps, C) of equal pieces of features (T, C); for angles, the direction of the mean vector."""
    pieces = features.unflatten(0, (steps, -1))
    means = pieces.mean(1)
    first = CHANNELS.index(EULER[0])
    angles = pieces[..., first : first + len(EULER)]
    means[:, first : first + len(EULER)] = torch.atan2(angles.sin().mean(1), angles.cos().mean(1))
    return means


def _frames(folder: Path, most: int | None, mixed: bool) -> Iterator[tuple[int | None, np.ndarray | None]]:
    """Yield each frame's label and signals (T, 20), None if the frame is dropped."""
    files = [folder / f"{name}.txt" for name in (*SIGNALS, "Label")]
    steps = 0
    for place, lines in enumerate(zip_longest(*map(read_lines, files))):
        if place == most:
            return
        for file, line in zip(files, lines, strict=True):
            if line is None:
                raise ValueError(f"{file}:{place + 1}:1: the file ends here, but others are longer")
            if len(line.text) > MOST_BYTES:
                raise line.error(0, f"a line of {len(line.text)} bytes is too long for a frame of these recordings")
        codes = _codes(lines[-1], steps)
        steps = steps or len(codes)
        signals = [_signal(line, steps) for line in lines[:-1]]
        label = _label(codes, mixed)
        known = all(np.isfinite(signal).any() for signal in signals)
        yield label, np.stack([_filled(signal) for signal in signals], 1) if known and label is not None else None


def _signal(line: Line, steps: int) -> np.ndarray:
    """One row of numbers, NaN where they are missing."""
    numbers = parse_numbers(line, line.text.strip(), np.float64, missing=True, start=_margin(line))
    if len(numbers) != steps:
        raise line.error(
            word_offset(line.text, min(steps, len(numbers))), f"expected {steps} numbers, got {len(numbers)}"
        )
    return numbers


def _codes(line: Line, steps: int) -> np.ndarray:
    """The activities of a frame, (T,)."""
    numbers = parse_numbers(line, line.text.strip(), np.float64, start=_margin(line))
    if (steps and len(numbers) != steps) or not 0 < len(numbers) <= MOST_STEPS:
        raise line.error(0, f"expected {steps or 'some'} labels, got {len(numbers)}")
    wrong = (numbers != np.floor(numbers)) | (numbers < 1) | (numbers > len(CLASSES))
    if wrong.any():
        at = word_offset(line.text, int(wrong.argmax()))
        word = line.text[at:].split(None, 1)[0]
        raise line.error(at, f"expected a label from 1 to {len(CLASSES)}, got {quote(word)}")
    return numbers.astype(np.int64)


def _label(codes: np.ndarray, mixed: bool) -> int | None:
    counts = np.bincount(codes - 1, minlength=len(CLASSES))
    return int(counts.argmax()) if mixed or counts.max() == len(codes) else None


def _filled(signal: np.ndarray) -> np.ndarray:
    """Missing numbers interpolated in time; at the ends, the nearest number."""
    missing = np.isnan(signal)
    if not missing.any():
        return signal
    places = np.arange(len(signal))
    return np.interp(places, places[~missing], signal[~missing])


def _read_order(folder: Path) -> list[int] | None:
    """Positions of the frames in the recording, from the order file if there is one."""
    for name in ("train_order.txt", "test_order.txt"):
        path = folder / name
        if path.exists():
            places = [
                parse_integer(line, word, word_offset(line.text, index))
                for line in read_lines(path)
                for index, word in enumerate(line.text.split())
            ]
            if len(set(places)) != len(places):
                _check.refuse("read_shl", f"{path} lists a position twice")
            return places
    return None


def _margin(line: Line) -> int:
    return len(line.text) - len(line.text.lstrip())
