"""Slices of audio features, and the mel spectrograms that are built from MIDI."""

import io
import json
import lzma
import shutil
import tarfile
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from papers.decdtw import mel
from papers.decdtw.data import SCALES, held_out, read_slices
from tests.papers.audio_problem import PERFORMANCE, SCORE, STEP, WIDTHS, write_split


@pytest.mark.parametrize("feature", list(WIDTHS))
def test_slices_are_cut_where_the_file_says(tmp_path, feature):
    plain, truth = write_split(tmp_path, "train")
    found = read_slices(tmp_path, "train", feature)
    assert found.pairs.x.values.shape == (3, SCORE, WIDTHS[feature])
    assert found.pairs.y.values.shape == (3, PERFORMANCE, WIDTHS[feature])
    mean, scale = SCALES[feature]
    frames = len(plain[f"perf_{feature}"]) // 2
    levels = plain[f"perf_{feature}"][frames : frames + PERFORMANCE] * -0.5  # of the second slice, the second piece
    if feature == "cqt":
        levels = levels / np.linalg.norm(levels, axis=1, keepdims=True)
    levels = levels + (3 if feature == "mel" else 0)
    np.testing.assert_allclose(found.pairs.y.values[1], (levels - mean) / scale, rtol=1e-5, atol=1e-6)
    assert found.pairs.lengths.tolist() == [found.pairs.lengths[0] - k for k in range(3)]
    np.testing.assert_allclose(found.pairs.truth[0], truth[: found.pairs.lengths[0], 1], atol=1e-6)
    np.testing.assert_allclose(found.pairs.points[0], truth[: found.pairs.lengths[0], 0], atol=1e-6)
    assert found.pairs.x_times[1].item() == pytest.approx(STEP)
    assert len(found[1:]) == 2


def test_held_out_slices_share_no_score(tmp_path):
    write_split(tmp_path, "train", pieces=5, slices=6)
    rest, apart = held_out(read_slices(tmp_path, "train", "chroma"))
    assert (len(rest), len(apart)) == (4, 2)
    assert set(apart.pieces.tolist()) == {1, 4}
    assert set(rest.pieces.tolist()) == {0, 2, 3}


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"train.npz does not exist; give --data-dir"):
        read_slices(tmp_path, "train", "cqt")
    write_split(tmp_path, "train")
    (tmp_path / "train_mel.npz").unlink()
    with pytest.raises(SystemExit, match="build it with python -m papers"):
        read_slices(tmp_path, "train", "mel")
    arrays = dict(np.load(tmp_path / "train.npz"))
    for name, wrong, message in (
        ("slices", arrays["slices"] + np.array([0, 0, 999, 0, 0]), r"frames 999 to"),
        ("perf_cqt", arrays["perf_cqt"].astype(np.float32), "perf_cqt is float32"),
        ("gt", arrays["gt"][::-1], "change points must increase"),
    ):
        np.savez(tmp_path / "val.npz", **arrays | {name: wrong})
        with pytest.raises(ValueError, match=rf"val\.npz: its slices do not fit its features: {message}"):
            read_slices(tmp_path, "val", "cqt")
    del arrays["gt_off"]
    np.savez(tmp_path / "val.npz", **arrays)
    with pytest.raises(ValueError, match="expected an array gt_off"):
        read_slices(tmp_path, "val", "cqt")
    np.savez(tmp_path / "val.npz", **arrays, gt_off=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_slices(tmp_path, "val", "cqt")


def archive(path, files):
    """Write a .tar.xz of names and bytes, or of whole members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if isinstance(content, tarfile.TarInfo) else content
            member.size = len(data) or member.size
            tar.addfile(member, io.BytesIO(data))
    path.write_bytes(lzma.compress(buffer.getvalue()))
    return path


def test_hostile_archives_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.tar.xz"
    assert mel.read_archive(archive(path, {"midi/a b.mid": b"x"})) == {"midi/a b.mid": b"x"}
    for name in ("../midi/a", "/midi/a", "midi/../../a", "other/a", "midi/a\nb"):
        with pytest.raises(ValueError, match="expected plain files in midi/ and gt/"):
            mel.read_archive(archive(path, {name: b"x"}))
    link = tarfile.TarInfo("midi/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(ValueError, match="expected plain files"):
        mel.read_archive(archive(path, {"midi/link": link}))
    monkeypatch.setattr(mel, "LONGEST_ARCHIVE", 10)
    with pytest.raises(ValueError, match="makes it too large"):
        mel.read_archive(archive(path, {"midi/a": b"12345678", "midi/b": b"12345678"}))
    monkeypatch.setattr(mel, "MOST_MEMBERS", 1)
    with pytest.raises(ValueError, match="makes it too large"):
        mel.read_archive(archive(path, {"midi/a": b"1", "midi/b": b"1"}))
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="a damaged archive"):
        mel.read_archive(path)
    with pytest.raises(SystemExit, match="does not exist"):
        mel.read_archive(tmp_path / "none")


@pytest.mark.parametrize("text", [b"{", b"[{}]", b"[3]", b'[{"name": 1, "score": "", "part": "", "file": ""}]'])
def test_a_bad_index_is_refused(text):
    with pytest.raises(ValueError, match=r"midi/index\.json: expected a list of entries"):
        mel.read_index({"midi/index.json": text})


def music(onsets, length=0.3):
    """Notes at some times, and their MIDI file."""
    import pretty_midi

    made = pretty_midi.PrettyMIDI(resolution=960)
    piano = pretty_midi.Instrument(0)
    piano.notes = [pretty_midi.Note(90, 60 + k % 12, at, at + length) for k, at in enumerate(onsets)]
    piano.control_changes = [pretty_midi.ControlChange(64, 90, onsets[-1])]
    made.instruments.append(piano)
    buffer = io.BytesIO()
    made.write(buffer)
    return made, buffer.getvalue()


needs_midi = pytest.mark.skipif(find_spec("pretty_midi") is None, reason="needs the extra audio")


@needs_midi
def test_the_pause_between_prelude_and_fugue_is_found():
    recording, _ = music([0.5, 1.0, 1.5, 5.5, 6.0, 6.5])
    prelude = mel.find_cut(recording, {"name": "a", "part": "p"}, np.array([[0, 0.5]]), round(3.5 / 0.04644))
    assert prelude == mel.Cut(0, pytest.approx(3.5, abs=1e-3))
    fugue = mel.find_cut(recording, {"name": "a", "part": "f"}, np.array([[0, 2.0]]), 99)
    assert fugue.begin == pytest.approx(3.5, abs=1e-3)
    notes = mel.trimmed(recording, fugue).instruments[0]
    assert [round(note.start, 2) for note in notes.notes] == [2.0, 2.5, 3.0]
    assert [round(change.time, 2) for change in notes.control_changes] == [3.0]
    whole = mel.find_cut(recording, {"name": "a", "part": "f", "whole": True}, np.array([[0, 9.0]]), 99)
    assert whole == mel.Cut(0, np.inf)
    with pytest.raises(ValueError, match="no pause of its recording is where it should be"):
        mel.find_cut(recording, {"name": "a", "part": "f"}, np.array([[0, 9.0]]), 99)


@needs_midi
def test_bad_midi_is_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"a\.mid: not a MIDI file"):
        mel.parse_midi({"a.mid": b"MThd nothing"}, "a.mid")
    with pytest.raises(ValueError, match="the archive has no such file"):
        mel.parse_midi({}, "a.mid")
    monkeypatch.setattr(mel, "LONGEST_AUDIO", 1)
    with pytest.raises(ValueError, match="takes 3 s, more than 1"):
        mel.parse_midi({"a.mid": music([2.5])[1]}, "a.mid")


@needs_midi
@pytest.mark.skipif(find_spec("librosa") is None, reason="needs the extra audio")
@pytest.mark.skipif(shutil.which("fluidsynth") is None, reason="needs FluidSynth")
@pytest.mark.skipif(not (mel.SOUNDFONTS / "TimGM6mb.sf2").is_file(), reason="needs a soundfont")
def test_notes_sound_where_they_are(tmp_path):
    made, _ = music([1.0, 2.0])
    frames = 80
    levels = mel.mel_frames(made, mel.SOUNDFONTS / "TimGM6mb.sf2", frames)
    assert levels.shape == (frames, 128)
    assert levels.max() == pytest.approx(0, abs=1e-3)
    rises = np.maximum(np.diff(levels, axis=0), 0).sum(1)
    rises[:5] = 0
    loudest = np.sort(np.argsort(rises)[-4:]) * mel.HOP / mel.RATE
    assert min(abs(loudest - 1)) < 0.1
    assert min(abs(loudest - 2)) < 0.1


@needs_midi
def test_a_split_is_built(tmp_path, monkeypatch):
    folder = tmp_path / "audio"
    folder.mkdir()
    write_split(folder, "val")
    entries = [
        {"name": f"00{k}_x", "score": f"score{k}", "part": "f", "whole": True, "file": "midi/m.midi"} for k in range(2)
    ]
    files = {"midi/index.json": json.dumps(entries).encode(), "midi/m.midi": music([0.5, 1.0])[1]}
    files |= {f"midi/score/score{k}.midi": music([0.5])[1] for k in range(2)}
    files |= {f"gt/00{k}_x.txt": b"# score performance\n0 0\n1 1\n" for k in range(2)}
    archive(folder / "midi_gt.tar.xz", files)
    monkeypatch.setattr(mel, "check_tools", lambda soundfonts: None)
    monkeypatch.setattr(mel, "mel_frames", lambda made, soundfont, frames: np.full((frames, 128), -20.0, np.float32))
    settings = mel.Settings(data_dir=tmp_path, mel_dir=tmp_path / "mel", splits=("val",), workers=2)
    mel.main(settings)
    found = read_slices(folder, "val", "mel", mel_folder=tmp_path / "mel")
    np.testing.assert_allclose(found.pairs.y.values, (-20 + 3 + 20) / 268, rtol=1e-6)
    np.testing.assert_allclose(found.pairs.x.values, (-20 + 5 + 20) / 268, rtol=1e-6)
    with pytest.raises(SystemExit, match="--splits is 'all'; expected one of train, val, test"):
        mel.main(replace(settings, splits=("all",)))


def test_missing_tools_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(mel.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="apt install fluidsynth"):
        mel.check_tools(tmp_path)
    monkeypatch.setattr(mel.shutil, "which", lambda name: name)
    with pytest.raises(SystemExit, match="apt install fluid-soundfont-gm"):
        mel.check_tools(tmp_path)


def test_the_real_data_are_as_described(shared_data):
    folder = shared_data / "audio"
    found = read_slices(folder, "test", "chroma")
    assert found.pairs.x.values.shape == (521, 256, 12)
    assert found.pairs.y.values.shape == (521, 282, 12)
    members = mel.read_archive(folder / "midi_gt.tar.xz")
    assert len(mel.read_index(members)) == 193
