"""Bounds and open-ended matches against their plain reference, on every instruction set."""

import numpy as np
import pytest
import torch

from likewise.ops import cpu
from likewise.ops import search as op
from likewise.ops.rules import Rules, Window
from likewise.ops.search import reference
from likewise.ops.search.prepared import ordered
from likewise.testing import TOLERANCE

SETS = cpu.native.instruction_sets()


@pytest.fixture(params=SETS)
def instruction_set(request, monkeypatch):
    monkeypatch.setattr(cpu, "INSTRUCTION_SET", request.param)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("steps", [1, 2, 17, 33, 20_000])
@pytest.mark.parametrize("radius", [0, 1, 5, 40])
def test_envelopes(steps, radius):
    torch.manual_seed(0)
    x = torch.randn(2, steps, 2)
    found = op.prepare(x, None, Window(1, float(radius)), length=1 + radius)
    for i in range(2):
        for c in range(2):
            upper, lower = reference.envelope(x[i, :, c].numpy(), radius, radius, steps)
            np.testing.assert_array_equal(found.upper[i, c, :steps], upper)
            np.testing.assert_array_equal(found.lower[i, c, :steps], lower)


@pytest.mark.parametrize("n", [1, 2, 9, 16, 33])
@pytest.mark.parametrize("m", [1, 3, 16, 40])
@pytest.mark.parametrize("radius", [0, 2, 50])
def test_envelopes_of_unequal_lengths_hold_every_partner(n, m, radius):
    """Each column's box holds all rows that the window pairs it with: the bound is one."""
    torch.manual_seed(1)
    query, window = torch.randn(1, n, 1), Window(1, float(radius))
    items = op.prepare(torch.randn(1, max(m, n) + 3, 1), None, window, length=m)
    parts = ordered(query, items, False)
    for i in range(n):
        first, last = window.row(n, m, i)
        ends = {0: 0, m - 1: n - 1} if m > 1 else {}
        for j in range(first, last + 1):
            if j in ends and ends[j] != i:
                continue  # there, only the first and the last row count
            assert parts["query_lower"][0, 0, j] <= query[0, i, 0] <= parts["query_upper"][0, 0, j]


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalize(dtype):
    torch.manual_seed(2)
    x = torch.randn(7, 19, 3, dtype=dtype) * torch.tensor([1.0, 1e-3, 1e3], dtype=dtype) + 5
    x[3, :, 1] = 0.1
    found = op.normalize(x)
    np.testing.assert_allclose(found, reference.normalize(x.numpy()), rtol=0, atol=TOLERANCE[dtype].value)
    assert (found[3, :, 1] == 0).all()


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stretches(dtype, root):
    torch.manual_seed(3)
    query, items = torch.randn(1, 6, 2, dtype=dtype), torch.randn(3, 25, 2, dtype=dtype)
    lengths = torch.tensor([25, 9, 1])
    values, starts = op.stretches(query, items, lengths, root=root)
    for i, n in enumerate(lengths.tolist()):
        cost = (query[0].double()[:, None] - items[i, :n].double()).square().sum(-1)
        value, start = reference.stretches((cost.sqrt() if root else cost).numpy())
        np.testing.assert_allclose(values[i, :n], value, rtol=TOLERANCE[dtype].value)
        assert starts[i, :n].tolist() == start.tolist()


def test_a_stream_in_pieces_equals_the_whole():
    torch.manual_seed(4)
    query, x = torch.randn(1, 5, 1), torch.randn(50, 1)
    whole = op.stretches(query, x[None])
    values, starts = torch.empty(50), torch.empty(50, dtype=torch.int64)
    stream, at = op.Stream(query), 0
    for size in (1, 7, 0, 30, 12):
        stream.push(x[at : at + size], values[at : at + size], starts[at : at + size])
        at += size
    assert torch.equal(values, whole[0][0])
    assert torch.equal(starts, whole[1][0])


def test_keogh_is_a_bound():
    torch.manual_seed(5)
    from likewise import DTW

    x, y = torch.randn(2, 1, 30, 2, dtype=torch.float64)
    for radius in (0, 3, 30):
        both = [reference.envelope(x[0, :, c].numpy(), radius, radius, 30) for c in range(2)]
        upper, lower = (np.stack([pair[i] for pair in both], 1) for i in range(2))
        for root in (False, True):
            value = float(DTW(band=radius, ground="euclidean" if root else "sqeuclidean")(x, y))
            assert reference.keogh(y[0].numpy(), upper, lower, root=root) <= value


def test_what_is_refused():
    assert op.refusal(Rules.of("t", band=0.1)) is None
    assert "parallelogram" in str(op.refusal(Rules.of("t", itakura=2.0)))
    with pytest.raises(ValueError, match="float32 or float64"):
        op.prepare(torch.zeros(1, 3, 1, dtype=torch.float16), None, Window())
