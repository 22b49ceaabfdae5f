import struct
import sys

import numpy as np
import pytest
import torch

from likewise.data.audio import read_audio_folder
from tests.data.damage import refusals_that_name

soundfile = pytest.importorskip("soundfile")


@pytest.fixture
def folder(tmp_path):
    """Two classes: recordings of 5 and 3 samples of a dog, one of 4 of a cat; two channels."""
    for name, sizes in {"dog": (5, 3), "cat": (4,)}.items():
        (tmp_path / name).mkdir()
        for i, size in enumerate(sizes):
            samples = np.linspace(-0.5, 0.5, 2 * size).reshape(size, 2)
            soundfile.write(tmp_path / name / f"{i}.wav", samples, 8000, subtype="FLOAT")
    return tmp_path


def test_recordings_by_class(folder):
    (folder / "dog" / ".hidden").write_text("passed over")
    data = read_audio_folder(folder)
    assert data.labels.tolist() == ["cat", "dog", "dog"]
    assert data.classes == ("cat", "dog")
    assert data.items.lengths.tolist() == [4, 5, 3]
    assert data.items.dtype == torch.float32
    assert torch.allclose(data.items[1], torch.linspace(-0.5, 0.5, 10).reshape(5, 2))
    assert data.ids[0].endswith("0.wav")
    test = read_audio_folder(folder, "test", rate=8000)
    assert (test.classes, test.labels.tolist()) == (("dog",), ["dog", "dog"])


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "DOUBLE"])
def test_codings(tmp_path, subtype):
    (tmp_path / "a").mkdir()
    soundfile.write(tmp_path / "a" / "1.wav", np.array([0.0, 0.5, -0.5]), 16000, subtype=subtype)
    found = read_audio_folder(tmp_path).items[0][:, 0]
    assert torch.allclose(found, torch.tensor([0.0, 0.5, -0.5]), atol=0.01)


def test_files_that_do_not_agree_are_named(folder):
    soundfile.write(folder / "dog" / "2.wav", np.zeros((2, 2)), 16000)
    with pytest.raises(ValueError, match=r"dog.2.wav: has 16000 samples a second, but .*cat.0.wav has 8000; resample"):
        read_audio_folder(folder)
    soundfile.write(folder / "dog" / "2.wav", np.zeros(2), 8000)
    with pytest.raises(ValueError, match=r"dog.2.wav: has 1 channels, but .*cat.0.wav has 2"):
        read_audio_folder(folder)
    (folder / "dog" / "2.wav").unlink()
    with pytest.raises(ValueError, match=r"cat.0.wav: has 8000 samples a second, expected 44100"):
        read_audio_folder(folder, rate=44100)


def test_files_that_are_not_recordings(folder):
    path = folder / "dog" / "2.wav"
    whole = (folder / "dog" / "0.wav").read_bytes()
    for content, message in (
        (b"", "the file is empty"),
        (b"not a WAV file", "not a WAV file, or a damaged one"),
        (whole[:30], "not a WAV file, or a damaged one|claims"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"2\.wav.*({message})"):
            read_audio_folder(folder)
    path.unlink()
    soundfile.write(folder / "dog" / "2.flac", np.zeros((2, 2)), 8000)
    with pytest.raises(ValueError, match=r"2.flac: expected a WAV file, got FLAC"):
        read_audio_folder(folder)


def test_damaged_bytes_are_read_or_refused(folder):
    path = folder / "dog" / "0.wav"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with refusals_that_name(".wav"):
            read_audio_folder(folder, limit=1 << 20)


def test_a_claim_beyond_the_file(folder):
    path = folder / "dog" / "0.wav"
    whole = bytearray(path.read_bytes())
    at = whole.index(b"data") + 4
    whole[at : at + 4] = struct.pack("<I", 0x7FFFFFF0)
    path.write_bytes(bytes(whole))
    try:
        data = read_audio_folder(folder)
    except ValueError:
        return
    assert int(data.items.lengths.max()) <= 5


def test_limits_and_empty_folders(folder, tmp_path):
    with pytest.raises(ValueError, match=r"3 files, padded to .*0.wav, take 120 bytes, more than limit=100"):
        read_audio_folder(folder, limit=100)
    (folder / "fox").mkdir()
    with pytest.raises(ValueError, match="fox has no WAV files"):
        read_audio_folder(folder)
    with pytest.raises(ValueError, match="there is no such folder"):
        read_audio_folder(folder / "nowhere")


def test_numbers_that_are_not_finite(folder):
    soundfile.write(folder / "dog" / "0.wav", np.array([[0.0, 0.0], [np.nan, 0.0]]), 8000, subtype="FLOAT")
    with pytest.raises(ValueError, match=r"dog.0.wav: sample 1 is not a finite number"):
        read_audio_folder(folder)


def test_the_extra_is_named(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r'pip install "likewise\[audio\]"'):
        read_audio_folder(folder)
