import pytest
import torch

import likewise as lw
from likewise.distances.alignment import Alignment, PathAlignment, PlanAlignment

X = lw.Batch.from_list([[0.0, 1.0, 2.0], [5.0, 5.0], [1.0]])
Y = lw.Batch.from_list([[0.0, 2.0], [5.0, 5.0, 5.0, 5.0], [1.0, 2.0]])
PATHS = [[[0, 0], [1, 0], [2, 1]], [[0, 0], [0, 1], [0, 2], [1, 3]], [[0, 0], [0, 1]]]


def test_paths_of_a_batch():
    alignment = lw.DTW().align(X, Y)
    assert isinstance(alignment, PathAlignment)
    assert len(alignment) == 3
    for b, path in enumerate(PATHS):
        assert alignment.path(b).tolist() == path
        assert alignment.path(b - 3).tolist() == path
        assert alignment.path(b).dtype == torch.int64
    assert alignment.steps.tolist() == [3, 4, 2]


def test_the_plan_is_one_on_the_path():
    alignment = lw.DTW().align(X, Y)
    expected = torch.zeros(3, 3, 4)
    for b, path in enumerate(PATHS):
        for i, j in path:
            expected[b, i, j] = 1
    assert torch.equal(alignment.plan, expected)


def test_the_warp_is_the_last_frame_and_nan_in_the_padding():
    warp = lw.DTW().align(X, Y).warp
    assert warp.nan_to_num(-1).tolist() == [[0, 0, 1], [2, 3, -1], [1, -1, -1]]


def test_a_soft_alignment_of_a_batch():
    alignment = lw.SoftDTW(1e-3).align(X, Y)
    assert isinstance(alignment, PlanAlignment)
    assert alignment.path(0).tolist() == PATHS[0]
    assert alignment.path(-1).tolist() == PATHS[2]
    assert alignment.warp.isnan().tolist() == [[False] * 3, [False, False, True], [False, True, True]]
    assert alignment.warp[2, 0] == 0.5, "the mean of both frames"
    plan = alignment.plan
    assert plan[1, 2:].sum() == plan[2, 1:].sum() == plan[0, :, 2:].sum() == 0


def test_a_soft_path_keeps_to_what_is_more_likely_than_not():
    # Every path is as good as any other: the middle cells are likelier than the corners off the diagonal.
    path = lw.SoftDTW(1.0).align([[5.0, 5.0, 5.0]], [[5.0, 5.0, 5.0]]).path(0)
    assert path.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_a_soft_path_keeps_to_the_rules():
    x, y = [[0.0, 1.0]], [[7.0, 0.0, 1.0, 7.0]]
    assert lw.SoftDTW(0.1, subsequence=True).align(x, y).path(0).tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("distance", [lw.DTW(), lw.SoftDTW(), lw.SoftDTWDivergence(), lw.Euclidean()], ids=repr)
def test_types_and_values_follow_the_input(distance):
    for dtype in (torch.float64, torch.float32, torch.float16):
        alignment = distance.align(X.to(dtype), Y.to(dtype))
        assert alignment.plan.dtype == alignment.warp.dtype == alignment.value.dtype == dtype
        assert torch.equal(alignment.value, distance(X.to(dtype), Y.to(dtype)))


def test_each_part_is_computed_once_and_only_when_read():
    calls = []

    def parts(name, result):
        def call():
            calls.append(name)
            return result

        return call

    lengths = torch.tensor([1])
    value, path = torch.zeros(1), (torch.zeros(1, 1, 2, dtype=torch.int64), torch.tensor([1]))
    hard = PathAlignment(
        parts("value", value), parts("paths", path), torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), lengths, lengths
    )
    soft = PlanAlignment(parts("value", value), parts("plan", torch.ones(1, 1, 1)), lengths, lengths)
    assert calls == []
    assert hard.path(0).tolist() == hard.path(0).tolist() == [[0, 0]]
    assert hard.plan.tolist() == hard.plan.tolist() == [[[1]]]
    assert hard.warp.tolist() == [[0]]
    assert calls == ["paths"]
    assert soft.warp.tolist() == soft.warp.tolist() == [[0]]
    assert calls == ["paths", "plan"]
    assert hard.value is hard.value
    assert calls == ["paths", "plan", "value"]


def test_the_value_of_an_alignment_has_a_gradient():
    x = X.values.clone().requires_grad_()
    for distance in (lw.DTW(), lw.SoftDTW(), lw.Euclidean()):
        alignment = distance.align(lw.Batch(x, X.lengths), Y)
        (gradient,) = torch.autograd.grad(alignment.value.sum(), x)
        (expected,) = torch.autograd.grad(distance(lw.Batch(x, X.lengths), Y).sum(), x)
        assert torch.equal(gradient, expected)


def test_empty_alignments():
    empty = lw.Batch(torch.empty(0, 4, 1))
    for distance in (lw.DTW(), lw.SoftDTW(), lw.Euclidean()):
        alignment = distance.align(empty, Y[:0])
        assert len(alignment) == 0
        assert alignment.plan.shape == (0, 4, 4)
        assert alignment.warp.shape == (0, 4)
        with pytest.raises(IndexError, match="Alignment: item 0 is out of range for 0 pairs"):
            alignment.path(0)


@pytest.mark.parametrize("distance", [lw.DTW(), lw.SoftDTW(), lw.Cosine()], ids=repr)
def test_items_out_of_range_are_refused(distance):
    alignment = distance.align(X, Y)
    for b in (3, -4):
        with pytest.raises(IndexError, match=f"Alignment: item {b} is out of range for 3 pairs"):
            alignment.path(b)


@pytest.mark.parametrize("distance", [lw.DTW(), lw.SoftDTW(), lw.Euclidean()], ids=repr)
def test_bad_input_is_refused(distance):
    with pytest.raises(ValueError, match="x has 2 sequences and y has 3"):
        distance.align(X[:2], Y)
    broken = X.values.clone()
    broken[0, 1] = torch.nan
    with pytest.raises(ValueError, match=r"x\[0\] holds nan at step 1, channel 0"):
        distance.align(lw.Batch(broken, X.lengths), Y).value  # noqa: B018


def test_repr():
    assert repr(lw.DTW().align(X, Y)) == "PathAlignment(3 pairs)"
    assert repr(lw.SoftDTW().align(X[:1], Y[:1])) == "PlanAlignment(1 pair)"


def test_the_base_class_says_what_is_missing():
    alignment = Alignment(lambda: torch.zeros(1), torch.tensor([1]), torch.tensor([1]))
    assert alignment.value.tolist() == [0]
    for read in (lambda: alignment.plan, lambda: alignment.warp, lambda: alignment.path(0)):
        with pytest.raises(NotImplementedError):
            read()
