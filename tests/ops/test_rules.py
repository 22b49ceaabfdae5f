import itertools

import pytest

from likewise import _native
from likewise.ops.rules import FRACTION, ITAKURA, NONE, STEPS, Rules, Window

WINDOWS = [
    Window(),
    *(Window(STEPS, float(r)) for r in (0, 1, 3, 100)),
    *(Window(FRACTION, f) for f in (0.0, 0.1, 0.29, 0.5, 1.0)),
    *(Window(ITAKURA, s) for s in (1.0, 1.3, 2.0, 3.0, 50.0)),
]
SIZES = [1, 2, 3, 5, 8, 13, 30]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_every_window_joins_the_corners(window):
    for n, m in itertools.product(SIZES, SIZES):
        rows = [window.row(n, m, i) for i in range(n)]
        assert rows[0][0] == 0
        assert rows[-1][1] == m - 1
        assert all(0 <= first <= last < m for first, last in rows)
        for (first, last), (next_first, next_last) in itertools.pairwise(rows):
            assert first <= next_first <= last + 1, "a row is cut off from the one above"
            assert last <= next_last, "the window moves back"


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_kernels_see_the_same_window(window):
    for n, m in itertools.product(SIZES, SIZES):
        expected = [window.row(n, m, i) for i in range(n)]
        assert [_native.window_row(window.kind, window.size, n, m, i) for i in range(n)] == expected


def test_bands_are_symmetric_in_x_and_y():
    window = Window(STEPS, 2)
    for n, m in itertools.product(SIZES, SIZES):
        cells = {(i, j) for i in range(n) for j in range(window.row(n, m, i)[0], window.row(n, m, i)[1] + 1)}
        flipped = {(j, i) for i in range(m) for j in range(window.row(m, n, i)[0], window.row(m, n, i)[1] + 1)}
        assert cells == flipped


def test_windows_equal_tslearns():
    masks = pytest.importorskip("tslearn.metrics._masks")
    for n, m, r in [(7, 7, 2), (5, 9, 1), (9, 5, 0), (1, 4, 1)]:
        expected = masks.sakoe_chiba_mask(n, m, radius=r)
        found = [[lo <= j <= hi for j in range(m)] for lo, hi in (Window(STEPS, r).row(n, m, i) for i in range(n))]
        assert found == expected.tolist()
    for n, slope in [(6, 3.0), (9, 2.0), (20, 2.0)]:
        expected = masks.itakura_mask(n, n, max_slope=slope)
        found = [
            [lo <= j <= hi for j in range(n)] for lo, hi in (Window(ITAKURA, slope).row(n, n, i) for i in range(n))
        ]
        assert found == expected.tolist()


def test_rules_from_arguments():
    assert Rules.of("dtw").window.kind == NONE
    assert Rules.of("dtw", band=3).window == Window(STEPS, 3.0)
    assert Rules.of("dtw", band=0.25).window == Window(FRACTION, 0.25)
    assert Rules.of("dtw", itakura=2).window == Window(ITAKURA, 2.0)
    assert Rules.of("dtw", subsequence=True) == Rules(open_begin=True, open_end=True)
    rules = Rules.of("dtw", band=2, open_end=True)
    assert Rules.from_plain(*rules.plain()) == rules


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"band": -1}, ValueError, "dtw: band must be a whole number of steps, 0 or more, or a fraction .* got -1"),
        ({"band": 1.5}, ValueError, "got 1.5"),
        ({"band": float("nan")}, ValueError, "got nan"),
        ({"band": True}, TypeError, "dtw: expected band to be a number, got bool"),
        ({"band": "5"}, TypeError, "got str"),
        ({"itakura": 0.5}, ValueError, "dtw: itakura is the largest slope and must be at least 1, got 0.5"),
        ({"itakura": -1.0}, ValueError, "dtw: itakura must be positive and finite, got -1.0"),
        ({"band": 1, "itakura": 2.0}, ValueError, "dtw: give band or itakura, not both"),
    ],
)
def test_bad_windows_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Rules.of("dtw", **arguments)
