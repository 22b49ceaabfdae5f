"""The SHL reader on recordings that the tests write."""

import math

import numpy as np
import pytest
import torch

from likewise import Batch, Dataset
from likewise.data import shl
from likewise.data.shl import CHANNELS, CLASSES, SIGNALS, read_shl, shl_features, standardize


def recording(frames=3, steps=12, seed=0):
    """Signals (frames, steps, 20) with unit orientations, and labels (frames, steps)."""
    random = np.random.default_rng(seed)
    signals = random.standard_normal((frames, steps, 20)).round(4)
    signals[..., 15:19] /= np.linalg.norm(signals[..., 15:19], axis=-1, keepdims=True)
    return signals, np.repeat(1 + np.arange(frames)[:, None] % 8, steps, 1)


def write(folder, signals, labels, order=None):
    folder.mkdir(exist_ok=True)
    for column, name in enumerate(SIGNALS):
        rows = [" ".join(f"{v:.8g}" for v in row) for row in signals[:, :, column]]
        (folder / f"{name}.txt").write_text("\n".join(rows) + "\n")
    (folder / "Label.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in labels))
    if order is not None:
        (folder / "train_order.txt").write_text(" ".join(map(str, order)) + "\n")
    return folder


def rotated(q, v):
    """v turned by the quaternion q, as quaternions multiply: q v q*."""

    def times(a, b):
        return np.array([
            a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3], a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
            a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1], a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
        ])  # fmt: skip

    return times(times(q, np.array([0, *v])), q * [1, -1, -1, -1])[1:]


def test_there_are_36_channels_of_20_signals():
    assert (len(SIGNALS), len(CHANNELS), len(CLASSES)) == (20, 36, 8)
    assert len(set(CHANNELS)) == 36


def test_features_by_plain_quaternions():
    signals, _ = recording(1, 5)
    features = shl_features(torch.from_numpy(signals), pressure=True)[0].numpy()
    assert features.shape == (5, 37)
    for t, row in enumerate(signals[0]):
        np.testing.assert_allclose(features[t, :15], row[:15])
        for k in range(5):
            x, y, z = rotated(row[15:19], row[3 * k : 3 * k + 3])
            np.testing.assert_allclose(features[t, 15 + 3 * k : 18 + 3 * k], [y, x, -z], atol=1e-12)
        np.testing.assert_allclose(features[t, 30:33], [np.linalg.norm(row[3 * k : 3 * k + 3]) for k in range(3)])
        assert features[t, 36] == row[19]
        # The angles rebuild the rotation: turn about down by yaw, then pitch, then roll.
        roll, pitch, yaw = features[t, 33:36]
        c, s = np.cos, np.sin
        turn = (
            np.array([[c(yaw), -s(yaw), 0], [s(yaw), c(yaw), 0], [0, 0, 1]])
            @ np.array([[c(pitch), 0, s(pitch)], [0, 1, 0], [-s(pitch), 0, c(pitch)]])
            @ np.array([[1, 0, 0], [0, c(roll), -s(roll)], [0, s(roll), c(roll)]])
        )
        np.testing.assert_allclose(turn @ row[:3], features[t, 15:18], atol=1e-9)


def test_rotation_keeps_lengths_and_any_scale_of_the_orientation():
    signals = torch.from_numpy(recording(2, 7)[0])
    features = shl_features(signals)
    torch.testing.assert_close(features[..., 15:18].norm(dim=-1), signals[..., :3].norm(dim=-1))
    scaled = signals.clone()
    scaled[..., 15:19] *= -3
    torch.testing.assert_close(shl_features(scaled), features)


def test_a_folder_is_read_as_it_was_written(tmp_path):
    signals, labels = recording()
    data = read_shl(write(tmp_path / "train", signals, labels, order=[7, 0, 3]), steps=4, dtype=torch.float64)
    assert data.items.values.shape == (3, 4, 36)
    assert data.codes.tolist() == [0, 1, 2]
    assert data.classes == CLASSES
    assert data.groups.tolist() == [7, 0, 3]
    whole = shl_features(torch.from_numpy(signals))
    means = whole[..., :33].reshape(3, 4, 3, 33).mean(2)
    torch.testing.assert_close(data.items.values[..., :33], means, atol=1e-6, rtol=0)
    pressure = read_shl(tmp_path / "train", steps=12, pressure=True, most=2, dtype=torch.float64)
    torch.testing.assert_close(pressure.items.values[..., 36], torch.from_numpy(signals[:2, :, 19]))
    torch.testing.assert_close(pressure.items.values[..., :36], whole[:2], atol=1e-6, rtol=1e-6)


def test_angles_are_averaged_on_the_circle(tmp_path):
    signals, labels = recording(1, 2)
    for t, yaw in enumerate((math.pi - 0.1, -math.pi + 0.1)):  # either side of south: the mean is south, not north
        half = (math.pi / 2 - yaw) / 2  # from East-North-Up's counterclockwise angle
        signals[0, t, 15:19] = [math.cos(half), 0, 0, math.sin(half)]
    angle = read_shl(write(tmp_path, signals, labels), steps=1).items.values[0, 0, 33:]
    each = shl_features(torch.from_numpy(signals))[0, :, 33:]
    assert abs(float(each[0, 2] - each[1, 2])) > 6  # they do wrap
    assert math.cos(float(angle[2]) - float(each[0, 2])) > 0.99


def test_mixed_frames_are_dropped_or_take_the_most_frequent_label(tmp_path):
    signals, labels = recording()
    labels[1, :5] = 8
    write(tmp_path, signals, labels)
    assert read_shl(tmp_path, steps=3).groups.tolist() == [0, 2]
    assert read_shl(tmp_path, steps=3, mixed=True).codes.tolist() == [0, 1, 2]


def test_missing_numbers_are_interpolated_and_missing_signals_drop_the_frame(tmp_path):
    signals, labels = recording()
    signals[0, 0, 19], signals[0, 4:6, 19], signals[0, 3, 19], signals[0, 6, 19] = np.nan, np.nan, 1.0, 4.0
    signals[2, :, 4] = np.nan
    data = read_shl(write(tmp_path, signals, labels), steps=12, pressure=True, dtype=torch.float64)
    assert data.codes.tolist() == [0, 1]
    filled = data.items.values[0, :, 36]
    torch.testing.assert_close(filled[3:7], torch.tensor([1.0, 2.0, 3.0, 4.0]).double())
    assert filled[0] == filled[1]


def test_standardize_uses_the_training_frames():
    generator = torch.Generator().manual_seed(0)
    train = Dataset(Batch(5 + 3 * torch.randn(4, 6, 2, generator=generator), [6, 2, 3, 1]))
    train.items.values[1, 2:] = torch.nan  # padding
    train.items.values[..., 1] = 7  # never changes
    test = Dataset(Batch(torch.ones(1, 2, 2)), ["a"])
    before = train.items.values.clone()
    ready, other = standardize(train, test)
    frames = ready.items.values[ready.items.mask]
    torch.testing.assert_close(frames[:, 0].std(correction=0), torch.tensor(1.0))
    torch.testing.assert_close(frames.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    real = before[train.items.mask][:, 0]
    torch.testing.assert_close(other.items.values[0, 0, 0], (1 - real.mean()) / real.std(correction=0))
    assert other.classes == ("a",)
    assert torch.equal(before.nan_to_num(), train.items.values.nan_to_num())
    with pytest.raises(ValueError, match="standardize: expected 2 channels, got 1"):
        standardize(train, Dataset(Batch(torch.ones(1, 2, 1))))


def broken(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    return folder


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("Acc_x.txt", lambda b: b.replace(b" ", b" x", 1), r"Acc_x.txt:1:\d+: expected a number, got 'x"),
        ("Gyr_y.txt", lambda b: b.split(b"\n")[0] + b"\n", r"Gyr_y.txt:2:1: the file ends here, but others are longer"),
        ("Mag_z.txt", lambda b: b + b"1 2 3\n", r"Acc_x.txt:4:1: the file ends here, but others are longer"),
        ("Mag_z.txt", lambda b: b.replace(b"\n", b" 1.0\n", 1), r"Mag_z.txt:1:\d+: expected 12 numbers, got 13"),
        ("Label.txt", lambda b: b.replace(b"1", b"9", 1), r"Label.txt:1:1: expected a label from 1 to 8, got '9'"),
        ("Label.txt", lambda b: b.replace(b"1", b"1.5", 1), r"Label.txt:1:1: expected a label from 1 to 8, got '1.5'"),
        ("Label.txt", lambda b: b"\n" + b, r"Label.txt:1:\d+: "),
        ("Label.txt", lambda b: b"", "the file is empty"),
        ("Pressure.txt", lambda b: b.replace(b" ", b" inf ", 1), "Pressure.txt:1:"),
        ("Pressure.txt", lambda b: b.replace(b" ", b" 1e999 ", 1), "Pressure.txt:1:"),
        ("train_order.txt", lambda b: b"1 2", "has 2 numbers, but there are more frames"),
        ("train_order.txt", lambda b: b"1 1 2", "lists a position twice"),
        ("train_order.txt", lambda b: b"1 -1 2", "train_order.txt:1:3: expected a whole number"),
    ],
)  # fmt: skip
def test_malformed_files_are_refused_with_their_place(tmp_path, name, change, message):
    write(tmp_path, *recording(), order=[0, 1, 2])
    with pytest.raises(ValueError, match=message):
        read_shl(broken(tmp_path, name, change), steps=4)


def test_a_line_that_is_too_long_is_refused(tmp_path, monkeypatch):
    write(tmp_path, *recording())
    monkeypatch.setattr(shl, "MOST_BYTES", 20)
    with pytest.raises(ValueError, match="is too long for a frame of these recordings"):
        read_shl(tmp_path, steps=4)


def test_bad_arguments_are_refused(tmp_path):
    signals, labels = recording()
    write(tmp_path, signals, labels)
    with pytest.raises(ValueError, match="steps must divide the 12 steps of a frame, got 5"):
        read_shl(tmp_path, steps=5)
    with pytest.raises(TypeError, match="read_shl: expected dtype"):
        read_shl(tmp_path, dtype=torch.int64)
    labels[:, 0] = 5
    labels[:, 1] = 6
    with pytest.raises(ValueError, match="has no frame of a single activity; try mixed=True"):
        read_shl(write(tmp_path, signals, labels), steps=4)
    with pytest.raises(ValueError, match=r"expected signals of shape \(..., T, 20\), got \(3, 19\)"):
        shl_features(torch.zeros(3, 19))
    with pytest.raises(ValueError, match="an orientation is the zero quaternion"):
        shl_features(torch.zeros(3, 20))
    (tmp_path / "Ori_w.txt").unlink()
    with pytest.raises(FileNotFoundError):
        read_shl(tmp_path, steps=4)
