"""The targets: for each reader, seeds, and a function that reads arbitrary bytes as its file."""

import hashlib
import inspect
import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
import torch

import likewise as lw
from likewise.data.audio import read_audio_folder
from likewise.data.files import read_sequence
from likewise.data.npz import read_npy
from likewise.data.shl import SIGNALS, read_shl
from likewise.data.tables import read_table, read_wide
from likewise.evaluation.candidates import Candidates
from likewise.models import storage
from likewise.models.config import describe
from likewise.scale.tiled_matrix import TiledMatrix
from likewise.scale.tiles import Layout, write_tile
from likewise.search.files import Files
from likewise.selection import Candidate, Result, search, trainer
from likewise.training.checkpoint import CHECKPOINT, Checkpoint, Progress
from tests.fuzz.prober import Target

try:  # the extra "web"
    from likewise.web import bodies, explorer
    from likewise.web.limits import DEFAULT_LIMITS
    from likewise.web.refusals import Refusal
    from likewise.web.uploads import CSV, Uploads
except ImportError:
    bodies, explorer, DEFAULT_LIMITS, Refusal, CSV, Uploads = None, None, None, ValueError, "", None

DATA = lw.Dataset(
    lw.Batch(torch.arange(24.0).reshape(2, 4, 3), [4, 2]), ["walk", "run"], groups=[3, 4], classes=("walk", "run")
)


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


def one_picture(folder: Path) -> None:
    from PIL import Image

    folder.mkdir()
    Image.new("RGB", (9, 9)).save(folder / "1.jpg")


def birds(name: str) -> Target:
    def prepare(folder: Path) -> list[bytes]:
        one_picture(folder / "images")
        for part, text in (("images", "1 1.jpg"), ("classes", "1 Albatross"), ("image_class_labels", "1 1")):
            (folder / f"{part}.txt").write_text(f"{text}\n")
        return [(folder / name).read_bytes()]

    return Target(prepare, beside(name, partial(lw.data.read_cub, size=8)))


def products(folder: Path) -> list[bytes]:
    one_picture(folder / "bicycle")
    return [b"image_id class_id super_class_id path\n1 1 1 bicycle/1.jpg\n", b"1 2 1 bicycle/1.jpg\n" * 2]


def cars(folder: Path) -> list[bytes]:
    from scipy.io import savemat

    one_picture(folder / "car_ims")
    rows = np.array([[("car_ims/1.jpg", 1)]], dtype=[("relative_im_path", object), ("class", object)])
    names, found = np.array([["Audi"]], dtype=object), []
    for compressed in (False, True):
        content = io.BytesIO()
        savemat(content, {"annotations": rows, "class_names": names}, do_compression=compressed)
        found.append(content.getvalue())
    return found


def flowers(folder: Path) -> list[bytes]:
    from scipy.io import savemat

    one_picture(folder / "jpg")
    (folder / "jpg" / "1.jpg").rename(folder / "jpg" / "image_00001.jpg")
    found = []
    for labels, compressed in (([[1]], False), (np.ones((1, 1), np.uint8), True)):
        content = io.BytesIO()
        savemat(content, {"labels": labels}, do_compression=compressed)
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


def described() -> list[bytes]:
    """The config of a metric with each distance, and with each kind of encoder."""
    kinds = [getattr(lw.distances, name) for name in lw.distances.__all__ if name not in ("Distance", "Elastic")]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, lw.Distance)]
    found: list[lw.Metric] = []
    for kind in kinds:
        parameters = inspect.signature(kind).parameters
        needed = {"channels": 2, "distance": lw.ADTW()}
        found.append(lw.Metric(None, kind(*(value for name, value in needed.items() if name in parameters))))
    frames = (lw.FrameMLP(2, 4), lw.models.SmallCNN(3), lw.Embedder(lw.GRUEncoder(2, 4), 4))
    found += [lw.Metric(encoder, lw.Euclidean() if i else lw.DTW()) for i, encoder in enumerate(frames)]
    return [json.dumps({"likewise": 1, "metric": describe(one)}).encode() for one in found]


def part_of_metric(name: str) -> Target:
    def prepare(folder: Path) -> list[bytes]:
        metric(folder)
        return [(folder / name).read_bytes(), *(described() if name == "config.json" else [])]

    return Target(prepare, beside(name, lw.Metric.load))


def whole() -> lw.Index:
    found = lw.Index(lw.DTW())
    found.add(DATA)
    return found


def windows() -> lw.Index:
    return lw.Index(lw.DTW(band=0.2), torch.arange(60.0).reshape(2, 30, 1).sin(), length=8, normalize="window")


def learned() -> lw.Index:
    torch.manual_seed(0)
    found = lw.Index(lw.Metric(lw.TCN(3, 4, layers=2), lw.SoftDTW(0.5)), candidates=Candidates(lw.DTW(), 1))
    found.add(DATA)
    return found


def index(name: str, make: Callable[[], lw.Index] = whole) -> Target:
    def prepare(folder: Path) -> list[bytes]:
        found = make()
        found.save(folder)
        if name.startswith("removed"):
            found.remove(found.ids[:1])
        return [path.read_bytes() for path in folder.glob(name)]

    def read(folder: Path, data: bytes) -> object:
        path = next(folder.glob(name))
        path.write_bytes(data)
        if name != "index.json":  # the checksum is right
            manifest = json.loads((folder / "index.json").read_text())
            for entry in (*manifest["parts"], manifest["removed"], manifest["weights"]):
                if entry is not None and entry["file"] == path.name:
                    entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            (folder / "index.json").write_text(json.dumps(manifest))
        return lw.Index.load(folder)

    return Target(prepare, read)


def checkpoint() -> Target:
    model = {"weight": torch.zeros(2)}

    def write(path: Path) -> None:
        state = {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(2), "amsgrad": False}}
        Checkpoint(Progress(1, 2, 3), model, None, model, state, {"epoch": 1}, {}, {"seed": 0}).write(path)

    return Target(written(write), file(lambda path: Checkpoint.read(path, model, {"seed": 0}), CHECKPOINT))


def selection() -> Target:
    """The state of an interrupted ``select``."""

    def opened(folder: Path, *, resume: bool) -> search._Search:
        candidates = {"dtw": Candidate("dtw", "DTW", lambda data: lw.Metric(None, lw.DTW()), learns=False)}
        found = search._Search(trainer.Trainer(None, candidates, folder, 0, "cpu"), print)
        found.open(resume, {})
        return found

    def write(folder: Path) -> list[bytes]:
        state = opened(folder, resume=False)
        state.results["dtw"] = Result("dtw", "DTW", False, 0.5, (0.1, 0.9), precision=(0.5, None), right=(True, False))
        state.results["tap"] = Result("tap", "TAP", True, left_out="too slow")
        state.write()
        return [(folder / search.STATE).read_bytes()]

    def read(folder: Path, data: bytes) -> object:
        (folder / search.STATE).write_bytes(data)
        return opened(folder, resume=True).ranked()

    return Target(write, read)


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
    for model in (explorer.AskBody, explorer.PairBody, explorer.ItemsBody):
        with suppress(Refusal):
            bodies.parse(model, data)
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


def uploaded(folder: Path, data: bytes) -> object:
    """A table that is sent to the page."""
    with suppress(Refusal):
        Uploads(DEFAULT_LIMITS, bodies.Like(channels=1)).read(data, CSV)
    return None


def options(folder: Path, data: bytes) -> object:
    """The part of an address after the question mark."""
    given = dict(parse_qsl(data.decode("latin-1"), keep_blank_values=True))
    for model in (bodies.SearchOptions, bodies.EmbedOptions):
        with suppress(Refusal):
            bodies.parse_options(model, given)
    return None


def stored(folder: Path) -> list[bytes]:
    return [Files.bytes_of(DATA.items.values[0]), Files.bytes_of(torch.zeros(3, 2, 2, dtype=torch.uint8))]


def stored_item(folder: Path, data: bytes) -> object:
    """An item beside a database."""
    return Files.item(str(folder), data)


DIGITS = (b"\n" + b" ".join([b"0.5"] * 13) + b"\n") * 100
PHOTOS = lw.ImageSet(torch.arange(96, dtype=torch.uint8).reshape(2, 3, 4, 4), ["iris", "rose"])
PLAIN = lw.Dataset(DATA.items, DATA.labels, classes=DATA.classes)
TARGETS: dict[str, Target] = {
    "ts": Target(written(partial(lw.data.write_ts, PLAIN)), file(lw.read_ts, "a.ts")),
    "ts-missing": Target(
        lambda folder: [b"# a\n@targetLabel true\n@missing true\n@data\n1,?,3:4\nNaN,5,?:6\n"],
        file(partial(lw.read_ts, missing="interpolate"), "a.ts"),
    ),
    "npz": Target(written(partial(lw.data.write_npz, DATA)), file(lw.read_npz, "a.npz")),
    "npz-deflated": Target(written(partial(lw.data.write_npz, DATA, compress=True)), file(lw.read_npz, "a.npz")),
    "npz-images": Target(written(partial(lw.data.write_npz, PHOTOS)), file(lw.read_npz, "a.npz")),
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
    "cub-images": birds("images.txt"),
    "cub-labels": birds("image_class_labels.txt"),
    "products": Target(products, beside("Ebay_train.txt", partial(lw.data.read_online_products, part="train", size=8))),
    "cars": Target(cars, beside("cars_annos.mat", partial(lw.data.read_cars, size=8))),
    "flowers": Target(flowers, beside("imagelabels.mat", partial(lw.data.read_flowers, size=8))),
    "sequence": Target(array, file(read_sequence, "a.npy")),
    "metric-config": part_of_metric("config.json"),
    "metric-weights": part_of_metric("model.safetensors"),
    "index-manifest": index("index.json"),
    "index-windows": index("index.json", windows),
    "index-learned": index("index.json", learned),
    "index-items": index("items-*.safetensors"),
    "index-removed": index("removed-*.safetensors"),
    "index-weights": index("weights-*.safetensors", learned),
    "stored-item": Target(stored, stored_item),
    "tile": tiles("c/0/0"),
    "tiles-manifest": tiles("zarr.json"),
    "checkpoint": checkpoint(),
    "selection": selection(),
    "json": Target(lambda folder: [b'{"a": [1, 2.5, "b"]}'], file(storage.read_json, "a.json")),
    "service-body": Target(
        lambda folder: [
            b'{"queries": [[0.0, 1.0]], "k": 3}',
            b'{"items": [[[1.0, 2.0]]]}',
            b'{"x": [[1]], "y": [[2]]}',
            b'{"query": {"item": 1, "start": 0, "end": 3}, "metrics": ["dtw"], "k": 3}',
            b'{"x": {"values": [[1]]}, "y": {"upload": "a"}, "metric": "dtw"}',
            b'{"items": [1, 2], "size": 56}',
        ],
        body,
        named=False,
    ),
    "service-array": Target(array, upload, named=False),
    "service-picture": Target(pictures, picture, named=False),
    "service-table": Target(lambda folder: [b"x\n1,2\n3,4\n", b"1\t2\n"], uploaded, named=False),
    "service-options": Target(lambda folder: [b"k=3&within=1.5&metric=dtw"], options, named=False),
}
