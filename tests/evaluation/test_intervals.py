import numpy as np
import pytest
import torch

import likewise as lw
from likewise.evaluation import bootstrap_interval, evaluate_matrix
from likewise.evaluation.classification import mean_f1
from likewise.evaluation.intervals import bootstrap_f1


def test_it_covers_the_mean_of_many_samples_as_often_as_it_says():
    generator, covered = torch.Generator().manual_seed(0), 0
    for seed in range(200):
        low, high = bootstrap_interval(torch.rand(60, generator=generator), draws=300, seed=seed)
        covered += low <= 0.5 <= high
    assert 180 <= covered <= 198


def test_groups_are_drawn_as_a_whole():
    values = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    alone, by_group = bootstrap_interval(values), bootstrap_interval(values, groups=["a"] * 3 + ["b"] * 3)
    assert by_group == (0.0, 1.0)
    assert alone[0] > 0
    assert alone[1] < 1
    each = bootstrap_interval(values, groups=np.arange(6))  # one query in each: the same draws
    assert each == alone


def test_queries_without_a_relevant_reference_are_left_out():
    values = torch.tensor([0.5, torch.nan, 0.7])
    assert bootstrap_interval(values) == pytest.approx(bootstrap_interval([0.5, 0.7]))
    assert bootstrap_interval([torch.nan]) == (0.0, 0.0)
    assert bootstrap_interval(values, groups=["a", "b", "a"]) == pytest.approx((0.6, 0.6))


def test_the_scores_hold_the_precision_of_every_query():
    generator = torch.Generator().manual_seed(1)
    D, rows, columns = torch.rand(9, 12, generator=generator), torch.arange(9) % 4, torch.arange(12) % 3
    scores = evaluate_matrix(D, rows, columns)
    for i in range(9):
        one = evaluate_matrix(D[i : i + 1], rows[i : i + 1], columns)
        assert scores.precision[i].item() == pytest.approx(one.map) if rows[i] < 3 else scores.precision[i].isnan()
    assert scores.map == pytest.approx(scores.precision.nanmean().item())
    low, high = scores.interval()
    assert low < scores.map < high
    low, high = scores.interval("accuracy")
    assert low <= scores.accuracy <= high
    assert "precision" not in scores.as_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.zeros(2, 2)}, r"expected values of shape \(N,\), got \(2, 2\)"),
        ({"groups": ["a"]}, "groups"),
        ({"level": 1.5}, "level must be at least 0 and less than 1"),
        ({"draws": 0}, "draws"),
    ],
)
def test_wrong_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(**({"values": [0.1, 0.2]} | change))
    scores = lw.evaluation.evaluate_matrix(torch.zeros(2, 2), [0, 0])
    with pytest.raises(ValueError, match='expected "map", "accuracy" or "f1"'):
        scores.interval("recall")


@pytest.mark.parametrize("grouped", [False, True])
def test_the_interval_of_f1_is_that_of_the_samples(grouped):
    generator = torch.Generator().manual_seed(3)
    actual = torch.randint(4, (60,), generator=generator)
    predicted = torch.where(torch.rand(60, generator=generator) < 0.7, actual, 3)
    groups = torch.arange(60) // 5 if grouped else torch.arange(60)
    generator.manual_seed(0)
    values = []
    for _ in range(400):
        drawn = torch.randint(int(groups.max()) + 1, (int(groups.max()) + 1,), generator=generator)
        picked = torch.cat([(groups == group).nonzero()[:, 0] for group in drawn])
        values.append(mean_f1(actual[picked], predicted[picked]))
    expected = torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    given = groups.tolist() if grouped else None
    assert bootstrap_f1(actual, predicted, draws=400, groups=given) == pytest.approx(expected.tolist(), abs=0.02)
    assert bootstrap_f1(actual[:0], predicted[:0]) == (0.0, 0.0)
