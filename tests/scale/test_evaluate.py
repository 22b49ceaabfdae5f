import importlib

import pytest
import torch

import likewise as lw
from likewise import DTW, Euclidean, FrameMLP, Metric, scale
from tests.scale.conftest import walks

LABELS = [("walk", "run", "sit", "lie")[i % 4] for i in range(60)]


def same(a, b):
    assert str(a) == str(b)
    assert (a.map, a.map_at_r, a.knn, a.recall, a.vote) == (b.map, b.map_at_r, b.knn, b.recall, b.vote)
    assert torch.equal(a.predicted, b.predicted)
    assert torch.equal(a.precision, b.precision)


@pytest.mark.parametrize("engine", [None, "ray"])
def test_equals_evaluate(cluster, engine, monkeypatch):
    monkeypatch.setattr("likewise.evaluation.labels.NUMBERS_A_STRIP", 600)  # ten rows
    monkeypatch.setattr(importlib.import_module("likewise.scale.evaluate"), "STRIPS_A_JOB", 2)
    torch.manual_seed(0)
    data, rest = (walks(60), LABELS), (walks(30, seed=1), LABELS[:30])
    for metric in (DTW(band=3), Metric(FrameMLP(1, hidden=4, out=2), DTW())):
        same(scale.evaluate(metric, data, ks=(1, 3), engine=engine), lw.evaluate(metric, data, ks=(1, 3)))
        same(scale.evaluate(metric, rest, data, engine=engine), lw.evaluate(metric, rest, data))


def test_vectors():
    data = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), LABELS
    same(scale.evaluate(Euclidean(), data), lw.evaluate(Euclidean(), data))


def test_bad_arguments_are_refused():
    data = walks(5), list("aabbc")
    for error, problem, given in [
        (TypeError, "expected queries to be a Dataset or a pair", {"queries": walks(5)}),
        (ValueError, "the labels of queries", {"queries": (walks(5), list("ab"))}),
        (ValueError, "k is 9", {"ks": (9,)}),
        (ValueError, "at least two queries", {"queries": (walks(1), ["a"])}),
        (TypeError, "expected distance", {"metric": 3}),
    ]:
        with pytest.raises(error, match=problem):
            scale.evaluate(**{"metric": DTW(), "queries": data, **given})
