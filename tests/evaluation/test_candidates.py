"""Candidates, against a plain loop."""

import pytest
import torch

from likewise import DTW, Batch, CoupledGRU, Euclidean, Metric, evaluate
from likewise.evaluation import evaluate_matrix
from likewise.evaluation.candidates import Candidates
from likewise.sklearn import NearestNeighbors


def problem(count=17, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    x = torch.randn(count, 6, 2, generator=generator) + labels[:, None, None]
    return x, labels


def expected_matrix(dear, cheap, keep, own=False):
    """Large numbers after all candidates, in the order of the cheap distance, by plain loops."""
    found = torch.zeros_like(dear)  # a row's own column is not used, but must be a number
    for i in range(len(dear)):
        order = sorted((j for j in range(dear.shape[1]) if not (own and i == j)), key=lambda j: (float(cheap[i, j]), j))
        for place, j in enumerate(order):
            found[i, j] = dear[i, j] if place < keep else 1e4 + cheap[i, j]
    return found


def agree(found, expected):
    for name, value in expected.as_dict().items():
        assert found.as_dict()[name] == pytest.approx(value), name


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("keep", [1, 4, 0.5, 10**9])
@pytest.mark.parametrize("chunk", [None, 3])
def test_it_ranks_as_a_plain_loop_does(own, keep, chunk):
    (x, labels), (y, others) = problem(), problem(23, 1)
    references = None if own else (y, others)
    y, others = (x, None) if own else (y, others)
    candidates = Candidates(Euclidean(), keep)
    count = candidates.count(len(y) - own)
    wanted = expected_matrix(DTW().matrix(x, y), Euclidean().matrix(x, y), count, own)
    expected = evaluate_matrix(wanted, labels, others, ks=(1, 3))
    found = evaluate(DTW(), (x, labels), references, ks=(1, 3), candidates=candidates, chunk=chunk)
    agree(found, expected)
    if keep == 10**9:
        agree(found, evaluate(DTW(), (x, labels), references, ks=(1, 3)))


def test_pairs_by_their_places_are_the_same_pairs(monkeypatch):
    (x, labels), references = problem(), problem(23, 1)
    torch.manual_seed(0)
    dear, candidates = CoupledGRU(2, hidden=(3,)), Candidates(Euclidean(), 5)
    found = evaluate(dear, (x, labels), references, candidates=candidates, chunk=4)
    monkeypatch.setattr(CoupledGRU, "between", None)
    agree(found, evaluate(dear, (x, labels), references, candidates=candidates))


def test_equal_distances_count_together():
    x = torch.tensor([[0.0], [1.0], [1.0], [1.0], [2.0]])
    labels = torch.tensor([0, 1, 0, 1, 0])
    every = evaluate(Euclidean(), (x, labels), candidates=Candidates(Euclidean(), 4))
    assert every.as_dict() == evaluate(Euclidean(), (x, labels)).as_dict()


class Broken(Euclidean):
    def paired(self, x, y, x_lengths, y_lengths):
        return torch.full((len(x),), torch.nan)


class Counting(DTW):
    pairs = 0

    def paired(self, x, y, x_lengths, y_lengths):
        self.pairs += len(x)
        return super().paired(x, y, x_lengths, y_lengths)


@pytest.mark.parametrize("form", ["tensor", "batch", "list", "array"])
def test_only_candidates_are_compared(form):
    (x, labels), (y, others) = problem(), problem(23, 1)
    forms = {"tensor": lambda a: a, "batch": Batch, "list": list, "array": lambda a: a.numpy()}
    dear = Counting()
    evaluate(dear, (forms[form](x), labels), (forms[form](y), others), candidates=Candidates(Euclidean(), 4))
    assert dear.pairs == 17 * 4


def test_metrics_embed_once_and_get_their_mode_back():
    x, labels = problem()
    calls = []

    class Encoder(torch.nn.Module):
        def forward(self, batch):
            calls.append((len(batch), self.training))
            return Batch(batch.values * 2, batch.lengths)

    dear, cheap = Metric(Encoder(), DTW()), Metric(Encoder(), Euclidean())
    evaluate(dear, (Batch(x), labels), candidates=Candidates(cheap, 3), chunk=5)
    assert calls == [(17, False)] * 2
    assert dear.training
    assert cheap.training


@pytest.mark.parametrize("own", [False, True])
def test_neighbours_are_the_nearest_of_the_candidates(own):
    (x, _), (y, others) = problem(), problem(23, 1)
    queries = y if own else x
    candidates = Candidates(Euclidean(), 6)
    classifier = NearestNeighbors(DTW(), k=3, candidates=candidates).fit(Batch(y), others.numpy())
    distances, indices = classifier.kneighbors(None if own else Batch(x))
    wanted = expected_matrix(DTW().matrix(queries, y), Euclidean().matrix(queries, y), 6, own)
    if own:
        wanted.fill_diagonal_(torch.inf)
    values, columns = wanted.sort(1)
    torch.testing.assert_close(torch.from_numpy(distances), values[:, :3])
    assert torch.equal(torch.from_numpy(indices), columns[:, :3])


def test_candidates_of_a_table_and_of_a_metric():
    random = torch.Generator().manual_seed(0)
    X = torch.randn(30, 4, generator=random).numpy()
    y = (X[:, 0] > 0).astype(int)
    plain = NearestNeighbors(DTW()).fit(X, y).predict(X[:5] + 0.01)
    near = NearestNeighbors(DTW(), candidates=Candidates(Metric(None, Euclidean()), 1.0)).fit(X, y)
    assert (near.predict(X[:5] + 0.01) == plain).all()


@pytest.mark.parametrize("keep", [0, -1, 0.0, 1.5, -0.1, float("nan")])
def test_bad_numbers_are_refused(keep):
    with pytest.raises(ValueError, match="Candidates: keep must be a whole number"):
        Candidates(Euclidean(), keep)


def test_bad_arguments_are_refused():
    x, labels = problem()
    with pytest.raises(TypeError, match="Candidates: expected metric to be a Distance, got str"):
        Candidates("dtw", 3)
    with pytest.raises(TypeError, match="Candidates: expected keep to be a number, got str"):
        Candidates(DTW(), "3")
    with pytest.raises(TypeError, match=r"expected candidates to be Candidates\(metric, keep\), got DTW"):
        evaluate(DTW(), (x, labels), candidates=DTW())
    with pytest.raises(TypeError, match=r"expected candidates to be Candidates\(metric, keep\), got int"):
        NearestNeighbors(DTW(), candidates=3).fit(Batch(x), labels)
    fitted = NearestNeighbors(DTW(), candidates=Candidates(Euclidean(), 2)).fit(Batch(x), labels)
    with pytest.raises(ValueError, match="k is 3, but candidates keep 2; raise keep"):
        fitted.kneighbors(Batch(x), k=3)
    with pytest.raises(ValueError, match="evaluate: the metric returned NaN for a candidate"):
        evaluate(Broken(), (x, labels), candidates=Candidates(Euclidean(), 2))
    assert repr(Candidates(DTW(), 2)) == "Candidates(DTW, keep=2)"
