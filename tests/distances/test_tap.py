"""TAP, against the paper's equations on one unpadded pair at a time."""

import pytest
import torch
from torch import nn

from likewise import Batch
from likewise.distances.tap import TAP, TransformerTAP
from likewise.ops import tap as op
from likewise.testing import TOLERANCE, assert_close, check_distance

LENGTHS = [7, 1, 4, 9, 2]


def sequences(lengths=LENGTHS, channels=3, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, channels, dtype=dtype, generator=generator) for n in lengths]


def plain(tap, x, y):
    """A and d of one pair (Lx, C), (Ly, C), as SPEC 3.1 has them."""
    D = (x[:, None] - y[None]).square().sum(-1).sqrt()
    i = torch.arange(1, len(x) + 1, dtype=x.dtype)[:, None] / len(x)
    j = torch.arange(1, len(y) + 1, dtype=x.dtype)[None] / len(y)
    h = torch.stack([D, (i - j).abs()])[None]
    for k, convolution in enumerate(tap.convolutions):
        h = nn.functional.conv2d(
            h.relu() if k else h, convolution.weight, convolution.bias, padding=convolution.kernel_size[0] // 2
        )
    A = (-(D + h[0, 0])).softmax(1)
    return A, (A * D).sum() / len(x)


def make(cls=TAP, *arguments, dtype=torch.float64, **settings):
    torch.manual_seed(0)
    made = cls(*arguments, **settings).to(dtype)
    with torch.no_grad():
        for parameter in made.parameters():  # so that the network says something
            parameter.mul_(2)
    return made


KINDS = [
    lambda **s: make(TAP, 3, (5, 3), **s),
    lambda **s: make(TAP, 3, (3, 3, 3), symmetric=True, **s),
    lambda **s: make(TransformerTAP, 3, 4, weight=5.0, **s),
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_of_a_distance(kind):
    check_distance(kind(dtype=torch.float32), channels=3)


@pytest.mark.parametrize("kernels", [(5, 5, 3), (7, 7, 5), (5, 5, 5, 3), (3,)])
def test_every_pair_is_what_the_equations_give(kernels):
    tap = make(TAP, 4, kernels)
    x, y = sequences(), sequences(LENGTHS[::-1], seed=1)
    expected = torch.stack([torch.stack([plain(tap, a, b)[1] for b in y]) for a in x])
    assert_close(tap.matrix(x, y), expected, TOLERANCE[torch.float64].value, "matrix")
    assert_close(tap(x, y), expected.diag(), TOLERANCE[torch.float64].value, "pairs")
    plan = tap.align(x, y).plan
    for b, (p, q) in enumerate(zip(x, y, strict=True)):
        A, _ = plain(tap, p, q)
        assert_close(plan[b, : len(p), : len(q)], A / len(p), 1e-10, "plan")
        assert plan[b, len(p) :].abs().sum() == 0
        assert plan[b, :, len(q) :].abs().sum() == 0


def test_the_number_of_parameters_is_the_papers():
    assert sum(p.numel() for p in TAP().parameters()) == 24_331
    assert sum(p.numel() for name, p in TAP(64).named_parameters() if "weight" in name) == 106_176


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_the_plan_share_one(kind):
    distance = kind()
    x, y = Batch.from_list(sequences()), Batch.from_list(sequences(seed=1))
    (attention, there), alignment = distance.attention(x, y), distance.align(x, y)
    if not distance.symmetric:
        assert_close(there, distance(x, y), 1e-12, "distances")
    assert (attention >= 0).all()
    rows = attention.sum(2)
    assert_close(rows[x.mask], torch.ones(int(x.lengths.sum()), dtype=rows.dtype), 1e-12, "rows of A")
    assert_close(alignment.plan.sum((1, 2)), torch.ones(len(x), dtype=rows.dtype), 1e-12, "plans")
    assert alignment.warp.shape == rows.shape
    for b, n in enumerate(LENGTHS):
        path = alignment.path(b)
        assert path[0].tolist() == [0, 0]
        assert path[-1].tolist() == [n - 1, n - 1]
        assert set((path[1:] - path[:-1]).flatten().tolist()) <= {0, 1}


def test_without_a_correction_the_order_of_y_does_not_matter():
    tap = make()
    with torch.no_grad():
        for parameter in tap.parameters():
            parameter.zero_()
    x, y = torch.randn(2, 1, 8, 2, dtype=torch.float64)
    shuffled = y[:, torch.randperm(8)]
    assert_close(tap(x, shuffled), tap(x, y), 1e-12, "no correction")
    D = torch.cdist(x, y)
    assert_close(tap(x, y), ((-D).softmax(2) * D).sum(2).mean(1), 1e-12, "softmin")
    assert (make()(x, shuffled) - make()(x, y)).abs() > 1e-6


def test_symmetric_is_the_mean_of_both_ways():
    one, both = make(TAP, 4), make(TAP, 4, symmetric=True)
    x, y = sequences(), sequences([3, 5, 6], seed=1)
    assert_close(both.matrix(x, y), (one.matrix(x, y) + one.matrix(y, x).T) / 2, 1e-12, "matrix")
    assert_close(both.matrix(x), (one.matrix(x) + one.matrix(x).T) / 2, 1e-12, "own")
    assert_close(both(x[:3], y), (one(x[:3], y) + one(y, x[:3])) / 2, 1e-12, "pairs")


def test_gradients_equal_those_of_the_equations():
    tap = make(TAP, 6)
    x, y = [a.requires_grad_() for a in sequences()], sequences(seed=1)
    expected = torch.autograd.grad(
        sum(plain(tap, a, b)[1] * k for k, (a, b) in enumerate(zip(x, y, strict=True), 1)), [*x, *tap.parameters()]
    )
    batch = Batch.from_list([a.detach() for a in x])
    batch.values[~batch.mask] = torch.nan  # padding may hold anything
    values = batch.values.requires_grad_()
    weights = torch.arange(1.0, len(x) + 1, dtype=torch.float64)
    found = torch.autograd.grad((tap(Batch(values, batch.lengths), y) * weights).sum(), [values, *tap.parameters()])
    for b, n in enumerate(LENGTHS):
        assert_close(found[0][b, :n], expected[b], 1e-8, "frames", scale=1)
        assert (found[0][b, n:] == 0).all()
    for f, e in zip(found[1:], expected[len(x) :], strict=True):
        assert_close(f, e, 1e-8, "weights", scale=1)


def test_float32_agrees_with_float64():
    tap = make()
    x, y = sequences([40, 33, 25]), sequences([30, 41, 28], seed=1)
    x[0][5:8] = y[0][5:8]  # frames that are equal
    exact = tap.matrix(x, y)
    single = tap.float().matrix([a.float() for a in x], [b.float() for b in y])
    assert_close(single, exact, TOLERANCE[torch.float32].value, "float32")


def test_equal_frames_have_a_finite_gradient():
    tap = make(dtype=torch.float32)
    x = torch.randn(2, 6, 3).requires_grad_()
    (grad,) = torch.autograd.grad(tap.matrix(x).sum(), x)
    assert grad.isfinite().all()


def test_recomputing_changes_neither_values_nor_gradients(monkeypatch):
    tap, x = make(TAP, 4), torch.randn(6, 5, 3, dtype=torch.float64)
    runs = []
    for most in (0, 1 << 40):
        monkeypatch.setitem(op.KEPT_CELLS, "cpu", most)
        a = x.clone().requires_grad_()
        D = tap.matrix(a)
        runs.append((D.detach(), *torch.autograd.grad((D * torch.arange(6)).sum(), [a, *tap.parameters()])))
    assert all(torch.equal(p, q) for p, q in zip(*runs, strict=True))


@pytest.mark.parametrize(("tile", "cells"), [(1, 1 << 18), (2, 1 << 18), (32, 60), (64, 1 << 30)])
def test_tiles_of_any_size_give_the_same(monkeypatch, tile, cells):
    tap, x, y = make(TAP, 4), sequences(), sequences([8, 3, 3], seed=1)
    expected = tap.matrix(x, y)
    monkeypatch.setitem(op.TILE, "cpu", tile)
    monkeypatch.setitem(op.CELLS_AT_ONCE, "cpu", cells)
    assert_close(tap.matrix(x, y), expected, 1e-12, "tiles")


def test_the_second_derivative_is_right():
    tap = make(TAP, 3, (3, 3))
    x, y = (torch.randn(1, t, 2, dtype=torch.float64, requires_grad=True) for t in (3, 4))
    assert torch.autograd.gradgradcheck(lambda a, b: tap(a, b), (x, y))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernels": (4, 3)}, "TAP: kernels must be odd"),
        ({"kernels": ()}, "TAP: kernels must be odd"),
        ({"width": 0}, "TAP: width must be a whole number of 1 or more, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TAP(**settings)


def test_frames_of_other_channels_are_refused():
    with pytest.raises(ValueError, match="TransformerTAP: expected frames of 3 channels, got 2"):
        TransformerTAP(3)(torch.zeros(1, 4, 2), torch.zeros(1, 4, 2))


def test_a_frame_that_is_not_finite_is_refused():
    x = torch.zeros(2, 4, 1)
    x[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"TAP: x\[1\] holds nan at step 2, channel 0"):
        TAP()(x, x)
    with pytest.raises(ValueError, match=r"TAP: x\[1\] holds nan at step 2, channel 0"):
        TAP().matrix(x)


def test_repr_says_the_settings():
    assert "width=30, kernels=(5, 5, 3)" in repr(TAP())
    assert "weight=50.0" in repr(TransformerTAP(3))
