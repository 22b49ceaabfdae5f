"""A stream in pieces gives what search finds in the whole."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise import DTW, Batch
from likewise.search.stretches import StretchSearch
from likewise.search.watch import Watch
from likewise.search.windows import WindowSearch
from tests.search.problems import series


def offline(distance, query, stream, within, exclude, normalize):
    open_ends = distance.rules.open_begin
    searcher = StretchSearch(distance, Batch(stream[None])) if open_ends else None
    searcher = searcher or WindowSearch(distance, Batch(stream[None]), len(query), normalize=normalize)
    found = searcher.search(Batch(query[None]), k=None, within=within, exclude=exclude)
    return sorted(zip(found.starts[0].tolist(), found.ends[0].tolist(), found.distances[0].tolist(), strict=True))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_pieces_equal_the_whole(seed):
    rng = np.random.default_rng(seed)
    channels, steps = int(rng.integers(1, 3)), int(rng.integers(1, 9))
    stream = torch.tensor(series(rng, int(rng.integers(1, 90)), channels), dtype=torch.float32)
    first = int(rng.integers(0, max(1, len(stream) - steps)))
    query = stream[first : first + steps] if rng.random() < 0.5 else torch.randn(steps, channels)
    open_ends = rng.random() < 0.4
    distance = DTW(subsequence=True) if open_ends else DTW(band=int(rng.integers(0, 3)))
    normalize = not open_ends and rng.random() < 0.5
    within, exclude = float(rng.choice([0.0, 1.0, 10.0, 1e9])), float(rng.choice([0.0, 0.5, 1.0]))
    watch = Watch(distance, query, within=within, exclude=exclude, normalize=normalize)
    found, at = [], 0
    while at < len(stream):
        size = int(rng.integers(1, 12))
        found += watch.push(stream[at : at + size])
        at += size
    found += watch.finish()
    got = sorted((one.start, one.end, one.distance) for one in found)
    assert got == offline(distance, query, stream, within, exclude, normalize)


def test_matches_are_reported_as_soon_as_they_are_certain():
    watch = Watch(DTW(band=0), [0.0, 9.0, 0.0, 9.0], within=0.0, exclude=0.5)
    reports = [watch.push([sample]) for sample in [0.0, 9.0, 0.0, 9.0, 5.0, 5.0]]
    assert [len(report) for report in reports] == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("distance", [DTW(band=1), DTW(subsequence=True)], ids=["windows", "open"])
def test_memory_is_bounded(distance):
    torch.manual_seed(0)
    watch = Watch(distance, torch.randn(6), within=1.0)
    for _ in range(200):
        watch.push(torch.randn(20))
    assert len(watch._tail) <= 5
    assert len(watch._pending) < 10
    assert len(watch._kept) < 20


def test_what_cannot_be_watched():
    with pytest.raises(ValueError, match="parallelogram"):
        Watch(DTW(itakura=2.0), [1.0], within=1.0)
    with pytest.raises(ValueError, match="not normalised"):
        Watch(DTW(subsequence=True), [1.0], within=1.0, normalize=True)
    with pytest.raises(ValueError, match="channels"):
        Watch(DTW(), [1.0], within=1.0).push(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="nan"):
        Watch(DTW(), [1.0], within=1.0).push([float("nan")])
