import re
from dataclasses import replace

import pytest
import torch

import likewise as lw
from likewise.selection import Result, Selection, compare


def result(name, precision, **given):
    return Result(name, f"about {name}", given.pop("learns", True), map=sum(precision) / len(precision), accuracy=0.5,
                  interval=(0.1, 0.9), precision=tuple(precision), **given)  # fmt: skip


GOOD, FAIR, POOR = [0.9 + 0.01 * (i % 3) for i in range(20)], [0.9 + 0.01 * (i % 2) for i in range(20)], [0.4] * 20


def test_a_clear_difference_is_real_and_a_small_one_may_be_chance():
    difference = compare(result("a", GOOD), result("b", POOR))
    assert difference.is_real
    assert difference.mean == pytest.approx(0.51, abs=0.01)
    assert difference.interval[0] < difference.mean < difference.interval[1]
    assert not compare(result("a", GOOD), result("b", FAIR)).is_real


def test_items_of_one_subject_are_one_observation():
    groups = ["a"] * 10 + ["b"] * 10
    difference = compare(result("a", GOOD), result("b", POOR), groups)
    assert difference.p == 0.5  # two subjects: four sign flips
    assert not difference.is_real


def test_items_that_nothing_matches_are_left_out():
    one, other = result("a", [1.0, 0.8]), result("b", [0.5, 0.3])
    with_none = Result("a", "", True, precision=(1.0, None, 0.8)), Result("b", "", True, precision=(0.5, None, 0.3))
    assert compare(*with_none) == compare(one, other)


def test_the_paragraph_says_who_won_by_how_much_and_whether_it_is_real():
    metric = lw.Metric(None, lw.DTW())
    results = (
        result("a", GOOD),
        result("b", FAIR),
        result("dtw", POOR, learns=False),
        Result("c", "", True, left_out="?"),
    )
    text = str(Selection(metric, results, 20, 3.0))
    assert text.startswith(
        "a (about a) is the best: MAP 0.910 (95 % interval 0.100 to 0.900) and 1-NN accuracy 0.500 on 20"
    )
    assert "dtw, which learns nothing, reaches 0.400: the difference of 0.5" in text
    assert "is real (p < 0.001, paired permutation test)." in text
    assert "b, the next best, reaches 0.905: the difference of 0.00" in text
    assert "could be chance" in text
    assert "stopped" not in text
    alone = Selection(metric, results[2:3], 20, 3.0)
    assert str(alone).count(".") == str(alone).count("0.") + 1
    assert alone.tried == alone.results
    assert "precision" not in alone.best.as_dict()
    assert torch.is_tensor(alone.metric.matrix(torch.zeros(2, 3, 1)))


def test_the_paragraph_says_who_is_ahead_by_the_other_score():
    right = {"a": [True] * 10 + [False] * 10, "dtw": [True] * 20}
    results = tuple(
        replace(result(name, values, learns=name == "a"), right=tuple(right[name]), accuracy=sum(right[name]) / 20)
        for name, values in (("a", GOOD), ("dtw", POOR))
    )
    metric = lw.Metric(None, lw.DTW())
    text = str(Selection(metric, results, 20, 3.0))
    said = re.search(
        r"By 1-NN accuracy, dtw is ahead with 1.000: the difference of 0.500 \((.*) to (.*)\) is real", text
    )
    assert 0.2 < float(said[1]) < 0.5 < float(said[2]) < 0.8
    turned = str(Selection(metric, results[::-1], 20, 3.0, by="accuracy"))
    assert "a, the next best, reaches 0.500: the difference of 0.500 (" in turned
    assert "By MAP, a is ahead with 0.910: the difference of 0.510" in turned
    level = (results[0], replace(results[1], right=results[0].right, accuracy=0.5))
    assert "ahead" not in str(Selection(metric, level, 20, 3.0))
