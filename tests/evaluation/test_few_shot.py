import math

import numpy as np
import pytest
import torch
from torch import nn

from likewise import DTW, TAP, Batch, FrameMLP
from likewise.data.dataset import Dataset
from likewise.data.episodes import Episodes
from likewise.evaluation import SoftNearestShot, mean_shot, nearest_shot
from likewise.evaluation.few_shot import (
    class_distances,
    few_shot_accuracy,
    few_shot_accuracy_matrix,
    few_shot_predict,
)
from likewise.models.metric import Metric

LABELS = torch.arange(24) % 6


def matrix(seed=0):
    return torch.rand(24, 24, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_loops(D, support, query):
    """Accuracy of each episode."""
    found = []
    for shown, asked in zip(support.tolist(), query.tolist(), strict=True):
        right = total = 0
        for truth, items in enumerate(asked):
            for q in items:
                apart = [sum(float(D[q, s] + D[s, q]) for s in shots) / len(shots) for shots in shown]
                right += apart.index(min(apart)) == truth
                total += 1
        found.append(right / total)
    return torch.tensor(found)


@pytest.mark.parametrize(("shots", "queries"), [(1, 1), (2, 2), (3, 1), (1, 3)])
def test_equals_plain_loops(shots, queries, monkeypatch):
    D = matrix()
    support, query = Episodes(LABELS, 4, shots, queries).take(60)
    expected = by_loops(D, support, query)
    score = few_shot_accuracy_matrix(D, support, query)
    assert torch.equal(score.accuracies, expected)
    assert score.accuracy == pytest.approx(float(expected.double().mean()))
    deviation = math.sqrt(sum((a - score.accuracy) ** 2 for a in expected.tolist()) / 59)
    assert score.interval == pytest.approx(1.96 * deviation / math.sqrt(60))
    monkeypatch.setattr("likewise.evaluation.few_shot.NUMBERS_AT_ONCE", 1)
    assert few_shot_accuracy_matrix(D, support, query).accuracy == score.accuracy
    assert f"{100 * score.accuracy:.2f} %" in repr(score)


@pytest.mark.parametrize("combine", [mean_shot, nearest_shot, SoftNearestShot(0.2)])
def test_shots_are_combined(combine):
    D = matrix()
    support, query = Episodes(LABELS, 4, 3, 1).take(20)
    found = class_distances(D, support, query, combine=combine)
    for e in range(20):
        for w in range(4):
            q = int(query[e, w, 0])
            for k in range(4):
                apart = [float(D[q, s] + D[s, q]) for s in support[e, k].tolist()]
                mean = sum(apart) / 3
                soft = -0.2 * mean * math.log(sum(math.exp(-a / (0.2 * mean)) for a in apart) / 3)
                expected = {mean_shot: mean, nearest_shot: min(apart)}.get(combine, soft)
                assert float(found[e, w, 0, k]) == pytest.approx(expected)
    score = few_shot_accuracy_matrix(D, support, query, combine=combine)
    assert score.accuracy == float((found.argmin(3) == torch.arange(4)[:, None]).double().mean())
    with pytest.raises(ValueError, match="prototypes need combine=mean_shot"):
        class_distances(D, support, query, combine=nearest_shot, prototypes=True)


def test_soft_shots_lie_between_and_do_not_depend_on_the_unit():
    d = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    soft = SoftNearestShot(0.3)(d)
    assert ((nearest_shot(d) <= soft) & (soft <= mean_shot(d))).all()
    torch.testing.assert_close(SoftNearestShot(0.3)(1000 * d), 1000 * soft)
    assert torch.equal(SoftNearestShot()(torch.zeros(2, 3)), torch.zeros(2))


def test_new_sequences_are_named_by_a_few_examples():
    generator = torch.Generator().manual_seed(0)
    support = [torch.randn(n, 2, generator=generator) + 3 * k for k, n in ((0, 4), (0, 6), (1, 5))]
    queries = Batch.from_list([torch.randn(5, 2, generator=generator) + 3 * k for k in (1, 0, 1)])
    found = few_shot_predict(DTW(), support, ["low", "low", "high"], queries)
    assert found.tolist() == ["high", "low", "high"]
    data = Dataset(support, [7, 7, 9])
    for combine in (mean_shot, nearest_shot):
        for metric in (Metric(None, TAP(3)), Metric(FrameMLP(2), DTW())):
            D = metric.matrix(queries, data) + metric.matrix(data, queries).T
            expected = [7 if combine(row[:2]) <= combine(row[2:]) else 9 for row in D]
            assert few_shot_predict(metric, data, [7, 7, 9], queries, combine=combine).tolist() == expected
    with pytest.raises(ValueError, match=r"few_shot_predict: .*labels"):
        few_shot_predict(DTW(), support, ["low"], queries)
    with pytest.raises(TypeError, match="few_shot_predict: expected metric to be a Distance"):
        few_shot_predict("dtw", support, ["low"], queries)


def test_prototypes_are_the_means_of_vectors():
    x = torch.randn(24, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    D = torch.cdist(x, x).square()
    support, query = Episodes(LABELS, 3, 3, 1).take(20)
    found = class_distances(D, support, query, prototypes=True)  # (20, 3, 1, 3)
    means = x[support].mean(2)  # (20, 3, 5)
    expected = 2 * (x[query][:, :, :, None] - means[:, None, None]).square().sum(4)
    torch.testing.assert_close(found, expected)
    one = class_distances(D, support[:, :, :1], query, prototypes=True)
    torch.testing.assert_close(one, class_distances(D, support[:, :, :1], query))  # a single shot is its own mean


def test_good_and_useless_distances():
    same = (LABELS[:, None] != LABELS).double()
    support, query = Episodes(LABELS, 5, 1, 2).take(500)
    assert few_shot_accuracy_matrix(same, support, query).accuracy == 1
    chance = few_shot_accuracy_matrix(matrix(), support, query)
    assert abs(chance.accuracy - 0.2) < 3 * chance.interval
    # Ties go to the first class.
    assert few_shot_accuracy_matrix(torch.zeros(24, 24), support, query).accuracy == pytest.approx(0.2)


def test_it_is_differentiable():
    D = matrix().requires_grad_()
    support, query = Episodes(LABELS, 2, 2, 1).take(3)
    for prototypes in (False, True):
        torch.autograd.gradcheck(lambda d, p=prototypes: class_distances(d, support, query, prototypes=p), (D,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"D": torch.zeros(4, 5)}, r"expected D of shape \(N, N\), items against themselves, got \(4, 5\)"),
        ({"D": torch.zeros(3, 3)}, "support holds an index outside of the 3 items"),
        ({"query": torch.zeros(2, 3, 1, dtype=torch.int64)}, "must agree in episodes and ways"),
        ({"support": torch.zeros(2, 3, dtype=torch.int64)}, r"expected support of shape \(episodes, ways, items\)"),
        ({"D": torch.full((24, 24), torch.nan)}, "D holds NaN in row 0"),
    ],
)
def test_bad_input_is_refused(change, message):
    support, query = Episodes(LABELS, 2, 1, 1).take(2)
    with pytest.raises(ValueError, match=message):
        few_shot_accuracy_matrix(**{"D": matrix(), "support": support, "query": query} | change)


def test_one_episode_has_no_interval():
    support, query = Episodes(LABELS, 2, 1, 1).take(1)
    with pytest.raises(ValueError, match="at least two episodes, got 1"):
        few_shot_accuracy_matrix(matrix(), support, query)
    with pytest.raises(TypeError, match=r"expected support to be an int64 tensor, got torch\.float32"):
        few_shot_accuracy_matrix(matrix(), support.float(), query)


def test_a_metric_and_data_give_the_accuracy_of_their_matrix():
    x, labels = torch.randn(24, 5, 2, generator=torch.Generator().manual_seed(1)), LABELS
    episodes = Episodes(labels, 3, 1, 2)
    expected = few_shot_accuracy_matrix(DTW().matrix(x), *episodes.take(40))
    names = [f"class {label}" for label in labels]
    for data in ((x, labels), (x, names), Dataset(x, labels)):
        found = few_shot_accuracy(DTW(), data, episodes, count=40)
        assert torch.equal(found.accuracies, expected.accuracies)
    assert few_shot_accuracy(DTW(), (x, labels), episodes.take(40)).accuracy == expected.accuracy
    encoder = nn.Dropout(0.5)
    metric = Metric(_Values(encoder), DTW()).train()
    assert few_shot_accuracy(metric, Dataset(x, labels), episodes, count=40).accuracy == expected.accuracy
    assert encoder.training
    assert torch.equal(Episodes(Dataset(x, labels), 3, 1, 2).take(9)[0], episodes.take(9)[0])


class _Values(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, batch):
        return Batch(self.layer(batch.values), batch.lengths)


def test_episodes_of_other_labels_are_refused():
    x, episodes = torch.zeros(24, 2, 1), Episodes(LABELS, 2, 1, 1)
    with pytest.raises(
        ValueError, match=r"way \d of episode \d+ has items of .*; draw episodes from the labels of data"
    ):
        few_shot_accuracy(DTW(), (x, np.arange(24) // 4), episodes)
    with pytest.raises(ValueError, match="a class occurs twice in an episode"):
        few_shot_accuracy(DTW(), (x, ["a"] * 24), episodes)
    with pytest.raises(ValueError, match="outside of the 5 items"):
        few_shot_accuracy(DTW(), (x[:5], LABELS[:5]), episodes)
    with pytest.raises(TypeError, match="for a ready matrix, use few_shot_accuracy_matrix"):
        few_shot_accuracy(matrix(), *episodes.take(3))
    with pytest.raises(ValueError, match="data has no labels"):
        few_shot_accuracy(DTW(), Dataset(x), episodes)
