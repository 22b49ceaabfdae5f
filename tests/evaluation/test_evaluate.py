import json
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import likewise as lw
from likewise import DTW, Batch, Cosine, Distance, Euclidean, SoftDTW
from likewise.data.dataset import Dataset
from likewise.evaluation import classification, clustering, retrieval
from likewise.evaluation.evaluate import evaluate, evaluate_matrix
from likewise.models.frame_mlp import FrameMLP
from likewise.models.metric import Metric

generator = torch.Generator().manual_seed(0)
SEQUENCES = [torch.randn(n, 2, generator=generator) for n in (3, 5, 1, 4, 4, 2, 6, 3, 5, 4, 2, 7)]
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 9])  # 9 is alone
QUERIES, REFERENCES = (SEQUENCES[:4], LABELS[:4]), (SEQUENCES[4:11], LABELS[4:11])


def same(a, b):
    for name, value in a.as_dict().items():
        assert value == pytest.approx(b.as_dict()[name]), name
    assert a.classes == b.classes
    assert torch.equal(a.predicted, b.predicted)


@pytest.mark.parametrize("own", [False, True])
def test_every_score_is_that_of_its_function(own):
    D = torch.rand(12, 12, generator=generator) if own else torch.rand(5, 12, generator=generator)
    labels = (LABELS,) if own else (LABELS[:5], LABELS)
    scores = evaluate_matrix(D, *labels, ks=(3, 1, 7, 3))
    assert scores.accuracy == retrieval.nearest_neighbor_accuracy(D, *labels)
    assert scores.map == pytest.approx(retrieval.mean_average_precision(D, *labels))
    assert scores.map_at_r == pytest.approx(retrieval.mean_average_precision_at_r(D, *labels))
    assert scores.f1 == pytest.approx(classification.macro_f1(D, *labels))
    assert scores.vote == retrieval.nearest_neighbor_vote(D, *labels)
    assert scores.knn == {k: retrieval.nearest_neighbor_accuracy(D, *labels, k=k) for k in (1, 3, 7)}
    assert scores.recall == {k: retrieval.recall_at_k(D, *labels, k=k) for k in (1, 3, 7)}
    assert list(scores.recall) == [1, 3, 7]
    assert torch.equal(scores.confusion, classification.confusion_matrix(D, *labels))
    assert (scores.queries, scores.references, scores.unmatched) == (len(D), 12, int(own))
    assert scores.nmi is None


@pytest.mark.parametrize("distance", [Euclidean(), Cosine(), DTW(), SoftDTW(gamma=0.5)], ids=lambda d: d.name)
@pytest.mark.parametrize("chunk", [None, 1, 3, 100])
def test_chunks_change_nothing(distance, chunk):
    D = distance.matrix(QUERIES[0], REFERENCES[0])
    expected = evaluate_matrix(D, QUERIES[1], REFERENCES[1], ks=(1, 5))
    same(evaluate(distance, QUERIES, REFERENCES, ks=(1, 5), chunk=chunk), expected)
    own = evaluate_matrix(distance.matrix(SEQUENCES), LABELS, ks=(1, 5))
    same(evaluate(distance, (SEQUENCES, LABELS), ks=(1, 5), chunk=chunk), own)


def test_all_kinds_of_items():
    x = torch.randn(9, 4, generator=generator)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1, 2])
    expected = evaluate(Euclidean(), (x, labels))
    same(evaluate(Euclidean(), (x.numpy(), labels.numpy())), expected)
    same(evaluate(Euclidean(), (x[:, None], labels.tolist())), expected)
    same(evaluate(Euclidean(), (Batch(x[:, None]), labels.int())), expected)
    half = x.bfloat16()
    same(evaluate(Euclidean(), (half, labels)), evaluate_matrix(Euclidean().matrix(half), labels))


def test_names_are_as_good_as_numbers():
    x = torch.randn(9, 4, 1, generator=generator)
    labels = [10, 9, 8, 10, 9, 8, 10, 9, 8]
    expected = evaluate(Euclidean(), (x, labels))
    assert expected.classes == ("8", "9", "10")
    same(evaluate(Euclidean(), (x, [str(label) for label in labels])), expected)
    same(evaluate(Euclidean(), Dataset(x, labels)), expected)
    same(evaluate_matrix(Euclidean().matrix(x), [float(label) for label in labels]), expected)
    split = evaluate(Euclidean(), (x[:4], labels[:4]), (x[4:], labels[4:]))
    same(evaluate(Euclidean(), Dataset(x[:4], labels[:4]), (x[4:], labels[4:])), split)  # text against numbers
    words = evaluate(Euclidean(), (x, ["a", "b", "c"] * 3))
    assert words.classes == ("a", "b", "c")
    assert torch.equal(words.confusion, evaluate(Euclidean(), (x, [0, 1, 2] * 3)).confusion)


def test_a_class_is_its_name_across_splits():
    # Classes of the test set must not be renumbered: its class 0 is not that of the training set.
    x = torch.tensor([0.0, 0.1, 5.0, 5.1])[:, None, None]
    train, test = Dataset(x, ["iris", "iris", "rose", "rose"]), Dataset(x + 0.01, ["tulip", "tulip", "lily", "lily"])
    assert train.codes.tolist() == [0, 0, 1, 1]
    scores = evaluate(Euclidean(), test, train)
    assert (scores.accuracy, scores.map, scores.unmatched) == (0, 0, 4)
    assert scores.classes == ("iris", "lily", "rose", "tulip")
    assert evaluate(Euclidean(), test).accuracy == 1


@pytest.mark.parametrize("distance", [Euclidean(), Metric(None, Euclidean())], ids=["distance", "metric"])
def test_no_item_finds_itself(distance):
    data = Dataset(torch.randn(20, 3, 1, generator=generator), torch.arange(20) % 2)
    alone = evaluate(distance, data)
    assert alone.accuracy < 1
    for again in (data, (data.items, data.labels), (data.items.values, data.labels), Dataset(data.items, data.labels)):
        same(evaluate(distance, data, again), alone)
    with pytest.warns(UserWarning, match="20 of 20 queries are references too"):
        assert evaluate(distance, data, Dataset(data.items.values.clone(), data.labels)).accuracy == 1


class Counting(nn.Module):
    """An encoder that counts its items, and has dropout in training."""

    def __init__(self):
        super().__init__()
        self.layer, self.dropout, self.seen = nn.Linear(2, 3), nn.Dropout(0.5), 0

    def forward(self, batch):
        self.seen += len(batch)
        assert not torch.is_grad_enabled()
        return Batch(self.dropout(self.layer(batch.values)), batch.lengths)


def test_a_metric_encodes_each_item_once_in_eval_mode():
    encoder = Counting()
    metric = Metric(encoder, DTW()).train()
    encoder.layer.eval()
    scores = evaluate(metric, QUERIES, REFERENCES, chunk=1)
    assert encoder.seen == 11
    assert metric.training
    assert encoder.dropout.training
    assert not encoder.layer.training
    with torch.no_grad():
        D = metric.eval().matrix(QUERIES[0], REFERENCES[0])
    same(scores, evaluate_matrix(D, QUERIES[1], REFERENCES[1]))
    encoder.seen = 0
    evaluate(metric, (SEQUENCES, LABELS), chunk=5)
    assert encoder.seen == 12


def test_the_mode_comes_back_after_an_error():
    class Broken(Euclidean):
        def matrix(self, x, y=None, *, progress=False):
            assert not self.training
            raise RuntimeError("broken")

    distance = Broken().train()
    with pytest.raises(RuntimeError, match="broken"):
        evaluate(distance, QUERIES, REFERENCES)
    assert distance.training


def test_nmi_clusters_vectors():
    x = torch.cat([torch.randn(10, 3, generator=generator) + 20 * c for c in range(3)])
    labels = torch.arange(3).repeat_interleave(10)
    assert evaluate(Euclidean(), (x, labels), nmi=True).nmi == clustering.clustering_agreement(x, labels) == 1
    assert evaluate(Euclidean(), (x.numpy(), labels), nmi=True).nmi == 1

    class Mean(nn.Module):
        def forward(self, batch):
            return batch.values.mean(1)

    assert evaluate(Metric(Mean(), Euclidean()), (x[:, None], labels), nmi=True).nmi == 1
    with pytest.raises(ValueError, match=r"nmi clusters vectors, .* pass nmi=False, or vectors \(N, C\)"):
        evaluate(Metric(FrameMLP(2, hidden=4), DTW()), QUERIES, nmi=True)


def test_few_references_give_no_vote():
    D = torch.rand(3, 4)
    assert evaluate_matrix(D, [0, 1, 2], [0, 1, 2, 0]).vote is None  # type: ignore[arg-type]
    assert evaluate_matrix(torch.rand(5, 5), [0, 1, 2, 0, 0]).vote is None  # type: ignore[arg-type]
    assert evaluate_matrix(torch.rand(6, 6), [0, 1, 2, 0, 0, 0]).vote is not None  # type: ignore[arg-type]


def test_a_class_with_one_member_gives_numbers():
    scores = evaluate_matrix(torch.rand(3, 3), torch.tensor([0, 1, 2]))
    assert (scores.accuracy, scores.map, scores.map_at_r, scores.f1, scores.unmatched) == (0, 0, 0, 0, 3)


def test_the_result_prints_and_goes_to_json():
    scores = evaluate_matrix(torch.rand(12, 12), LABELS, ks=(1, 5))
    text = json.loads(json.dumps(scores.as_dict(), allow_nan=False))
    assert list(text) == [
        "accuracy", "f1", "map", "map_at_r", "knn", "recall", "vote", "nmi", "queries", "references", "unmatched",
    ]  # fmt: skip
    assert list(text["recall"]) == ["1", "5"]
    table = str(scores).splitlines()
    assert table[0] == "12 queries, 12 references, 4 classes; 1 without a reference of its class"
    assert [line.rsplit(maxsplit=1)[0].strip() for line in table[1:]] == [
        "accuracy", "f1", "map", "map@r", "knn@5", "recall@5", "vote",
    ]  # fmt: skip
    assert repr(scores).startswith(f"Scores(accuracy={scores.accuracy:.4f}, f1=")
    with pytest.raises(AttributeError):
        scores.map = 1.0  # type: ignore[misc]


def test_progress_goes_to_stderr(capsys):
    evaluate(Euclidean(), QUERIES, REFERENCES, chunk=2, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "evaluate: 4 x 7" in captured.err


@pytest.mark.filterwarnings("ignore:.*queries are references too")  # as it is meant here
def test_never_all_pairs_at_once():
    # benchmarks/evaluate.py measures memory; this test checks the sizes of requests, and which results stay alive.
    asked, held = [], []

    class Watched(Euclidean):
        def matrix(self, x, y=None, *, progress=False):
            D = super().matrix(x, y, progress=progress)
            asked.append(D.numel())
            held[:] = [reference for reference in held if reference() is not None] + [weakref.ref(D)]
            assert len(held) <= 2, "the strip before, and this one"
            return D

    x, labels = torch.randn(3000, 2, generator=generator), torch.arange(3000) % 10
    for given in (((x, labels),), ((x, labels), (x.flip(0), labels.flip(0)))):
        asked.clear()
        evaluate(Watched(), *given)
        assert sum(asked) == 9_000_000
        assert max(asked) <= 1 << 20


class Poor(Distance):
    """Distances of which one is NaN."""

    def matrix(self, x, y=None, *, progress=False):
        D = torch.zeros(len(x), len(x if y is None else y))
        D[-1, 0] = torch.nan
        return D


ITEMS = torch.zeros(3, 2, 1)


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "message"),
    [
        ((torch.zeros(3, 3), (ITEMS, [0, 1, 2])), {}, TypeError, "got Tensor; for a ready matrix, use evaluate_matrix"),
        ((None, (ITEMS, [0, 1, 2])), {}, TypeError, "expected metric to be a Distance or a Metric, got NoneType"),
        ((DTW(), ITEMS), {}, TypeError, r"expected queries to be a Dataset or a pair \(items, labels\), got Tensor"),
        ((DTW(), (5, [0])), {}, TypeError, "expected the items of queries to be a Batch, a tensor or a list, got int"),
        ((DTW(), (ITEMS, [0, 1])), {}, ValueError, r"expected the labels of queries of shape \(3,\), got \(2,\)"),
        ((DTW(), (ITEMS, ["a", "b", None])), {}, ValueError, r"the labels of queries\[2\] is missing"),
        ((DTW(), Dataset(ITEMS)), {}, ValueError, "queries has no labels"),
        (
            (DTW(), (ITEMS, [0, 1, 2]), (ITEMS, [0, 1, 1])),
            {},
            ValueError,
            "item 2 is in both queries and references, but",
        ),
        ((DTW(), (ITEMS, [0, 1, 2])), {"workers": -1}, ValueError, "workers must be a whole number of 0 or more"),
        (
            (DTW(), (ITEMS, [0, 1, 2]), (ITEMS, [0])),
            {},
            ValueError,
            r"expected the labels of references of shape \(3,\), got \(1,\)",
        ),
        ((DTW(), ([], [])), {}, ValueError, "queries are empty"),
        ((DTW(), (ITEMS, [0, 1, 2]), ([], [])), {}, ValueError, "references are empty"),
        ((DTW(), (ITEMS[:1], [0])), {}, ValueError, "without references, there must be at least two queries"),
        ((DTW(), (ITEMS, [0, 1, 2])), {"ks": (1, 3)}, ValueError, "k is 3, but each row has 2 references"),
        ((DTW(), (ITEMS, [0, 1, 2])), {"ks": 5}, TypeError, r"expected ks to be several numbers such as \(1, 5\)"),
        ((DTW(), (ITEMS, [0, 1, 2])), {"chunk": 0}, ValueError, "chunk must be a whole number of 1 or more, got 0"),
        ((Poor(), (ITEMS, [0, 1, 2])), {"chunk": 3}, ValueError, "D holds NaN in row 2"),
        ((Poor(), (ITEMS, [0, 1, 2])), {"chunk": 2}, ValueError, "D holds NaN in row 1"),
    ],
)
def test_bad_input_is_refused(arguments, settings, error, message):
    with pytest.raises(error, match=f"evaluate: .*{message}"):
        evaluate(*arguments, **settings)


def test_a_ready_matrix_of_arrays_is_refused():
    with pytest.raises(TypeError, match=r"evaluate_matrix: expected D to be a torch.Tensor, got ndarray"):
        evaluate_matrix(np.zeros((2, 2)), [0, 1])  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*queries are references too")  # as it is meant here
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", ["batch", "tensor", "list", "vectors", "no band"])
def test_the_nearest_alone_score_the_same(own, kind, monkeypatch):
    drawn = torch.Generator().manual_seed(3)
    x = torch.randn(90, 20, 2, generator=drawn).cumsum(1)
    x[40:60] = x[20:40]  # ties
    labels = torch.arange(90) % 4
    distance = DTW(band=0.2)
    lengths = torch.randint(5, 21, (90,), generator=drawn)
    items = {
        "batch": Batch(x, lengths),
        "tensor": x,
        "list": [one[:n] for one, n in zip(x, lengths, strict=True)],
        "vectors": x[:, 0],
        "no band": x,
    }[kind]
    if kind == "vectors":
        distance = Euclidean()
        monkeypatch.setattr("likewise.search.choice.MANY_VECTORS", 50)
    elif kind == "no band":
        distance = DTW()
    some = slice(0, 11)
    given = ((items, labels),) if own else ((items[some], labels[some]), (items, labels))
    seen = watch_searches(monkeypatch)
    expected, found = (evaluate(distance, *given, ks=(1, 5), nearest_only=only, chunk=30) for only in (False, True))
    assert len(seen) == (0 if kind == "no band" else 3 if own else 1)
    for name, value in found.as_dict().items():
        assert value is None if name in ("map", "map_at_r") else value == expected.as_dict()[name], name
    assert torch.equal(found.predicted, expected.predicted)
    assert found.precision.isnan().all()
    assert "map" not in str(found)
    with pytest.raises(ValueError, match="there is no map"):
        found.interval()
    assert found.interval("accuracy") == expected.interval("accuracy")


def watch_searches(monkeypatch):
    from likewise.search.vectors import VectorSearch
    from likewise.search.whole import WholeSearch

    seen = []
    for kind in (WholeSearch, VectorSearch):
        original = kind.search

        def search(self, *args, original=original, **kwargs):
            seen.append(type(self))
            return original(self, *args, **kwargs)

        monkeypatch.setattr(kind, "search", search)
    return seen


def test_queries_among_the_references_are_pointed_out():
    """Each would find itself at distance 0: 1.0, whatever the distance."""
    x, y = torch.randn(30, 4, 1), torch.arange(30) % 3
    data = lw.Dataset(x, y)
    with pytest.warns(UserWarning, match=r"20 of 20 queries are references too: queries\[0\] is references\[5\]"):
        assert evaluate(lw.DTW(), data[5:25], data).accuracy == 1
    with pytest.warns(UserWarning, match=r"20 of 20 queries are references too"):
        evaluate(lw.DTW(), (x[5:25].clone(), y[5:25]), (x, y))
    with pytest.warns(UserWarning, match=r"10 of 20 queries are references too: queries\[10\] is references\[0\]"):
        evaluate(lw.DTW(), data[:20], data[10:])
    with pytest.warns(UserWarning, match=r"scale.evaluate: 20 of 20 queries are references too"):
        lw.scale.evaluate(lw.DTW(), data[5:25], data)
    evaluate(lw.DTW(), data)
    evaluate(lw.DTW(), data, data)
    evaluate(lw.DTW(), data[:10], data[10:])
    repeated = torch.cat([x[:1], torch.randn(9, 4, 1)]), y[:10]
    evaluate(lw.DTW(), repeated, data[:5])  # real data repeat: no warning
