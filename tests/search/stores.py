"""The contract of every store, and a store in a dict as the reference."""

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.search.files import Files
from likewise.search.store import Rows

NASTY = [
    "plain",
    'double "quotes"',
    "single 'quotes'",
    "back\\slash",
    "new\nline",
    "tab\t",
    "%_*",
    "ünïcödé 🎵",
    " ",
    'a] or id != ["',
]


class DictStore:
    """Rows in memory, searched exhaustively."""

    def __init__(self, files=None):
        self.files = Files(files) if isinstance(files, str) else files
        self.rows, self._form = {}, None

    def form(self):
        return self._form

    def create(self, form):
        self._form = form

    def __len__(self):
        return len(self.rows)

    def put(self, rows):
        for i, name in enumerate(rows.ids):
            label = None if rows.labels is None else rows.labels[i]
            fields = {field: values[i] for field, values in rows.fields.items()}
            self.rows[name] = (rows.keys[i], rows.steps[i], label, rows.vectors[i].clone(), fields)

    def delete(self, ids):
        for name in ids:
            self.rows.pop(name, None)

    def get(self, ids):
        return self._some([name for name in ids if name in self.rows], False)

    def nearest(self, vectors, count, where, *, with_vectors):
        names = [name for name in self.rows if self._fits(name, where)]
        found = []
        for vector in vectors:
            held = torch.stack([self.rows[name][3] for name in names]) if names else vectors[:0]
            if self._form.cosine:
                apart = 1 - torch.nn.functional.cosine_similarity(vector[None], held)
            else:
                apart = (held - vector).square().sum(1)
            found.append(self._some([names[i] for i in apart.argsort()[:count].tolist()], with_vectors))
        return found

    def scan(self, *, with_vectors):
        yield self._some(list(self.rows), with_vectors)

    def _fits(self, name, where):
        _, steps, label, _, fields = self.rows[name]
        known = {"id": name, "steps": steps, "label": label, **fields}
        for field, condition in where.items():
            value = known.get(field)
            if isinstance(condition, slice):
                low = -np.inf if condition.start is None else condition.start
                high = np.inf if condition.stop is None else condition.stop
                if value is None or not low <= value < high:
                    return False
            elif value not in (condition if isinstance(condition, list) else [condition]):
                return False
        return True

    def _some(self, names, with_vectors):
        rows = [self.rows[name] for name in names]
        labels = None if self._form is None or self._form.labels is None else np.array([row[2] for row in rows])
        vectors = torch.stack([row[3] for row in rows]) if with_vectors and rows else None
        return Rows(tuple(names), tuple(row[0] for row in rows), tuple(row[1] for row in rows), labels, vectors)


def walks(count, seed=0, channels=2):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 12, (count,), generator=generator).tolist()
    return [torch.randn(n, channels, generator=generator).cumsum(0) for n in lengths]


def check_sequences(make, folder):
    """make(collection, files): a new store. DTW over means of frames, with everything but windows."""
    x, queries = walks(40), walks(5, seed=1)
    names, labels = [f"{NASTY[i % len(NASTY)]}{i}" for i in range(40)], np.array(["up", 'the "down"'] * 20)
    years = [2000 + i for i in range(40)]
    everything = lw.evaluation.Candidates(lw.MeanFrames(), keep=100)
    index = lw.Index(lw.DTW(), store=make("walks", f"{folder}/walks"), candidates=everything)
    assert len(index) == 0
    assert index.search(queries, k=3).counts.tolist() == [0] * 5
    index.add(x, ids=names, labels=labels, fields={"year": years, "odd": [bool(i % 2) for i in range(40)]})
    truth = lw.Index(lw.DTW(), x, ids=names, labels=labels)
    same_hits(index.search(queries, k=7), truth.search(queries, k=7))
    same_hits(index.search(queries, k=40, within=20.0), truth.search(queries, k=40, within=20.0))
    assert index.recall(queries, k=5) == 1.0
    assert len(index) == 40

    # Conditions on labels and fields.
    def only(where, keep):
        expected = lw.Index(lw.DTW(), [x[i] for i in keep], ids=[names[i] for i in keep], labels=labels[keep])
        same_hits(index.search(queries, k=50, where=where), expected.search(queries, k=50))

    only({"label": 'the "down"'}, list(range(1, 40, 2)))
    only({"year": slice(2010, 2020), "label": ["up", "nothing"]}, list(range(10, 20, 2)))
    only({"odd": True, "year": slice(None, 2006)}, [1, 3, 5])
    only({"id": names[7]}, [7])
    only({"steps": slice(8, None)}, [i for i in range(40) if len(x[i]) >= 8])
    assert index.search(queries, k=3, where={"year": 1}).counts.tolist() == [0] * 5

    # The same item again is no second one; another item of the same name is refused, and replaced by upsert.
    index.add(x, ids=names, labels=labels, fields={"year": years, "odd": [False] * 40})
    assert len(index) == 40
    for other, kind in ((walks(1, seed=9), labels[:1]), (x[:1], np.array(["sideways"]))):
        with pytest.raises(ValueError, match="is taken"):
            index.add(other, ids=names[:1], labels=kind)
    index.upsert(walks(2, seed=9), ids=[names[0], "new"], labels=["up", "new"], fields={"year": [1, 1]})
    truth = lw.Index(
        lw.DTW(), [*walks(2, seed=9), *x[1:]], ids=[names[0], "new", *names[1:]], labels=["up", "new", *labels[1:]]
    )
    same_hits(index.search(queries, k=7), truth.search(queries, k=7))
    assert index.search(walks(2, seed=9), k=1, where={"year": 1}).ids.tolist() == [[names[0]], ["new"]]
    index.remove([names[0], *names[10:20], "nobody"])
    truth.remove([names[0], *names[10:20]])
    same_hits(index.search(queries, k=7), truth.search(queries, k=7))
    assert len(index) == 30

    # Why a hit matches: alignment, costs, and the nearest of another class.
    hits, expected = index.search(queries, k=4), truth.search(queries, k=4)
    assert str(hits.explain(1, 2)) == str(expected.explain(1, 2))
    torch.testing.assert_close(hits.match(1, 2), expected.match(1, 2))

    # Another metric's vectors are not compared with these.
    other = lw.Index(
        lw.DTW(), store=index.store, candidates=lw.evaluation.Candidates(lw.MeanFrames(squared=True), keep=9)
    )
    with pytest.raises(ValueError, match="another metric"):
        other.search(queries)
    return index


def check_vectors(make, folder):
    """Vectors that are the items, and a Metric whose vectors are compared without reading its items."""
    generator = torch.Generator().manual_seed(0)
    x, queries = (torch.randn(n, 8, generator=generator) for n in (300, 6))
    for distance, collection in ((lw.Euclidean(), "euclidean"), (lw.Cosine(), "cosine")):
        index = lw.Index(distance, store=make(collection, None)).add(x, labels=torch.arange(300) / 7)
        same_hits(index.search(queries, k=5), lw.Index(distance, x, labels=torch.arange(300) / 7).search(queries, k=5))
        assert index.recall(queries, k=5) == 1.0
        torch.testing.assert_close(index.search(queries, k=1).match(0), x[int(index.search(queries, k=1).ids[0, 0])])
        assert index.search(queries, k=3, where={"label": slice(0, 1)}).labels.max() < 1
    torch.manual_seed(0)
    metric = lw.Metric(lw.Embedder(lw.GRUEncoder(2, 4), 4), lw.Euclidean()).eval()
    items = walks(30)
    index = lw.Index(metric, store=make("metric", f"{folder}/metric")).add(items)
    truth = lw.Index(metric, items)
    same_hits(index.search(items[:4], k=3), truth.search(items[:4], k=3))
    assert torch.equal(index.search(items[:4], k=3).series(2, 1), truth.search(items[:4], k=3).series(2, 1))


def same_hits(found, expected):
    assert found.ids.tolist() == expected.ids.tolist()
    assert (found.labels is None) == (expected.labels is None)
    if expected.labels is not None:
        assert found.labels.tolist() == expected.labels.tolist()
    torch.testing.assert_close(found.distances, expected.distances)
    assert torch.equal(found.starts, expected.starts)
    assert torch.equal(found.ends, expected.ends)
    assert not found.stats.exact
