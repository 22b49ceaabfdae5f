"""Mel spectrograms of the audio-to-score data, from their MIDI files.

    python -m papers.decdtw.mel --data-dir DATA --mel-dir FOLDER

reads audio/midi_gt.tar.xz and audio/{train,val,test}.npz under DATA, renders each performance and each score with
FluidSynth, and writes {train,val,test}_mel.npz to FOLDER: 128 mel bands at the frames of the CQT and chroma that the
.npz files hold. ``papers.decdtw.run --mel-dir FOLDER`` reads them.

Needs the extra ``audio`` (librosa, pretty_midi) and Debian's fluidsynth, fluid-soundfont-gm (performances) and
timgm6mb-soundfont (scores). A recording of prelude and fugue is cut in the middle of the pause between them, as the
ground truth was. Levels are stored relative to the loudest band of each recording; the .npz files have its level.

The archive is never unpacked to disk, and what its members may be called and how large they may be is bounded.
"""

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from papers.common import Run, check_choice, from_command_line, load
from papers.decdtw.data import SPLITS

RATE, HOP, BANDS = 22050, 1024, 128
SOUNDFONTS = Path("/usr/share/sounds/sf2")
LONGEST_MEMBER, LONGEST_ARCHIVE, MOST_MEMBERS = 4 << 20, 64 << 20, 2000  # bytes, bytes, files
MEMBER = re.compile(r"(midi|gt)(/[A-Za-z0-9 ._\-]{1,200}){0,3}")
LONGEST_AUDIO = 3600  # seconds
RENDERING_TAKES = 600  # seconds at most
SHORTEST_PAUSE = 1.0  # seconds between a prelude and its fugue


@dataclass(frozen=True)
class Cut:
    """A stretch of a recording, in seconds."""

    begin: float
    end: float


@dataclass(frozen=True)
class Settings:
    """Where files come from and go to."""

    data_dir: Path = Run.data_dir  # holds audio/
    mel_dir: Path = Path("mel")  # where the _mel.npz files go
    soundfonts: Path = SOUNDFONTS  # holds FluidR3_GM.sf2 and TimGM6mb.sf2
    splits: tuple[str, ...] = SPLITS
    workers: int = os.cpu_count() or 1  # recordings rendered at once


def main(settings: Settings) -> None:
    """Render the MIDI files and write their mel spectrograms."""
    source = settings.data_dir / "audio"
    check_tools(settings.soundfonts)
    members = read_archive(source / "midi_gt.tar.xz")
    settings.mel_dir.mkdir(parents=True, exist_ok=True)
    for split in settings.splits:
        check_choice("--splits", split, SPLITS)
        mel = build_split(load(source / f"{split}.npz"), members, settings.soundfonts, settings.workers)
        path = settings.mel_dir / f"{split}_mel.npz"
        np.savez_compressed(path, **mel)  # type: ignore[arg-type]
        print(f"{path}: {len(mel['perf_mel']):,} frames of performances")


def build_split(
    arrays: dict[str, np.ndarray], members: dict[str, bytes], soundfonts: Path, workers: int
) -> dict[str, np.ndarray]:
    """perf_mel and score_mel (frames, 128) uint8: minus the level by step_mel, differenced along time, modulo 256."""
    index = {entry["name"]: entry for entry in read_index(members)}
    step = float(arrays["step_mel"])

    def performance(k: int) -> np.ndarray:
        entry = index[str(arrays["names"][k])]
        frames = int(arrays["perf_off"][k + 1] - arrays["perf_off"][k])
        music = parse_midi(members, entry["file"])
        truth = read_truth(members[f"gt/{entry['name']}.txt"])
        return mel_frames(trimmed(music, find_cut(music, entry, truth, frames)), soundfonts / "FluidR3_GM.sf2", frames)

    def score(k: int) -> np.ndarray:
        frames = int(arrays["score_off"][k + 1] - arrays["score_off"][k])
        music = parse_midi(members, f"midi/score/{arrays['score_names'][k]}.midi")
        return mel_frames(music, soundfonts / "TimGM6mb.sf2", frames)

    with ThreadPoolExecutor(workers) as pool:
        found = {
            "perf_mel": list(pool.map(performance, range(len(arrays["names"])))),
            "score_mel": list(pool.map(score, range(len(arrays["score_names"])))),
        }
    packed = {}
    for name, levels in found.items():
        stacked = np.clip(np.rint(np.concatenate(levels) / -step), 0, 255).astype(np.uint8)
        packed[name] = np.diff(stacked, axis=0, prepend=np.zeros((1, BANDS), np.uint8))
    return packed


def check_tools(soundfonts: Path) -> None:
    """Raise an error before any work if a tool or a file is missing."""
    if shutil.which("fluidsynth") is None:
        raise SystemExit("error: fluidsynth is not installed; on Debian: apt install fluidsynth")
    for name, package in (("FluidR3_GM.sf2", "fluid-soundfont-gm"), ("TimGM6mb.sf2", "timgm6mb-soundfont")):
        if not (soundfonts / name).is_file():
            raise SystemExit(f"error: {soundfonts / name} does not exist; on Debian: apt install {package}")
    try:
        import librosa  # noqa: F401
        import pretty_midi  # noqa: F401
    except ImportError as error:
        raise SystemExit(f"error: {error.name} is not installed: pip install 'likewise[audio]'") from None


def read_archive(path: Path) -> dict[str, bytes]:
    """The files of the archive by name, all in memory; links, odd names and large files are refused."""
    if not path.is_file():
        raise SystemExit(f"error: {path} does not exist; give --data-dir or set LIKEWISE_DATA")
    members: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(path, "r:*") as archive:
            for count, member in enumerate(archive):
                total += member.size
                if member.size > LONGEST_MEMBER or total > LONGEST_ARCHIVE or count >= MOST_MEMBERS:
                    raise ValueError(f"{path}: {member.name!r} makes it too large")
                if member.isdir():
                    continue
                if not member.isreg() or not MEMBER.fullmatch(member.name) or ".." in member.name:
                    raise ValueError(f"{path}: expected plain files in midi/ and gt/, got {member.name!r}")
                file = archive.extractfile(member)
                assert file is not None  # it is a regular file
                members[member.name] = file.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{path}: a damaged archive: {error}") from error
    return members


def read_index(members: dict[str, bytes]) -> list[dict[str, Any]]:
    """What each performance is: its name, score, part (p, f or whole) and file."""
    try:
        entries = json.loads(members["midi/index.json"])
        for entry in entries:
            if not all(isinstance(entry[key], str) for key in ("name", "score", "part", "file")):
                raise TypeError(f"an entry is {entry!r}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"midi/index.json: expected a list of entries with name, score, part, file: {error}") from None
    return entries


def read_truth(text: bytes) -> np.ndarray:
    """Times (K, 2) of score and performance."""
    return np.loadtxt(io.BytesIO(text), ndmin=2, dtype=np.float64)


def parse_midi(members: dict[str, bytes], name: str) -> Any:
    """The music of a MIDI file, a ``pretty_midi.PrettyMIDI``."""
    import pretty_midi

    if name not in members:
        raise ValueError(f"{name}: the archive has no such file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tempo changes outside the first track
        try:
            music = pretty_midi.PrettyMIDI(io.BytesIO(members[name]))
        except Exception as error:  # the parser states no bound on what malformed bytes may raise
            raise ValueError(f"{name}: not a MIDI file, or a damaged one: {error}") from error
    if music.get_end_time() > LONGEST_AUDIO:
        raise ValueError(f"{name}: takes {music.get_end_time():.0f} s, more than {LONGEST_AUDIO}")
    return music


def find_cut(music: Any, entry: dict[str, Any], truth: np.ndarray, frames: int) -> Cut:
    """Where the part lies in its recording. A fugue begins in the middle of the pause that the truth begins with."""
    if entry.get("whole"):
        return Cut(0, np.inf)
    onsets = np.unique([note.start for part in music.instruments for note in part.notes])
    pauses, middles = np.diff(onsets), (onsets[1:] + onsets[:-1]) / 2
    is_fugue = entry["part"] == "f"
    misses = np.abs(pauses / 2 - truth[0, 1] if is_fugue else middles - frames * HOP / RATE)
    misses[pauses < SHORTEST_PAUSE] = np.inf
    if not len(misses) or misses.min() > 2 * HOP / RATE:
        raise ValueError(f"{entry['name']}: no pause of its recording is where it should be")
    middle = float(middles[misses.argmin()])
    return Cut(middle, np.inf) if is_fugue else Cut(0, middle)


def trimmed(music: Any, cut: Cut) -> Any:
    """The notes and pedals that begin within a cut, from time 0."""
    import pretty_midi

    kept = pretty_midi.PrettyMIDI(resolution=960)  # half a millisecond
    for part in music.instruments:
        copy = pretty_midi.Instrument(part.program)
        for note in part.notes:
            if cut.begin <= note.start < cut.end:
                end = min(note.end, cut.end) - cut.begin
                copy.notes.append(pretty_midi.Note(note.velocity, note.pitch, note.start - cut.begin, end))
        for change in part.control_changes:
            if cut.begin <= change.time < cut.end:
                copy.control_changes.append(
                    pretty_midi.ControlChange(change.number, change.value, change.time - cut.begin)
                )
        kept.instruments.append(copy)
    return kept


def mel_frames(music: Any, soundfont: Path, frames: int) -> np.ndarray:
    """Levels (frames, 128) in dB, 0 for the loudest; silence fills what the rendering lacks."""
    import librosa

    audio = render(music, soundfont)
    power = librosa.feature.melspectrogram(y=audio, sr=RATE, hop_length=HOP, n_mels=BANDS)
    levels = librosa.power_to_db(power, ref=np.max, top_db=None).T[:frames].astype(np.float32)
    return np.pad(levels, ((0, frames - len(levels)), (0, 0)), constant_values=levels.min())


def render(music: Any, soundfont: Path) -> np.ndarray:
    """Audio (samples,) of some music, played by FluidSynth."""
    import soundfile

    with tempfile.TemporaryDirectory() as folder:
        midi, sound = Path(folder, "music.mid"), Path(folder, "music.wav")
        music.write(str(midi))
        command = ["fluidsynth", "-ni", "-q", "-r", str(RATE), "-F", str(sound), str(soundfont), str(midi)]
        done = subprocess.run(command, capture_output=True, timeout=RENDERING_TAKES, check=False)
        if done.returncode or not sound.exists():
            raise RuntimeError(f"fluidsynth failed: {done.stderr.decode(errors='replace')[-500:]}")
        audio, _ = soundfile.read(sound, dtype="float32", always_2d=True)
    return audio.mean(1)


if __name__ == "__main__":
    main(*from_command_line(Settings()))
