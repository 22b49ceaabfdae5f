"""TAP's Triton kernels against its reference in float64: in Triton's interpreter, or on a GPU with TRITON_INTERPRET=0."""

import os

import pytest
import torch

from likewise.distances.tap import TAP
from likewise.ops import tap as op
from likewise.ops.tap import reference, tiles
from likewise.testing import assert_close
from tests.ops.tap_problems import network, sequences

pytest.importorskip("triton")
from likewise.ops.tap import gpu

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
TOLERANCE = 2e-3  # relative: the convolutions run in float16
LENGTHS = [7, 1, 4, 9, 2], [3, 12, 1, 6]


def problem(*arguments, channels=3):
    (x, n), (y, m) = sequences(LENGTHS[0], channels), sequences(LENGTHS[1], channels, seed=1)
    return network(*arguments).double(), x, y, n, m


def run(function, tap, x, y, n, m):
    weights, biases = ([getattr(c, name).to(DEVICE) for c in tap.convolutions] for name in ("weight", "bias"))
    return function(x.to(DEVICE), y.to(DEVICE), n, m, weights, biases)


def truth(tap, x, y, n, m):
    """One pair at a time, in float64."""
    with torch.no_grad():
        return reference.matrix(x.double(), y.double(), n, m, *tap._weights())


def check(tap, x, y, n, m):
    expected = truth(tap, x, y, n, m)
    found = run(gpu.tap_distances, tap, x, y, n, m)
    assert found.dtype == torch.float32
    assert_close(found, expected, TOLERANCE, "all pairs")
    k = torch.tensor([3, 0, 1])
    assert_close(run(gpu.tap_pairs, tap, x[k], y[k], n[k], m[k]), expected[k, k], TOLERANCE, "pairs")


@pytest.mark.parametrize(
    ("width", "kernels"),
    [(30, (5, 5, 3)), (4, (7, 7, 5)), (4, (5, 5, 5, 3)), (30, (3,)), (20, (3, 5)), (4, (1, 3, 3, 3, 1)), (3, (9, 1))],
)
def test_every_pair_is_as_in_float64(width, kernels):
    check(*problem(width, kernels))


def test_the_kernels_see_the_network():
    tap, *given = problem(30, (3, 3, 3))
    before = truth(tap, *given)
    with torch.no_grad():
        for convolution in tap.convolutions:
            convolution.weight.mul_(2)
            convolution.bias.add_(0.5)
    assert ((truth(tap, *given) - before).abs() / before).max() > 20 * TOLERANCE
    check(tap, *given)


def test_frames_of_many_channels(monkeypatch):
    monkeypatch.setattr(gpu, "FEW_CHANNELS", 2)
    check(*problem(4, (3, 3, 3)))


def test_work_in_several_tiles(monkeypatch):
    """Of other shapes, in the same memory."""
    tap, *given = problem(4, (3, 3))
    monkeypatch.setattr(gpu, "SCRATCH_BYTES", 400 * 44)  # 400 cells
    count = []
    whole = gpu.Work.run
    monkeypatch.setattr(gpu.Work, "run", lambda work, k: count.append(k) or whole(work, k))
    check(tap, *given)
    assert len(count) > 6


def test_rows_longer_than_a_block(monkeypatch):
    monkeypatch.setattr(gpu, "ATTEND_COLUMNS", 16)
    monkeypatch.setattr(gpu, "ATTEND_CELLS", 64)
    tap = network(3, (3, 1)).double()
    (x, n), (y, m) = sequences([6, 11]), sequences([37, 16, 17], seed=1)
    assert_close(run(gpu.tap_distances, tap, x, y, n, m), truth(tap, x, y, n, m), TOLERANCE, "all pairs")


@pytest.mark.parametrize("what", ["distances", "hidden", "weights"])
def test_overflow_in_float16_is_nan(what):
    """Also behind a ReLU, which would hide an infinity of the wrong sign."""
    tap, x, y, n, m = problem(4, (3, 3, 3))
    with torch.no_grad():
        if what == "distances":
            x[3] *= 1e5
            tap.convolutions[0].weight.abs_().neg_()
        elif what == "hidden":
            tap.convolutions[0].bias.fill_(1e5)
            tap.convolutions[1].weight.abs_().neg_()
        else:
            tap.convolutions[1].weight.fill_(-1e6)
    found = run(gpu.tap_distances, tap, x, y, n, m)
    assert found[3].isnan().all()
    assert found.isnan().all() == (what != "distances")
    assert truth(tap, x, y, n, m).isfinite().all()


@pytest.mark.parametrize(
    ("cells", "n", "m"), [(400, [1, 2, 3, 9, 40], [5, 5, 8, 20]), (10**6, [3, 4], [5]), (1, [2], [3, 3])]
)
def test_tiles_hold_every_pair_once(cells, n, m):
    n, m, halo = torch.tensor(n), torch.tensor(m), 2
    pairs = []
    for tile in tiles.all_pairs(n, m, halo, cells):
        rows, columns = range(tile.first_x, tile.first_x + tile.rows), range(tile.first_y, tile.first_y + tile.columns)
        assert tile.x_steps == n[rows].max()
        assert tile.y_steps == m[columns].max()
        assert tile.cells(halo) <= cells or tile.pairs == 1
        pairs += [(i, j) for i in rows for j in columns]
    assert sorted(pairs) == [(i, j) for i in range(len(n)) for j in range(len(m))]
    same = torch.arange(3, 9)
    found = tiles.paired(same, same.flip(0), halo, cells)
    assert [k for tile in found for k in range(tile.first_x, tile.first_x + tile.rows)] == list(range(6))
    assert all(tile.cells(halo) <= cells or tile.pairs == 1 for tile in found)


def fuse(monkeypatch, found):
    """Let TAP believe that the kernels give ``found``."""
    monkeypatch.setattr(op, "fused_distances", lambda *given: found)


def test_the_distance_uses_the_kernels_unless_they_overflow(monkeypatch):
    tap, (x, y) = TAP(4, (3, 3)), torch.rand(2, 3, 5, 2)
    plain = tap.matrix(x, y).detach()
    with torch.no_grad():
        fuse(monkeypatch, torch.full((3, 3), 7.0))
        assert (tap.matrix(x, y) == 7).all()
        fuse(monkeypatch, torch.full((3, 3), torch.nan))
        assert torch.equal(tap.matrix(x, y), plain)
        fuse(monkeypatch, None)
        assert torch.equal(tap.matrix(x, y), plain)
    fuse(monkeypatch, torch.full((3, 3), 7.0))
    assert torch.equal(tap.matrix(x, y).detach(), plain)  # gradients are wanted

    class Other(TAP):
        def correction(self, D, time, inside=None):
            return 0 * D

    with torch.no_grad():
        assert (Other(4, (3, 3)).matrix(x, y) < 7).all()


def test_errors_of_the_kernels():
    tap, x, y, n, m = problem(4, (3, 3))
    given = x, y, n, m, [c.weight for c in tap.convolutions], [c.bias for c in tap.convolutions]
    assert op.fused_distances(*given) is None  # not on a GPU
    assert op.fused_pairs(*given) is None


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_the_distance_on_a_gpu():
    tap, x, y, n, m = problem(30)
    expected = truth(tap, x, y, n, m)
    tap, there = tap.float().to(DEVICE), [t.to(DEVICE) for t in (x, y, n, m)]
    weights, biases = tap._weights()
    with torch.no_grad():
        assert_close(tap.all_pairs(*there), expected, TOLERANCE, "all pairs")
        k = torch.tensor([3, 0, 1], device=DEVICE)
        assert_close(tap.paired(*(t[k] for t in there)), expected[k.cpu(), k.cpu()], TOLERANCE, "pairs")
        far = tap.all_pairs(1e7 * there[0], *there[1:])  # float16 overflows, and float32 does not
        assert far.isfinite().all()
        assert op.fused_distances(1e7 * there[0], *there[1:], weights, biases).isnan().all()
    assert op.fused_distances(there[0].double(), there[1].double(), *there[2:], weights, biases) is None
    wide = TAP(129).to(DEVICE)
    assert op.fused_distances(*there, *wide._weights()) is None
