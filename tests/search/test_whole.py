"""Whole items with bounds: equal to brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise import DTW, Batch, SoftDTW
from likewise.ops import cpu
from likewise.search.whole import WholeSearch, refusal
from tests.search.problems import differs, draw


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_equals_brute_force(seed):
    assert differs(draw(np.random.default_rng(seed), whole=True), whole=True) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_walks_are_settled_by_bounds(dtype):
    torch.manual_seed(0)
    items, queries = (torch.randn(n, 128, 1, dtype=dtype).cumsum(1) for n in (2000, 20))
    distance = DTW(band=0.1)
    found = WholeSearch(distance, Batch(items)).search(Batch(queries), k=3, within=None)
    D = distance.matrix(queries, items)
    nearest = D.sort(dim=1, stable=True)
    assert torch.equal(found.distances, nearest.values[:, :3])
    assert torch.equal(found.items, nearest.indices[:, :3])
    assert found.stats.compared < 0.1 * found.stats.candidates
    assert found.stats.candidates == D.numel()
    assert 0 < found.stats.cells < 0.1 * D.numel() * 128 * 25


def movements(count: int, steps: int, apart: float = 1.0) -> torch.Tensor:
    """Nine sensors of three movements, with an offset each, around centres that lie so far apart."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(3, 9))
    times = np.arange(steps)[:, None] / rng.uniform(3, 9, (count, 1, 3)) + rng.uniform(0, 6, (count, 1, 3))
    x = np.sin(times) @ mix + rng.normal(size=(count, 1, 9)) + 0.05 * rng.normal(size=(count, steps, 9))
    return torch.tensor(x + apart * rng.integers(2, size=(count, 1, 1)), dtype=torch.float32)


@pytest.mark.parametrize("ground", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize(("count", "steps", "k", "queries", "apart"), [
    (600, 128, 3, 40, 1.0), (37, 67, 50, 40, 1.0), (500, 96, 2, 70, 1.0),
    (500, 128, 2, 40, 1e3),  # where rounded frames are coarse
])  # fmt: skip
def test_sensors_of_one_movement_are_settled_by_their_leading_channels(ground, count, steps, k, queries, apart):
    x = movements(count + queries, steps, apart)
    items, queries = x[queries:].contiguous(), x[:queries].contiguous()
    distance = DTW(band=0.1, ground=ground)
    found = WholeSearch(distance, Batch(items)).search(Batch(queries), k=k, within=None)
    nearest = distance.matrix(queries, items).sort(dim=1, stable=True)
    assert torch.equal(found.distances, nearest.values[:, :k])
    assert torch.equal(found.items, nearest.indices[:, :k])
    assert "leading channels" in found.stats.killed
    if count > k:
        ruled_out = found.stats.killed["leading channels"]
        assert (ruled_out if apart == 1 else 2 * ruled_out) > found.stats.compared


def test_other_lengths_than_those_of_turned_items():
    items = movements(300, 80)
    queries = items[:5] + 0.1
    lengths = torch.tensor([80, 79, 40, 3, 1])
    queries = queries.masked_fill((torch.arange(80) >= lengths[:, None])[..., None], torch.nan)
    distance = DTW(band=0.1)
    found = WholeSearch(distance, Batch(items)).search(Batch(queries, lengths), k=2, within=None)
    nearest = distance.matrix(Batch(queries, lengths), Batch(items)).sort(dim=1, stable=True)
    assert torch.equal(found.distances, nearest.values[:, :2])
    assert torch.equal(found.items, nearest.indices[:, :2])


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_finds_the_same(threads):
    torch.manual_seed(1)
    items = torch.randint(0, 3, (3000, 12, 1)).float()  # full of ties
    found = WholeSearch(DTW(band=1), Batch(items)).search(Batch(items[:2]), k=50, within=None, threads=threads)
    nearest = DTW(band=1).matrix(items[:2], items).sort(dim=1, stable=True)
    assert torch.equal(found.items, nearest.indices[:, :50])


def test_leave_one_out():
    torch.manual_seed(2)
    items = Batch(torch.randn(40, 10, 2))
    found = WholeSearch(DTW(band=2), items).search(items, k=1, within=None, skip=torch.arange(40))
    D = DTW(band=2).matrix(items).fill_diagonal_(torch.inf)
    assert torch.equal(found.items[:, 0], D.argmin(1))


def test_nan_padding_changes_nothing():
    values = torch.randn(9, 7, 1)
    lengths = torch.tensor([7, 3, 5, 1, 7, 6, 2, 4, 7])
    dirty = values.masked_fill((torch.arange(7) >= lengths[:, None])[..., None], torch.nan)
    clean, found = (
        WholeSearch(DTW(band=1), Batch(x, lengths)).search(Batch(x, lengths), k=4, within=None) for x in (values, dirty)
    )
    assert torch.equal(clean.distances, found.distances)
    assert torch.equal(clean.items, found.items)


@pytest.mark.parametrize("where", ["items", "queries"])
def test_nan_is_refused(where):
    good, bad = torch.zeros(2, 3, 1), torch.tensor([[[0.0], [torch.nan], [1.0]]])
    with pytest.raises(ValueError, match="nan"):
        WholeSearch(DTW(), Batch(bad if where == "items" else good)).search(
            Batch(bad if where == "queries" else good), k=1, within=None
        )


def test_overflow_is_refused():
    x = torch.full((2, 3, 1), 1e30)
    with pytest.raises(ValueError, match="overflow"):
        WholeSearch(DTW(), Batch(x)).search(Batch(-x), k=1, within=None)


def test_huge_numbers_are_compared_without_bounds():
    torch.manual_seed(3)
    x = torch.randn(20, 8, 1, dtype=torch.float64) * 1e100
    found = WholeSearch(DTW(band=1), Batch(x)).search(Batch(x[:3]), k=2, within=None)
    assert torch.equal(found.items, DTW(band=1).matrix(x[:3], x).sort(dim=1, stable=True).indices[:, :2])
    assert found.stats.compared == found.stats.candidates


def test_no_items_and_no_queries():
    items = Batch(torch.randn(4, 5, 1))
    none = items[:0]
    assert WholeSearch(DTW(), none).search(items, k=1, within=None).counts.tolist() == [0] * 4
    assert len(WholeSearch(DTW(), items).search(none, k=1, within=None).counts) == 0


@pytest.mark.parametrize(
    ("distance", "reason"),
    [
        (DTW(itakura=2.0), "parallelogram"),
        (DTW(open_end=True), "open"),
        (DTW(normalize="steps"), "steps"),
        (DTW(ground="cosine"), "ground"),
        (SoftDTW(), "SoftDTW"),
    ],
    ids=["itakura", "open", "steps", "cosine", "soft"],
)
def test_what_bounds_do_not_apply_to(distance, reason):
    assert reason in refusal(distance)


@pytest.mark.parametrize("isa", cpu.native.instruction_sets())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("steps", "channels"), [(128, 3), (130, 1), (97, 2)])
def test_dtw_in_stages_equals_brute_force(dtype, steps, channels, isa, monkeypatch):
    monkeypatch.setattr(cpu, "INSTRUCTION_SET", isa)
    drawn = torch.Generator().manual_seed(steps)
    times = torch.linspace(0, 6, steps)[None, :, None]
    count = 700
    phase, speed = 2 * torch.rand(count, 1, channels, generator=drawn), 2 + torch.rand(count, 1, 1, generator=drawn)
    items = torch.sin(times * speed + phase) + 0.05 * torch.randn(count, steps, channels, generator=drawn)
    items[300:400] = items[:100]  # ties
    items = items.to(dtype)
    distance = DTW(band=0.1)
    found = WholeSearch(distance, Batch(items)).search(Batch(items[:40]), k=4, within=None, skip=torch.arange(40))
    D = distance.matrix(items[:40], items)
    D[torch.arange(40), torch.arange(40)] = torch.inf
    nearest = D.sort(dim=1, stable=True)
    assert torch.equal(found.distances, nearest.values[:, :4])
    assert torch.equal(found.items, nearest.indices[:, :4])
    assert found.stats.compared > 40 * 4 * 16  # enough for stages
    radius = int(0.1 * steps)
    assert found.stats.cells < 0.9 * found.stats.compared * steps * (2 * radius + 1)


def test_long_items_are_compared_in_float64_as_in_the_matrix():
    items = Batch.from_list([torch.randn(steps, 1).cumsum(0) for steps in (2100, 2049, 2300, 2200)])
    distance = DTW(band=0.05)
    found = WholeSearch(distance, items).search(items, k=4, within=None)
    expected = distance.matrix(items).sort(dim=1)
    assert torch.equal(found.items, expected.indices)
    assert torch.equal(found.distances, expected.values)
    assert found.distances.dtype == torch.float32
