import pytest
import torch

import likewise as lw
from likewise.search.explanation import Explanation
from likewise.search.segments import segments
from tests.search.test_exhaustive import walks


def bump(at, width=4.0, steps=60, height=1.0):
    return height * torch.exp(-(torch.arange(float(steps)) - at).square() / (2 * width**2))[:, None]


def test_segments_show_a_shift_an_amplitude_and_a_stretch():
    x = bump(15) + bump(42, 3.0)
    y = bump(19) + bump(42, 3.0)
    why = Explanation(lw.DTW(), x, y)
    first = next(s for s in why.segments if s.start <= 13 < s.end)
    second = next(s for s in why.segments if s.start <= 42 < s.end)
    assert first.shift == pytest.approx(4.0, abs=1.0)
    assert second.shift == pytest.approx(0.0, abs=0.5)
    assert len(why.segments) <= 12
    wide = Explanation(lw.DTW(), bump(15, 3.0, 30), bump(30, 6.0, 60))
    middle = next(s for s in wide.segments if s.start <= 15 < s.end)
    assert middle.stretch == pytest.approx(2.0, abs=0.4)
    taller = Explanation(lw.DTW(band=0), x, 2 * x)
    assert [(s.start, s.end) for s in taller.segments] == [(0, 60)]
    assert taller.segments[0].amplitude == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(5))
def test_segments_divide_the_query_and_its_cost(seed):
    x, y = walks(1, 30, 2, seed)[0], walks(1, 37, 2, seed + 50)[0]
    for tolerance in (0.0, 0.1, 1.0):
        why = Explanation(lw.DTW(), x, y, tolerance=tolerance)
        assert why.segments[0].start == 0
        assert why.segments[-1].end == 30
        assert all(a.end == b.start for a, b in zip(why.segments, why.segments[1:], strict=False))
        assert all(a.match_start <= b.match_start for a, b in zip(why.segments, why.segments[1:], strict=False))
        assert sum(s.cost for s in why.segments) == pytest.approx(why.value, rel=1e-5)
    assert len(Explanation(lw.DTW(), x, y, tolerance=1.0).segments) <= len(Explanation(lw.DTW(), x, y).segments)


def test_equal_sequences_are_one_segment():
    x = walks(1, 20)[0]
    why = Explanation(lw.DTW(), x, x)
    (only,) = why.segments
    assert (only.start, only.end, only.shift, only.stretch, only.amplitude, only.cost) == (0, 20, 0.0, 1.0, 1.0, 0.0)
    flat = torch.zeros(5, 1)
    assert Explanation(lw.DTW(), flat, flat).segments[0].amplitude == 1.0
    assert segments(torch.tensor([[0, 0]]), flat[:1], flat[:1], lambda i, j: torch.zeros(len(i)), torch.zeros(1), 0.1)
