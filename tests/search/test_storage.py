import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import likewise as lw
from likewise.evaluation.candidates import Candidates
from likewise.search import storage
from likewise.search.storage import Folder, read_part
from tests.data.damage import refusals_that_name
from tests.search.test_exhaustive import walks
from tests.timing import cpu_seconds


@pytest.fixture
def data():
    return lw.Dataset(lw.Batch(walks(12), [12, 5, 12, 1, 7, 12, 12, 3, 12, 9, 9, 2]), ["a", "b", "ç"] * 4)


def same(one, two):
    assert one.ids == two.ids
    assert (one.labels is None) == (two.labels is None)
    assert one.labels is None or (one.labels == two.labels).all()
    assert len(one) == 0 or (
        one.items == two.items if isinstance(one.items, lw.Batch) else torch.equal(one.items, two.items)
    )
    assert repr(one.distance) == repr(two.distance)


def test_save_and_load(data, tmp_path):
    index = lw.Index(lw.DTW(band=3, ground="euclidean"), data, ids=[f"é{i}" for i in range(12)])
    index.remove(["é3"]).save(tmp_path / "a" / "b")
    assert index.folder == tmp_path / "a" / "b"
    loaded = lw.Index.load(tmp_path / "a" / "b")
    same(index, loaded)
    queries = walks(3, seed=1)
    assert torch.equal(index.search(queries, k=3).distances, loaded.search(queries, k=3).distances)
    assert {path.suffix for path in (tmp_path / "a" / "b").iterdir()} == {".json", ".safetensors", ""}


def test_changes_are_written(data, tmp_path):
    index = lw.Index(lw.DTW(), data[:4])
    index.save(tmp_path)
    index.add(data[4:6])
    same(index, lw.Index.load(tmp_path))
    index.remove(["1", "5"])
    other = lw.Index.load(tmp_path)
    same(index, other)
    other.add(data[6:8]).remove(["0"])
    assert lw.Index.load(tmp_path).ids == ("2", "3", "4", "6", "7")
    with pytest.raises(ValueError, match="changed by someone else; load it again"):
        index.add(data[8:])
    assert index.ids == ("0", "2", "3", "4")  # a refused change is no change
    other.save(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    same(other, lw.Index.load(tmp_path))


def test_many_small_additions_become_one_part(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "MOST_PARTS", 3)
    monkeypatch.setattr("likewise.search.collection.MOST_PARTS", 3)
    x = walks(9)
    index = lw.Index(lw.DTW(), x[:1])
    index.save(tmp_path)
    for i in range(1, 9):
        index.add(x[i : i + 1])
        assert len(list(tmp_path.glob("items*"))) <= 3
        if i == 4:
            index.remove(["2"])
    loaded = lw.Index.load(tmp_path)
    same(index, loaded)
    assert loaded.ids == ("0", "1", "3", "4", "5", "6", "7", "8")


@pytest.mark.parametrize(
    "make",
    [
        lambda: lw.Index(lw.Euclidean(), torch.randn(5, 3), ids=list("abcde")),
        lambda: lw.Index(lw.Metric(lw.FrameMLP(2, hidden=4, out=3), lw.TAP(width=4)), walks(4)),
        lambda: lw.Index(lw.CoupledGRU(2, hidden=(3,)), (walks(4), [1.0, 2.0, 0.5, 4.0])),
        lambda: lw.Index(
            lw.DTW(), walks(4), candidates=lw.evaluation.Candidates(lw.SiameseGRU(2, hidden=(3,)), keep=2)
        ),
        lambda: lw.Index(lw.DTW(band=0.1), walks(2, 40).double(), length=10, normalize="window", stretch=(0.9, 1.2)),
        lambda: lw.Index(lw.DTW(), walks(2, 40), subsequence=True),
        lambda: lw.Index(lw.SoftDTW(gamma=0.3)),
    ],
    ids=["vectors", "metric", "weights", "candidates", "windows", "subsequence", "empty"],
)
def test_every_kind_of_index(make, tmp_path):
    torch.manual_seed(0)
    index = make()
    index.save(tmp_path)
    state = torch.get_rng_state()
    loaded = lw.Index.load(tmp_path)
    assert torch.equal(state, torch.get_rng_state())
    same(index, loaded)
    one, two = index.options, loaded.options
    assert (one.length, one.subsequence, one.normalize, one.stretch) == (
        two.length,
        two.subsequence,
        two.normalize,
        two.stretch,
    )
    assert repr(one.candidates) == repr(two.candidates)
    for a, b in zip(index.distance.parameters(), loaded.distance.parameters(), strict=True):
        assert torch.equal(a, b)
    if len(index):
        queries = index.items[:1] if not index.options.windows else [index.items[0][:10]]
        assert torch.equal(index.search(queries, k=2).distances, loaded.search(queries, k=2).distances)


def test_items_of_equal_length_stay_mapped(tmp_path):
    lw.Index(lw.DTW(), torch.zeros(64, 1024, 16)).save(tmp_path)
    index = lw.Index.load(tmp_path, verify=False)
    values = index.items.values
    assert values.data_ptr() == index._held.parts[0].values.data_ptr()


def test_a_class_of_ones_own(tmp_path):
    class Own(lw.DTW):
        pass

    lw.Index(Own(), walks(2)).save(tmp_path)
    with pytest.raises(ValueError, match="unknown class 'Own'"):
        lw.Index.load(tmp_path)
    assert isinstance(lw.Index.load(tmp_path, classes=[Own]).distance, Own)


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "index.json").write_text('{"mine": 1}')
    with pytest.raises(ValueError, match="not an index of likewise; choose another folder"):
        lw.Index(lw.DTW(), walks(2)).save(tmp_path)
    assert (tmp_path / "index.json").read_text() == '{"mine": 1}'
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("keep")
    lw.Index(lw.DTW(), walks(2)).save(tmp_path / "b")
    lw.Index(lw.DTW(), walks(3)).save(tmp_path / "b")  # in place of the other
    assert (tmp_path / "b" / "notes.txt").read_text() == "keep"
    assert len(lw.Index.load(tmp_path / "b")) == 3
    with pytest.raises(FileNotFoundError):
        lw.Index.load(tmp_path / "nothing")


def change(path, edit):
    manifest = json.loads((path / "index.json").read_text())
    edit(manifest)
    (path / "index.json").write_text(json.dumps(manifest))


def rewrite(path, edit):
    """Change the tensors of the part, and make the manifest fit."""
    file = next(path.glob("items*"))
    with safe_open(file, framework="pt") as part:
        tensors = {name: part.get_tensor(name).clone() for name in part.keys()}  # noqa: SIM118
    edit(tensors)
    save_file(tensors, file)
    entry = {"file": file.name, "bytes": file.stat().st_size, "sha256": storage._digest(file)}
    change(path, lambda manifest: manifest.update(parts=[entry]))


def longer(path):
    path.write_bytes(path.read_bytes() + b"x")


HOSTILE = [
    ("a longer file", lambda p: longer(next(p.glob("items*"))), "it is damaged"),
    ("a missing file", lambda p: next(p.glob("items*")).unlink(), "is missing"),
    ("a path", lambda p: change(p, lambda m: m["parts"][0].update(file="../items-1.safetensors")), "expected a file of the index"),
    ("no list", lambda p: change(p, lambda m: m.update(parts={})), "expected a list of at most"),
    ("many parts", lambda p: change(p, lambda m: m.update(parts=m["parts"] * 99)), "expected a list of at most"),
    ("twice the same", lambda p: change(p, lambda m: m.update(parts=m["parts"] * 2)), "two items have the same id"),
    ("another class", lambda p: change(p, lambda m: m["settings"]["distance"].update({"class": "os.system"})), "unknown class"),
    ("another setting", lambda p: change(p, lambda m: m["settings"].update(evil=1)), "expected the settings"),
    ("a bad option", lambda p: change(p, lambda m: m["settings"].update(length="x")), "expected length to be a number"),
    ("a bad number", lambda p: change(p, lambda m: m.update(generation=-1)), "expected generation"),
    ("another version", lambda p: change(p, lambda m: m.update(likewise=2)), "not an index of likewise"),
    ("weights", lambda p: change(p, lambda m: m["settings"].update(distance={"class": "TAP", "settings": {}})), "names no weights"),
    ("no finite numbers", lambda p: rewrite(p, lambda t: t["frames"].fill_(torch.nan)), "not finite"),
    ("offsets beyond", lambda p: rewrite(p, lambda t: t["offsets"].mul_(2)), "divide the frames"),
    ("offsets that fall", lambda p: rewrite(p, lambda t: t["offsets"][1:3].fill_(1)), "divide the frames"),
    ("whole numbers", lambda p: rewrite(p, lambda t: t.update(frames=t["frames"].long())), "floating point"),
    ("more ids", lambda p: rewrite(p, lambda t: t["id_ends"].add_(1)), "divide id_bytes"),
    ("no text", lambda p: rewrite(p, lambda t: t["id_bytes"].fill_(255)), "not UTF-8"),
    ("the same ids", lambda p: rewrite(p, lambda t: t["id_bytes"].fill_(65)), "same id"),
    ("other classes", lambda p: rewrite(p, lambda t: t["label_codes"].add_(9)), "expected the class of each"),
    ("other tensors", lambda p: rewrite(p, lambda t: t.update(more=torch.zeros(1))), "expected the tensors"),
]  # fmt: skip


@pytest.mark.parametrize(("harm", "message"), [(h, m) for _, h, m in HOSTILE], ids=[name for name, _, _ in HOSTILE])
def test_hostile_folders_are_refused(data, tmp_path, harm, message):
    lw.Index(lw.DTW(), data[:9]).save(tmp_path)
    harm(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        lw.Index.load(tmp_path)


def test_a_distance_of_many_layers_is_refused_at_once(data, tmp_path):
    lw.Index(lw.DTW(), data).save(tmp_path)
    manifest = json.loads((tmp_path / "index.json").read_text())
    encoders = [{"class": "TCN", "settings": {"channels": 2, "hidden": 4, "layers": 24}}] * 500
    embedder = {"class": "Embedder", "settings": {"encoder": encoders, "out": 4}}
    metric = {"encoder": embedder, "distance": {"class": "DTW", "settings": {}}}
    manifest["settings"]["distance"] = {"class": "Metric", "settings": metric}
    (tmp_path / "index.json").write_text(json.dumps(manifest))

    def refused():
        with pytest.raises(ValueError, match=r"index\.json: asks for 12000 layers, but the index holds 0 tensors"):
            lw.Index.load(tmp_path)

    assert cpu_seconds(refused) < 0.05


def test_options_that_make_no_sense_name_the_manifest(tmp_path):
    candidates = Candidates(lw.DTW(), 1)
    lw.Index(lw.SoftDTW(), torch.zeros(2, 4, 1), candidates=candidates).save(tmp_path)
    path = tmp_path / "index.json"
    for old, new in (('"keep": 1', '"keep": 0'), ('"normalize": null', '"normalize": "all"')):
        kept = path.read_text()
        assert old in kept
        path.write_text(kept.replace(old, new))
        with pytest.raises(ValueError, match=r"index\.json: .*must be"):
            lw.Index.load(tmp_path)
        path.write_text(kept)


def test_a_flipped_bit_is_found(data, tmp_path):
    lw.Index(lw.DTW(), data).save(tmp_path)
    path = next(tmp_path.glob("items*"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        lw.Index.load(tmp_path)


def test_removed_positions_are_checked(data, tmp_path):
    index = lw.Index(lw.DTW(), data)
    index.save(tmp_path)
    index.remove(["2"])
    path = next(tmp_path.glob("removed*"))
    save_file({"removed": torch.tensor([99])}, path)
    entry = {"file": path.name, "bytes": path.stat().st_size, "sha256": storage._digest(path)}
    change(tmp_path, lambda manifest: manifest.update(removed=entry))
    with pytest.raises(ValueError, match="increasing positions"):
        lw.Index.load(tmp_path)


def test_a_limit_on_the_size(data, tmp_path):
    lw.Index(lw.DTW(), data).save(tmp_path)
    with pytest.raises(ValueError, match="more than the limit of 10"):
        lw.Index.load(tmp_path, limit=10)


def test_damaged_parts_are_refused(data, tmp_path):
    lw.Index(lw.DTW(), data).save(tmp_path)
    path = next(tmp_path.glob("items*"))
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(60):
        harmed = bytearray(content)
        for _ in range(generator.integers(1, 6)):
            harmed[generator.integers(0, min(len(harmed), 700))] = generator.integers(0, 256)
        path.write_bytes(harmed[: generator.integers(1, len(harmed) + 1)])
        with refusals_that_name(str(path)):
            assert len(read_part(path)) <= 12


CRASH = """
import os, signal, sys, time
import torch
import likewise as lw
from pathlib import Path

torch.set_num_threads(1)
folder, trials = Path(sys.argv[1]), int(sys.argv[2])
x = torch.arange(400.0).reshape(40, 5, 2)


def held():
    index = lw.Index.load(folder)
    values = index.items.values
    assert all(torch.equal(values[i], x[int(name)]) for i, name in enumerate(index.ids)), index.ids
    return index.ids


def die_after(calls):
    # Die at a call of the operating system that makes a change last.
    left = [calls]

    def counted(function):
        def call(*args):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return function(*args)
        return call

    for name in ("fsync", "replace", "unlink"):
        setattr(os, name, counted(getattr(os, name)))


def trials_of(what):
    index = lw.Index(lw.DTW(), x[:4], ids=range(4))
    index.save(folder)
    before = held()
    died = 0
    for trial in range(trials):
        child = os.fork()
        if child == 0:
            mine = lw.Index.load(folder)
            die_after(trial % 10)
            if what == "add":
                fresh = int(max(map(int, mine.ids))) + 1
                mine.add(x[fresh : fresh + 1], ids=[fresh])
            elif what == "remove":
                mine.remove([mine.ids[0]])
            else:
                lw.Index(lw.DTW(), x[4 + trial : 7 + trial], ids=range(4 + trial, 7 + trial)).save(folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        died += os.WIFSIGNALED(status)
        now = held()
        after = {
            "add": before + (str(max(map(int, before)) + 1),),
            "remove": before[1:],
            "save": tuple(str(i) for i in range(4 + trial, 7 + trial)),
        }[what]
        assert now in (before, after), (trial, before, now)
        if not os.WIFSIGNALED(status):
            assert now == after
        before = now
        if what == "remove" and len(before) < 2:
            lw.Index(lw.DTW(), x[:4], ids=range(4)).save(folder)
            before = held()
    return died


print(*map(trials_of, ('add', 'save', 'remove')))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a Unix signal")
def test_kill_during_a_change(tmp_path):
    command = [sys.executable, "-c", CRASH, str(tmp_path / "index"), "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert all(int(died) >= 8 for died in done.stdout.split())  # the others came through before their turn


def test_one_writer_at_a_time(tmp_path):
    index = lw.Index(lw.DTW(), walks(2))
    index.save(tmp_path)
    other = Folder(tmp_path)
    other.read_manifest()
    with other.changing(), pytest.raises(ValueError, match="another process"):
        index.add(walks(1))
    assert len(index.add(walks(1))) == 3
