"""An index in a store: the store here is a dict; test_milvus.py has real ones."""

import os
from pathlib import Path

import pytest
import torch

import likewise as lw
from likewise.search.files import Files
from likewise.search.store import check_fields, check_where
from tests.search.stores import DictStore, check_sequences, check_vectors, walks


def test_sequences(tmp_path):
    index = check_sequences(lambda name, files: DictStore(files), tmp_path)
    kept = {key for key, *_ in index.store.rows.values()}
    files = {name.removesuffix(".safetensors") for _, _, found in os.walk(tmp_path) for name in found}
    assert files == kept  # none is left of what was removed and replaced


def test_vectors(tmp_path):
    check_vectors(lambda name, files: DictStore(files), tmp_path)


class Failing(DictStore):
    """It stops after some writes, before or after the write is done."""

    left, after = 10**9, False

    def put(self, rows):
        self.left -= 1
        if self.left < 0 and not self.after:
            raise ConnectionError("gone")
        super().put(rows)
        if self.left < 0:
            raise ConnectionError("gone")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("verb", ["add", "upsert"])
def test_a_call_that_failed_is_repeated(monkeypatch, after, verb):
    monkeypatch.setattr("likewise.search.stored.ROWS_AT_ONCE", 4)
    x, store = torch.randn(11, 3), Failing()
    store.left, store.after = 1, after
    index = lw.Index(lw.Euclidean(), store=store)
    with pytest.raises(ConnectionError, match=f"Index.{verb}: gone; 4 of 11 items are stored. Repeat the call"):
        getattr(index, verb)(x)
    store.left = 10**9
    getattr(index, verb)(x)
    assert len(index) == 11
    assert index.search(x, k=1).ids[:, 0].tolist() == [str(i) for i in range(11)]


def test_files_with_false_claims(tmp_path):
    x = walks(3)
    store = DictStore(str(tmp_path))
    index = lw.Index(lw.DTW(), store=store, candidates=lw.evaluation.Candidates(lw.MeanFrames(), keep=9)).add(x)
    (key, *_), path = store.rows["1"], store.files.path(store.rows["1"][0])
    right = Path(path).read_bytes()
    for content, said in (
        (right[:-1], "damaged"),
        (right[:-1] + b"\0", "damaged"),
        (b"", "damaged"),
        (Files.bytes_of(x[0]), "damaged"),
    ):
        Path(path).write_bytes(content)
        with pytest.raises(ValueError, match=said):
            index.search(x, k=1)
    os.unlink(path)
    with pytest.raises(ValueError, match="the file of item '1' is missing"):
        index.search(x, k=1)
    store.files.write({key: right})
    store.files.limit = 10
    with pytest.raises(ValueError, match="more than 10 bytes"):
        index.search(x, k=1)
    # A valid safetensors file under the right key, but not an item.
    for tensor in (torch.tensor([[float("nan")]]), torch.tensor([[1]]), torch.empty(0, 2)):
        with pytest.raises(ValueError):
            Files.item("here", Files.bytes_of(tensor))
    for wrong in ("../../etc/passwd", key.upper() + "A", ""):
        with pytest.raises(ValueError, match="is not a key"):
            store.files.path(wrong)


def test_an_item_that_is_removed_during_a_search(tmp_path):
    x, store = walks(5), DictStore(str(tmp_path))
    index = lw.Index(lw.DTW(), store=store, candidates=lw.evaluation.Candidates(lw.MeanFrames(), keep=9)).add(x)
    read = store.files.read

    def late(keys):
        index.remove(["2"])
        return read(keys)

    store.files.read = late
    assert (
        index.search(x[:2], k=9).ids.tolist()
        == lw.Index(lw.DTW(), x, ids=list("01234")).remove(["2"]).search(x[:2], k=9).ids.tolist()
    )


def test_what_does_not_go_with_a_store():
    for options, said in (
        ({"length": 3}, "length cannot be combined with a store"),
        ({"normalize": "window"}, "normalize"),
        ({}, "DTW does not compare vectors"),
        ({"candidates": lw.evaluation.Candidates(lw.DTW(), keep=3)}, "DTW does not compare vectors"),
        ({"candidates": lw.evaluation.Candidates(lw.MeanFrames(), keep=3)}, "without files holds vectors only"),
    ):
        with pytest.raises(ValueError, match=said):
            lw.Index(lw.DTW(), store=DictStore(), **options)
    with pytest.raises(ValueError, match="stretches"):
        lw.Index(
            lw.DTW(subsequence=True),
            store=DictStore("memory://x"),
            candidates=lw.evaluation.Candidates(lw.MeanFrames(), keep=3),
        )
    x = torch.randn(5, 3)
    index = lw.Index(lw.Euclidean(), store=DictStore()).add(x)
    for call, said in (
        (lambda: index.search(x, within=1.0), "give k"),
        (lambda: index.search(x, skip=range(5)), "skip names positions"),
        (lambda: index.search(x[:, :2]), "the store has 3"),
        (lambda: index.add(x[:, :2], ids=list("vwxyz")), "vectors of 3 numbers"),
        (lambda: index.add(x, labels=list("abcde")), "no labels"),
        (lambda: index.add(x, fields={"id": x[:, 0]}), "a field is named 'id'"),
        (lambda: index.add(x, fields={"year": [1]}), "1 values for 5 items"),
        (lambda: index.ids, "not in memory"),
        (lambda: index.items, "not in memory"),
        (lambda: index.save("x"), "stored when add returns"),
        (lambda: lw.Index(lw.Euclidean(), x).add(x, fields={}), "fields need"),
        (lambda: lw.Index(lw.Euclidean(), x).search(x, where={}), "where needs"),
        (lambda: lw.Index(lw.Euclidean(), x).upsert(x), "needs an index with a store"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    assert len(index) == 5
    assert repr(index).startswith("Index(Euclidean(), 5 items in <")


@pytest.mark.parametrize(
    "where",
    [
        {"label": None},
        {"year": slice(None, None)},
        {"year": slice(1, 5, 2)},
        {"x": []},
        {"x": float("nan")},
        {"x": slice("a", "b")},
        "x == 1",
        {"x": {"y": 1}},
    ],
)
def test_invalid_conditions_are_refused(where):
    with pytest.raises(TypeError):
        check_where("search", where)


@pytest.mark.parametrize("name", ["x y", "x == 1 or y", "", "vector", "key", 3])
def test_invalid_field_names_are_refused(name):
    with pytest.raises(ValueError):
        check_where("search", {name: 1})
    with pytest.raises(ValueError):
        check_fields("add", {name: [1]}, 1)
