"""What is fuzzed: for each reader, seeds, and a function that reads arbitrary bytes as its file.

A reader may return, or raise a ValueError or an OSError. Everything else is a finding: any other exception, more than two
seconds of CPU time, or more than 512 MB beyond the size of the file.
"""

import hashlib
import io
import json
import resource
import time
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

import likewise as lw
from likewise.data.audio import read_audio_folder
from likewise.data.npz import read_npy
from likewise.data.shl import SIGNALS, read_shl
from likewise.data.tables import read_table, read_wide
from likewise.models import storage
from likewise.scale.tiled_matrix import TiledMatrix
from likewise.scale.tiles import Layout, write_tile
from likewise.training.checkpoint import CHECKPOINT, Checkpoint, Progress

try:  # the extra "web"
    from likewise.web import bodies
    from likewise.web.limits import DEFAULT_LIMITS
    from likewise.web.refusals import Refusal
except ImportError:
    bodies, DEFAULT_LIMITS, Refusal = None, None, ValueError

SECONDS, BYTES = 2.0, 512 << 20
DATA = lw.Dataset(
    lw.Batch(torch.arange(24.0).reshape(2, 4, 3), [4, 2]), ["walk", "run"], groups=[3, 4], classes=("walk", "run")
)


@dataclass(frozen=True)
class Target:
    """A reader: ``prepare`` fills a folder and gives the seeds, ``read`` reads bytes, with that folder to write to."""

    prepare: Callable[[Path], list[bytes]]
    read: Callable[[Path, bytes], object]


def written(write: Callable[[Path], object], name: str = "seed") -> Callable[[Path], list[bytes]]:
    """Seeds that one of our writers writes."""

    def prepare(folder: Path) -> list[bytes]:
        write(folder / name)
        return [(folder / name).read_bytes()]

    return prepare


def file(reader: Callable[[Path], object], name: str) -> Callable[[Path, bytes], object]:
    """Read bytes as one file of that name."""

    def read(folder: Path, data: bytes) -> object:
        (folder / name).write_bytes(data)
        return reader(folder / name)

    return read


def beside(name: str, reader: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
    """Read a folder in which one file has those bytes."""

    def read(folder: Path, data: bytes) -> object:
        (folder / name).write_bytes(data)
        return reader(folder)

    return read


def har(name: str) -> Target:
    def prepare(folder: Path) -> list[bytes]:
        signals = folder / "train" / "Inertial Signals"
        signals.mkdir(parents=True)
        for signal in ("body_acc", "body_gyro", "total_acc"):
            for axis in "xyz":
                (signals / f"{signal}_{axis}_train.txt").write_text("1.0e+00 2\n3 4\n")
        (folder / "train" / "y_train.txt").write_text("1\n2\n")
        (folder / "train" / "subject_train.txt").write_text("1\n2\n")
        (folder / "activity_labels.txt").write_text("1 WALKING\n2 LAYING\n")
        return [(folder / name).read_bytes()]

    return Target(prepare, beside(name, partial(lw.data.read_har, split="train")))


def shl(name: str) -> Target:
    def prepare(folder: Path) -> list[bytes]:
        for signal in SIGNALS:
            (folder / f"{signal}.txt").write_text(("1.0 " if signal == "Ori_w" else "0.5 ") * 4 + "\n")
        (folder / "Label.txt").write_text("2 2 2 2\n")
        (folder / "train_order.txt").write_text("1\n")
        return [(folder / name).read_bytes(), b"nan nan 1 1\n"]

    return Target(prepare, beside(name, partial(read_shl, steps=2)))


def wav(folder: Path) -> list[bytes]:
    import soundfile

    (folder / "cat").mkdir()
    found = []
    for subtype in ("PCM_16", "FLOAT"):
        content = io.BytesIO()
        soundfile.write(content, np.linspace(-0.5, 0.5, 40), 8000, format="WAV", subtype=subtype)
        found.append(content.getvalue())
    return found


def pictures(folder: Path) -> list[bytes]:
    from PIL import Image

    (folder / "cat").mkdir()
    found = []
    for kind in ("PNG", "JPEG", "WEBP", "GIF"):
        content = io.BytesIO()
        Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(content, kind)
        found.append(content.getvalue())
    return found


def packed(folder: Path, data: bytes) -> object:
    """The bytes of one array, in an archive whose checksums are right."""
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("X.npy", data)
    return lw.read_npz(folder / "a.npz")


def array(folder: Path) -> list[bytes]:
    found = []
    for values in (np.zeros((1, 2, 1)), np.zeros((2, 3, 1), np.float32, order="F"), np.zeros((1, 2, 1), ">f2")):
        content = io.BytesIO()
        np.save(content, values)
        found.append(content.getvalue())
    return found


def table(name: str) -> Target:
    def parquet(path: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        columns = {"id": ["a", "a", "b"], "time": [0, 1, 0], "x": [1.0, 2.0, 3.0], "label": ["u", "u", "v"]}
        parquet.write_table(pyarrow.table(columns), path)

    rows = b"id,time,x,label\na,0,1.0,u\na,1,2.5,u\nb,0,,v\n"
    prepare = written(parquet) if name.endswith("parquet") else lambda folder: [rows, rows.replace(b",", b"\t")]
    return Target(prepare, file(partial(read_table, id="id", time="time", label="label", fill=0.0), name))


def metric(folder: Path) -> None:
    torch.manual_seed(0)
    slope = torch.nn.Parameter(torch.tensor([0.5]))
    lw.Metric(lw.TCN(2, 4, layers=2), lw.GDTW(torch.nn.Parameter(torch.tensor(0.1)), slope=(slope, 4.0))).save(folder)


def part_of_metric(name: str) -> Target:
    def prepare(folder: Path) -> list[bytes]:
        metric(folder)
        others = [lw.CoupledGRU(2), lw.TAP(4), lw.OPW(), lw.SoftDTW(0.5, band=2)]
        seeds = [(folder / name).read_bytes()]
        if name == "config.json":
            for distance in others:
                lw.Metric(None, distance).save(folder / "other")
                seeds.append((folder / "other" / name).read_bytes())
        return seeds

    return Target(prepare, beside(name, lw.Metric.load))


def index(name: str) -> Target:
    def prepare(folder: Path) -> list[bytes]:
        found = lw.Index(lw.DTW())
        found.add(DATA)
        found.save(folder)
        return [path.read_bytes() for path in folder.glob(name)]

    def read(folder: Path, data: bytes) -> object:
        path = next(folder.glob(name))
        path.write_bytes(data)
        if name != "index.json":  # the checksum is right
            manifest = json.loads((folder / "index.json").read_text())
            manifest["parts"][0] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            (folder / "index.json").write_text(json.dumps(manifest))
        return lw.Index.load(folder)

    return Target(prepare, read)


def checkpoint() -> Target:
    model = {"weight": torch.zeros(2)}

    def write(path: Path) -> None:
        state = {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(2), "amsgrad": False}}
        Checkpoint(Progress(1, 2, 3), model, None, model, state, {"epoch": 1}, {}, {"seed": 0}).write(path)

    return Target(written(write), file(lambda path: Checkpoint.read(path, model, {"seed": 0}), CHECKPOINT))


def tiles(name: str) -> Target:
    layout = Layout((3, 3), (2, 2), "float32", True, "DTW()", "0")

    def prepare(folder: Path) -> list[bytes]:
        layout.write(folder)
        for tile in layout.tiles():
            write_tile(folder, layout, tile, np.ones(tile.shape, np.float32))
        return [(folder / name).read_bytes()]

    return Target(prepare, beside(name, lambda folder: TiledMatrix(folder)[:2, :2]))


def body(folder: Path, data: bytes) -> object:
    """The JSON body of a request, as each kind that the service takes."""
    for model, names in (
        (bodies.SearchBody, ["queries"]),
        (bodies.EmbedBody, ["items"]),
        (bodies.PairsBody, ["x", "y"]),
    ):
        with suppress(Refusal):
            given = bodies.parse(model, data)
            for name in names:
                bodies.sequences(name, getattr(given, name), DEFAULT_LIMITS)
    return None


def upload(folder: Path, data: bytes) -> object:
    """An array that is sent to the service, to be read as sequences and as images."""
    for like in (bodies.Like(channels=1), bodies.Like(image=(3, 8, 8))):
        with suppress(Refusal):
            bodies.array(data, "queries", DEFAULT_LIMITS, like)
    return None


def picture(folder: Path, data: bytes) -> object:
    """A picture that is sent to the service."""
    with suppress(Refusal):
        bodies.picture(data, DEFAULT_LIMITS, (3, 8, 8))
    return None


DIGITS = (b"\n" + b" ".join([b"0.5"] * 13) + b"\n") * 100
PLAIN = lw.Dataset(DATA.items, DATA.labels, classes=DATA.classes)
TARGETS: dict[str, Target] = {
    "ts": Target(written(partial(lw.data.write_ts, PLAIN)), file(lw.read_ts, "a.ts")),
    "ts-missing": Target(
        lambda folder: [b"# a\n@targetLabel true\n@missing true\n@data\n1,?,3:4\nNaN,5,?:6\n"],
        file(partial(lw.read_ts, missing="interpolate"), "a.ts"),
    ),
    "npz": Target(written(partial(lw.data.write_npz, DATA)), file(lw.read_npz, "a.npz")),
    "npz-deflated": Target(written(partial(lw.data.write_npz, DATA, compress=True)), file(lw.read_npz, "a.npz")),
    "npz-array": Target(array, packed),
    "npy": Target(array, file(read_npy, "a.npy")),
    "csv": table("a.csv"),
    "tsv": table("a.tsv"),
    "parquet": table("a.parquet"),
    "wide": Target(lambda folder: [b"walk,1,2,3\nrun,4,5,\n"], file(partial(read_wide, label=0), "a.csv")),
    "digits": Target(
        lambda folder: [DIGITS], file(partial(lw.data.read_arabic_digits, speakers=range(1)), "digits.txt")
    ),
    "har-signal": har("train/Inertial Signals/body_acc_x_train.txt"),
    "har-labels": har("train/y_train.txt"),
    "har-activities": har("activity_labels.txt"),
    "shl-signal": shl("Acc_x.txt"),
    "shl-labels": shl("Label.txt"),
    "wav": Target(wav, beside("cat/1.wav", read_audio_folder)),
    "images": Target(pictures, beside("cat/1.png", partial(lw.read_image_folder, size=8))),
    "metric-config": part_of_metric("config.json"),
    "metric-weights": part_of_metric("model.safetensors"),
    "index-manifest": index("index.json"),
    "index-items": index("items-*.safetensors"),
    "tile": tiles("c/0/0"),
    "tiles-manifest": tiles("zarr.json"),
    "checkpoint": checkpoint(),
    "json": Target(lambda folder: [b'{"a": [1, 2.5, "b"]}'], file(storage.read_json, "a.json")),
    "service-body": Target(
        lambda folder: [
            b'{"queries": [[0.0, 1.0]], "k": 3}',
            b'{"items": [[[1.0, 2.0]]]}',
            b'{"x": [[1]], "y": [[2]]}',
        ],
        body,
    ),
    "service-array": Target(array, upload),
    "service-picture": Target(pictures, picture),
}


class FoundError(AssertionError):
    """What must not happen."""


class Prober:
    """Feeds inputs to one target, and raises FoundError for what must not happen."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder, self.target = folder, TARGETS[name]
        self.seeds = self.target.prepare(folder)
        for seed in self.seeds:
            self(seed)
        self.memory = _peak()

    def __call__(self, data: bytes) -> None:
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.target.read(self.folder, data)
        except (ValueError, OSError) as error:
            # Ours names the file; OSError may come from the system, for an odd path that a file names.
            if type(error) is not ValueError and not isinstance(error, OSError):
                raise FoundError(f"{type(error).__name__}: {error}") from error
        except Exception as error:
            raise FoundError(f"{type(error).__name__}: {error}") from error
        taken = time.process_time() - start
        if taken > SECONDS:
            raise FoundError(f"took {taken:.1f} s")
        if _peak() > getattr(self, "memory", 1 << 60) + BYTES + len(data):
            raise FoundError(f"took {(_peak() - self.memory) >> 20} MB")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
