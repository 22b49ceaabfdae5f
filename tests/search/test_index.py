import numpy as np
import pytest
import torch

import likewise as lw
from tests.search.test_exhaustive import walks


@pytest.fixture
def data():
    return lw.Dataset(lw.Batch(walks(12), [12, 5, 12, 1, 7, 12, 12, 3, 12, 9, 9, 2]), ["a", "b", "c"] * 4)


def test_search_whole_items(data):
    index, queries = lw.Index(lw.DTW(band=0.2), data), walks(4, seed=1)
    hits = index.search(queries, k=3)
    D = lw.DTW(band=0.2).matrix(queries, data.items)
    assert torch.equal(hits.items, D.sort(dim=1, stable=True).indices[:, :3])
    torch.testing.assert_close(hits.distances, D.sort(1).values[:, :3])
    assert hits.ids.tolist() == [[str(i) for i in row] for row in hits.items.tolist()]
    assert hits.labels.tolist() == [[data.labels[i] for i in row] for row in hits.items.tolist()]
    assert len(index) == 12
    assert index.ids == data.ids
    assert index.labels.tolist() == data.labels.tolist()
    assert index.items == data.items
    assert index.search(queries).counts.tolist() == [10] * 4
    assert index.search(queries, k=50).counts.tolist() == [12] * 4


def test_within_alone_finds_all(data):
    D = lw.DTW().matrix(walks(4, seed=1), data.items)
    hits = lw.Index(lw.DTW(), data).search(walks(4, seed=1), within=D.median().item())
    assert hits.counts.tolist() == (D.median() >= D).sum(1).tolist()


@pytest.mark.parametrize(
    "items",
    [
        lambda x: x,
        lambda x: x.numpy(),
        lambda x: list(x),
        lambda x: (x, ["k"] * 6),
        lambda x: lw.Batch(x),
        lambda x: lw.Dataset(x, range(6)),
    ],
)
def test_takes_what_the_other_verbs_take(items):
    x = walks(6)
    assert lw.Index(lw.DTW(), items(x)).search(x[2:3], k=1).items.tolist() == [[2]]


def test_vectors():
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    for distance in (lw.Euclidean(), lw.Cosine(), lw.Euclidean(squared=True)):
        hits = lw.Index(distance, x).search(x[:4] + 0.01, k=3)
        assert torch.equal(hits.items, distance.matrix(x[:4] + 0.01, x).argsort(1)[:, :3])
        assert hits.ends[:, 0].tolist() == [1] * 4
    with pytest.raises(ValueError, match=r"add a channel"):
        lw.Index(lw.DTW(), x)


def test_a_metric_encodes_each_item_once(data):
    torch.manual_seed(0)
    for distance in (lw.DTW(), lw.TAP(width=4)):
        metric = lw.Metric(lw.FrameMLP(2, hidden=8, out=3), distance).eval()
        index = lw.Index(metric, data)
        with torch.no_grad():
            D = metric.matrix(walks(3, seed=1), data.items)
        hits = index.search(walks(3, seed=1), k=4)
        torch.testing.assert_close(hits.distances, D.sort(1).values[:, :4])
    calls = []
    metric.encoder.register_forward_hook(lambda *args: calls.append(1))
    index.search(walks(1), k=1)
    assert len(calls) == 1


def test_a_metric_of_images():
    torch.manual_seed(0)
    images = torch.rand(6, 3, 16, 16)
    metric = lw.Metric(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4)), lw.Euclidean())
    index = lw.Index(metric, (images, list("aabbcc")))
    assert index.search(images[3:5], k=1).items.tolist() == [[3], [4]]
    assert "6 items of 3 x 16 x 16" in repr(index)


def test_windows_and_their_options():
    series = walks(2, 60)
    index = lw.Index(lw.DTW(band=2), series, length=10, normalize="window")
    hits = index.search(5 * series[:1, 20:30] - 3, k=2)
    assert hits.items[0, 0] == 0
    assert hits.starts[0, 0] == 20
    assert hits.ends[0, 0] == 30
    assert hits.distances[0, 0] < 1e-6
    torch.testing.assert_close(hits.match(0), hits.query(0), atol=1e-5, rtol=0)
    either = lw.Index(lw.DTW(band=2), series, subsequence=True, stretch=(0.8, 1.25)).search(series[1:, 7:27], k=1)
    assert (either.items.item(), either.starts.item(), either.ends.item()) == (1, 7, 27)
    assert "windows of 10 steps" in repr(index)


def test_normalize_of_whole_items():
    x = walks(6)
    hits = lw.Index(lw.Euclidean(), x, normalize="window").search(3 * x[4:5] + 7, k=1)
    assert hits.items.tolist() == [[4]]
    assert hits.distances[0, 0] < 1e-4


def test_add_and_remove(data):
    index = lw.Index(lw.DTW(), data[:5])
    assert index.add(data[5:8], ids=["x", "y", "z"]) is index
    assert index.ids == ("0", "1", "2", "3", "4", "x", "y", "z")
    index.remove(["1", "y"])
    assert index.ids == ("0", "2", "3", "4", "x", "z")
    index.add(data[8:])
    assert index.ids == ("0", "2", "3", "4", "x", "z", "8", "9", "10", "11")
    order = [0, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert index.items == data.items[order]
    assert index.labels.tolist() == data.labels[order].tolist()
    hits = index.search(data.items, k=1)
    assert hits.distances[order].abs().max() == 0
    assert hits.distances[1] > 0
    empty = index.remove(list(index.ids))
    assert len(empty) == 0
    assert empty.search(data.items).counts.tolist() == [0] * 12
    assert len(empty.add(data[:2])) == 2


def test_hits_outlive_a_change(data):
    index = lw.Index(lw.DTW(), data)
    hits = index.search(data.items[6:7], k=1)
    index.remove(["0", "1"])
    assert torch.equal(hits.match(0), data.items[6])


def test_what_was_given_may_change_afterwards():
    x = walks(4)
    index = lw.Index(lw.DTW(), x)
    copy = x.clone()
    x.zero_()
    assert index.search(copy, k=1).items[:, 0].tolist() == [0, 1, 2, 3]
    assert lw.Index(lw.DTW(), copy.double()).search(copy, k=1).distances.dtype == torch.float64


def test_skip_leaves_one_out():
    x = walks(8)
    hits = lw.Index(lw.DTW(), x).search(x, k=1, skip=range(8))
    D = lw.DTW().matrix(x).fill_diagonal_(torch.inf)
    assert hits.items[:, 0].tolist() == D.argmin(1).tolist()


def test_recall_of_exact_search(data):
    assert lw.Index(lw.DTW(), data).recall(walks(3, seed=2), k=4) == 1.0


BAD = [
    (lambda: lw.Index("dtw", walks(2)), "expected distance to be a Distance or a Metric, got str"),
    (lambda: lw.Index(lw.DTW(), walks(2), length=0), "length must be a whole number"),
    (lambda: lw.Index(lw.DTW(), walks(2), normalize="z"), "normalize must be None or"),
    (lambda: lw.Index(lw.DTW(), walks(2), stretch=(0.8, 1.2)), "stretch is for windows"),
    (lambda: lw.Index(lw.DTW(), walks(2), length=4, stretch=(1.2, 0.8)), "stretch must be"),
    (lambda: lw.Index(lw.DTW(), walks(2), length=50), "length is 50, but the longest item has 12 steps"),
    (lambda: lw.Index(lw.DTW(), walks(2), candidates=3), "expected candidates to be Candidates"),
    (lambda: lw.Index(lw.DTW(), walks(2), ids=["a", "a"]), "two items have the id 'a'"),
    (lambda: lw.Index(lw.DTW(), walks(2), labels=["a"]), "expected labels of shape"),
    (lambda: lw.Index(lw.DTW(), labels=["a"]), "labels and ids need items"),
    (lambda: lw.Index(lw.DTW(), walks(2) * torch.nan), "items\\[0\\] holds nan"),
    (lambda: lw.Index(lw.Euclidean(), torch.full((2, 3), torch.inf)), "items\\[0\\] holds inf"),
    (lambda: lw.Index(lw.DTW(), walks(2)).search(walks(1, channels=3)), "queries have 3 channels, the items have 2"),
    (lambda: lw.Index(lw.DTW(), walks(2)).search(walks(1) * torch.nan), "queries\\[0\\] holds nan"),
    (lambda: lw.Index(lw.DTW(), walks(2)).search([[]]), "is empty"),
    (lambda: lw.Index(lw.DTW(), walks(2)).search(walks(1), k=0), "k must be a whole number"),
    (lambda: lw.Index(lw.DTW(), walks(2)).search(walks(1), exclude=-1), "exclude must be 0 or more"),
    (lambda: lw.Index(lw.DTW(), walks(2)).search(walks(1), within=float("nan")), "within is NaN"),
    (lambda: lw.Index(lw.DTW(), walks(2)).search(walks(1), skip=[5]), "skip holds a position"),
    (lambda: lw.Index(lw.DTW(), walks(2), length=4).search(walks(1)), "query 0 has 12 steps, windows have 4"),
    (lambda: lw.Index(lw.DTW(), walks(2), subsequence=True).search(walks(1, 13)), "but the longest item has 12"),
    (lambda: lw.Index(lw.Euclidean(), walks(2)[:, 0]).search(torch.zeros(1, 3)), "queries have shape"),
    (lambda: lw.Index(lw.Euclidean(), walks(2)[:, 0], length=2), "windows and normalize are for sequences"),
    (lambda: lw.Index(lw.DTW(), walks(2)).add(walks(1, channels=3)), "expected sequences of 2 channels"),
    (lambda: lw.Index(lw.DTW(), walks(2)).add((walks(1), ["a"])), "have no labels, these have labels"),
    (lambda: lw.Index(lw.DTW(), walks(2)).add(walks(1), ids=["1"]), "the id '1' is taken"),
    (lambda: lw.Index(lw.DTW(), walks(2)).remove(["7"]), "there is no item '7'"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_mistakes_are_named(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        wrong()


def test_the_smallest_indexes():
    one = lw.Index(lw.DTW(), [[1.0]])
    assert one.search([[2.0, 2.0]], k=5).distances.tolist() == [[2.0]]
    assert one.search([[1.0]], k=5, skip=[0]).counts.tolist() == [0]
    assert len(one.search(torch.empty(0, 3, 1))) == 0
    none = lw.Index(lw.DTW())
    assert len(none) == 0
    assert none.search([[1.0]]).counts.tolist() == [0]
    assert none.search([[1.0]]).ids.shape == (1, 0)
    assert "empty" in repr(none)


def test_hits(data):
    hits = lw.Index(lw.DTW(), data).search(walks(3, seed=1), k=2)
    assert len(hits) == 3
    assert [part.items.tolist() for part in hits] == [[row] for row in hits.items.tolist()]
    assert hits[1:].ids.tolist() == hits.ids[1:].tolist()
    assert torch.equal(hits[-1].query(0), hits.query(2))
    assert repr(hits) == "Hits(3 queries, 2 hits each)"
    assert repr(hits[0]) == "Hits(1 query, 2 hits)"
    with pytest.raises(IndexError, match="query 3 of 3"):
        hits[3]
    with pytest.raises(IndexError, match="hit 2 of query 0, which has 2"):
        hits.match(0, 2)


@pytest.mark.parametrize("backend", ["pyarrow", "pandas", "polars"])
def test_frames(data, backend):
    hits = lw.Index(lw.DTW(), data).search(walks(3, seed=1), k=2)
    frame = hits.to_frame(backend=backend)
    columns = {name: np.asarray(frame[name]).tolist() for name in ("query", "rank", "id", "label", "item", "end")}
    assert columns["query"] == [0, 0, 1, 1, 2, 2]
    assert columns["rank"] == [0, 1] * 3
    assert columns["id"] == hits.ids.flatten().tolist()
    assert columns["label"] == hits.labels.flatten().tolist()
    assert columns["item"] == hits.items.flatten().tolist()
    assert columns["end"] == hits.ends.flatten().tolist()


def test_targets_are_labels_too():
    hits = lw.Index(lw.DTW(), (walks(3), [0.5, 1.5, 2.5])).search(walks(3), k=2)
    assert hits.labels[:, 0].tolist() == [0.5, 1.5, 2.5]
    assert hits.to_frame(backend="pandas")["label"].dtype == np.float64


def test_the_index_of_a_stream_takes_four_times_its_samples():
    stream = walks(1, 100_000, 1)
    index = lw.Index(lw.DTW(band=6), stream, length=128, normalize="window")
    index.search(stream[:, 50:178], k=1)
    held = [index._held.table.values, index.items.values, index._searcher.items.values]
    held += [value for value in vars(index._searcher._prepared).values() if isinstance(value, torch.Tensor)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}
    assert sum(storages.values()) < 4.01 * stream.numel() * stream.element_size()
