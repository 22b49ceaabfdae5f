import functools
import math

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.testing import TOLERANCE, assert_close, check_distance
from tests.distances.grounds import manhattan, named


def walks(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1).to(dtype)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"band": 0},
        {"band": 2},
        {"band": 0.3},
        {"itakura": 1.5},
        {"open_begin": True},
        {"open_end": True, "band": 1},
        {"subsequence": True},
        {"ground": "euclidean"},
        {"ground": "cosine", "band": 0.5},
        {"ground": manhattan},
        {"ground": manhattan, "subsequence": True, "normalize": "steps"},
        {"normalize": "lengths"},
        {"normalize": "steps"},
        {"normalize": "steps", "ground": "euclidean", "open_end": True},
    ],
    ids=named,
)
def test_contract(options):
    check_distance(lw.DTW(**options))


def test_three_frames_against_two():
    # Costs [[0, 4], [1, 1], [4, 0]]: the best path leaves out the fours.
    x, y = [[0.0, 1.0, 2.0]], [[0.0, 2.0]]
    alignment = lw.DTW().align(x, y)
    assert alignment.value.tolist() == lw.DTW()(x, y).tolist() == [1.0]
    assert alignment.path(0).tolist() == [[0, 0], [1, 0], [2, 1]]
    assert alignment.plan.tolist() == [[[1, 0], [1, 0], [0, 1]]]
    assert alignment.warp.tolist() == [[0, 0, 1]]
    assert alignment.steps.tolist() == [3]


def test_channels_add_up():
    x, y = torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[3.0, 4.0]]])
    assert lw.DTW()(x, y).item() == 25
    assert lw.DTW(ground="euclidean")(x, y).item() == 5
    assert lw.DTW(ground=manhattan)(x, y).item() == 7
    assert lw.DTW(ground="cosine")(torch.tensor([[[1.0, 0.0]]]), y).item() == pytest.approx(1 - 3 / 5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 0), ({"band": 2}, 0), ({"band": 1}, 1), ({"band": 0.25}, 1), ({"band": 0}, 2), ({"band": 0.2}, 2)],
)
def test_bands(options, expected):
    # Three zeros and a one against a zero and three ones: each step off the diagonal saves one.
    assert lw.DTW(**options)([[0.0, 0.0, 0.0, 1.0]], [[0.0, 1.0, 1.0, 1.0]]).item() == expected


def test_a_slope_of_one_is_the_diagonal():
    x, y = walks(3, 8, 2), walks(3, 8, 2, seed=1)
    squared = lw.Euclidean(squared=True)(x, y)
    assert_close(lw.DTW(itakura=1.0)(x, y), squared, 1e-12, "Itakura of slope 1")
    assert_close(lw.DTW(band=0)(x, y), squared, 1e-12, "a band of 0")


@pytest.mark.parametrize("options", [{"band": 0}, {"band": 0.0}, {"itakura": 1.0}, {"band": 0, "subsequence": True}])
def test_no_window_leaves_a_pair_without_a_path(options):
    lengths = [1, 2, 3, 7, 20]
    x = lw.Batch.from_list([torch.ones(n, 1) for n in lengths])
    distance = lw.DTW(**options)
    assert torch.equal(distance.matrix(x, lw.Batch.cat([x])), torch.zeros(5, 5))
    for a in x:
        for b in x:
            path = distance.align(a[None], b[None]).path(0)
            assert path[0, 0] == 0
            assert path[-1, 0] == len(a) - 1


@pytest.mark.parametrize(
    ("options", "y", "path"),
    [
        ({"open_end": True}, [0.0, 1.0, 5.0, 9.0], [[0, 0], [1, 1]]),
        ({"open_begin": True}, [9.0, 5.0, 0.0, 1.0], [[0, 2], [1, 3]]),
        ({"subsequence": True}, [7.0, 0.0, 1.0, 7.0], [[0, 1], [1, 2]]),
    ],
)
def test_open_ends(options, y, path):
    distance = lw.DTW(**options)
    assert not distance.symmetric
    alignment = distance.align([[0.0, 1.0]], [y])
    assert alignment.value.item() == 0
    assert alignment.path(0).tolist() == path
    assert alignment.warp.tolist() == [[j for _, j in path]]
    assert alignment.plan.sum() == 2
    assert lw.DTW()([[0.0, 1.0]], [y]).item() > 0


def test_normalisations():
    # Two paths: three cells of cost 1 in all, and three cells of cost 4 in all.
    x = lw.Batch.from_list([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    y = lw.Batch.from_list([[0.0, 2.0], [0.0, 0.0, 2.0]])
    assert lw.DTW()(x, y).tolist() == [1, 4]
    assert lw.DTW(normalize="lengths")(x, y).tolist() == pytest.approx([1 / 5, 4 / 6])
    assert lw.DTW(normalize="steps")(x, y).tolist() == pytest.approx([1 / 3, 4 / 3])
    assert lw.DTW(normalize="lengths").matrix(x, y).diagonal().tolist() == pytest.approx([1 / 5, 4 / 6])
    assert lw.DTW(normalize="steps").matrix(x, y).diagonal().tolist() == pytest.approx([1 / 3, 4 / 3])
    assert lw.DTW(normalize="steps").align(x, y).value.tolist() == pytest.approx([1 / 3, 4 / 3])


def test_steps_are_those_of_the_path():
    x, y = walks(6, 12, 2), walks(6, 9, 2, seed=1)
    for options in ({}, {"band": 2}, {"subsequence": True}, {"ground": manhattan}):
        plain = lw.DTW(**options).align(x, y)
        lengths = torch.tensor([len(plain.path(b)) for b in range(6)])
        assert torch.equal(plain.steps, lengths)
        assert_close(lw.DTW(normalize="steps", **options)(x, y), plain.value / lengths, 1e-12, "by steps")
        assert_close(lw.DTW(normalize="lengths", **options)(x, y), plain.value / 21, 1e-12, "by lengths")


def test_the_derivative_follows_the_path():
    x = torch.tensor([[[0.0], [1.0], [2.0]]], requires_grad=True)
    y = torch.tensor([[[0.5], [2.0]]], requires_grad=True)  # path (0, 0), (1, 0), (2, 1)
    lw.DTW()(x, y).backward()
    assert x.grad.flatten().tolist() == [-1, 1, 0]  # type: ignore[union-attr]
    assert y.grad.flatten().tolist() == [0, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_equal_the_peers(dtype):
    aeon = pytest.importorskip("aeon.distances")
    tslearn = pytest.importorskip("tslearn.metrics")
    dtai = pytest.importorskip("dtaidistance.dtw_ndim")
    x, y = walks(3, 20, 2, dtype=dtype), walks(3, 16, 2, dtype=dtype, seed=1)
    whole = [(0, 0, 0, 16), (0, 0, 16, 0), (0, 0, 16, 16)]
    for b in range(3):
        a, c = x[b].double().numpy(), y[b].double().numpy()
        cases = [
            ({}, "aeon", aeon.dtw_distance(*map(np.ascontiguousarray, (a.T, c.T)))),
            ({}, "tslearn", tslearn.dtw(a, c) ** 2),
            ({}, "dtaidistance", dtai.distance(a, c) ** 2),
            ({"band": 3}, "tslearn", tslearn.dtw(a, c, global_constraint="sakoe_chiba", sakoe_chiba_radius=3) ** 2),
            ({"band": 3}, "dtaidistance", dtai.distance(a, c, window=4) ** 2),
            ({"ground": "euclidean"}, "dtaidistance", dtai.distance(a, c, inner_dist="euclidean")),
            ({"ground": "euclidean"}, "tslearn", tslearn.dtw_path_from_metric(a, c, metric="euclidean")[1]),
            ({"ground": "cosine"}, "tslearn", tslearn.dtw_path_from_metric(a, c, metric="cosine")[1]),
            ({"ground": manhattan}, "tslearn", tslearn.dtw_path_from_metric(a, c, metric="cityblock")[1]),
            ({"open_end": True}, "dtaidistance", dtai.distance(a, c, psi=whole[0]) ** 2),
            ({"open_begin": True}, "dtaidistance", dtai.distance(a, c, psi=whole[1]) ** 2),
            ({"subsequence": True}, "dtaidistance", dtai.distance(a, c, psi=whole[2]) ** 2),
            ({"subsequence": True}, "tslearn", float(tslearn.dtw_subsequence_path(a, c)[1]) ** 2),
        ]
        for options, name, expected in cases:
            found = lw.DTW(**options)(x[b : b + 1], y[b : b + 1])
            expected = torch.tensor([expected], dtype=torch.float64)
            assert_close(found, expected, TOLERANCE[dtype].value, f"{name} with {options}")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_matrix_equals_aeons(dtype):
    aeon = pytest.importorskip("aeon.distances")
    x, y = walks(6, 15, 2, dtype=dtype), walks(4, 15, 2, dtype=dtype, seed=1)
    layout_x, layout_y = (np.ascontiguousarray(t.double().numpy().transpose(0, 2, 1)) for t in (x, y))
    for options in ({}, {"band": 0.2}):
        window = options.get("band")
        distance = lw.DTW(**options)
        own = torch.from_numpy(aeon.dtw_pairwise_distance(layout_x, window=window))
        both = torch.from_numpy(aeon.dtw_pairwise_distance(layout_x, layout_y, window=window))
        assert_close(distance.matrix(x), own, TOLERANCE[dtype].value, f"aeon's pairwise, {options}")
        assert_close(distance.matrix(x, y), both, TOLERANCE[dtype].value, f"aeon's pairwise of two, {options}")
    unequal = [x[i, : 5 + i] for i in range(6)]
    expected = aeon.dtw_pairwise_distance([np.ascontiguousarray(item.double().numpy().T) for item in unequal])
    assert_close(lw.DTW().matrix(unequal), torch.from_numpy(expected), TOLERANCE[dtype].value, "unequal lengths")


@pytest.mark.parametrize(
    ("distance", "text"),
    [
        (lw.DTW(), "DTW(ground='sqeuclidean')"),
        (lw.DTW(band=0, normalize="steps"), "DTW(ground='sqeuclidean', band=0, normalize='steps')"),
        (lw.DTW(ground=manhattan, itakura=2.0), "DTW(ground='manhattan', itakura=2.0)"),
        (lw.DTW(ground=functools.partial(manhattan)), "DTW(ground='partial')"),
        (lw.DTW(subsequence=True), "DTW(ground='sqeuclidean', open_begin=True, open_end=True)"),
    ],
)
def test_repr(distance, text):
    assert repr(distance) == text


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ground": "manhattan"}, ValueError, "DTW: unknown ground cost 'manhattan'; expected one of sqeuclidean"),
        ({"ground": 2}, TypeError, "DTW: expected ground to be a name or a callable, got int"),
        ({"band": -1}, ValueError, "DTW: band must be a whole number of steps, 0 or more, or a fraction .* got -1"),
        ({"band": 1.5}, ValueError, "got 1.5"),
        ({"band": True}, TypeError, "DTW: expected band to be a number, got bool"),
        ({"itakura": 0.9}, ValueError, "DTW: itakura is the largest slope and must be at least 1, got 0.9"),
        ({"itakura": math.inf}, ValueError, "DTW: itakura must be positive and finite, got inf"),
        ({"band": 1, "itakura": 2.0}, ValueError, "DTW: give band or itakura, not both"),
        ({"normalize": "path"}, ValueError, 'DTW: normalize must be None, "lengths" or "steps", got \'path\''),
    ],
)
def test_bad_settings_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        lw.DTW(**options)


def test_settings_go_by_name():
    with pytest.raises(TypeError, match="positional argument"):
        lw.DTW(0.1)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("ground", "message"),
    [
        (lambda x, y: x, r"expected the ground cost to return shape \(2, 3, 4\), got \(2, 3, 1\)"),
        (lambda x, y: 1.0, r"expected the ground cost to return shape \(2, 3, 4\), got float"),
        (lambda x, y: (x - y.mT).log(), r"cost\[0\] holds -inf at \(0, 0\)"),
    ],
)
def test_ground_costs_that_return_something_else_are_refused(ground, message):
    with pytest.raises(ValueError, match=message):
        lw.DTW(ground=ground)(torch.ones(2, 3, 1), torch.ones(2, 4, 1))
