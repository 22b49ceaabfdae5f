"""Windows on a GPU, in Triton's interpreter or on a card: the same hits as on the CPU."""

import os

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from likewise import DTW, Batch, Index
from likewise.ops.search import gpu, normalize, reference
from likewise.search.device_windows import DeviceWindowSearch, _sliding, refusal
from likewise.search.normalization import znormalize
from likewise.search.windows import WindowSearch
from tests.search.problems import draw

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what lies behind the end, in the interpreter


def search(problem, kind, device="cpu"):
    items = Batch(problem.items.values.to(device), problem.items.lengths)
    queries = Batch(problem.queries.values.to(device), problem.queries.lengths)
    searcher = kind(problem.distance, items, problem.length, normalize=problem.normalize)
    return searcher.search(queries, k=problem.k, within=problem.within, exclude=problem.exclude, skip=problem.skip)


def same(found, expected, what):
    """Equal hits; where two distances differ by rounding only, either may come first."""
    assert torch.equal(found.counts, expected.counts), what
    finite = expected.distances.isfinite()
    assert torch.equal(found.distances.isfinite(), finite), what
    assert torch.allclose(found.distances[finite], expected.distances[finite], rtol=1e-5, atol=1e-6), what
    for q in range(len(expected.counts)):
        values = expected.distances[q, : int(expected.counts[q])].tolist()
        for i, value in enumerate(values):
            alone = all(j == i or abs(other - value) > 1e-5 * abs(value) + 1e-6 for j, other in enumerate(values))
            if alone and i + 1 < len(values):
                assert found.items[q, i] == expected.items[q, i], what
                assert found.starts[q, i] == expected.starts[q, i], what


@pytest.mark.parametrize("seed", range(1, 61, 2))
def test_random_problems_equal_the_cpu(seed):
    problem = draw(np.random.default_rng(seed), whole=False)
    if problem.stretch is not None:
        pytest.skip("windows of several lengths are searched on the CPU")
    found, expected = search(problem, DeviceWindowSearch, DEVICE), search(problem, WindowSearch)
    same(found, expected, problem)
    assert found.stats.candidates == expected.stats.candidates
    assert found.stats.compared >= 0
    assert min(found.stats.killed.values()) >= 0


def test_windows_are_normalised_as_on_the_cpu():
    torch.manual_seed(0)
    x = torch.randn(2, 40, 3).cumsum(1)
    x[0, 5:20, 1] = 0.1  # a constant channel
    item, start = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 6, 3, 30])
    found = gpu.windows(x.to(DEVICE), item.to(DEVICE), start.to(DEVICE), 10, normalize=True).cpu()
    expected = normalize(torch.stack([x[i, s : s + 10] for i, s in zip(item, start, strict=True)]))
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert (found[1, :, 1] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_are_keoghs(dtype):
    rng = np.random.default_rng(0)
    x, q = torch.from_numpy(rng.normal(size=(1, 70, 2)).cumsum(1) + 100).to(dtype), rng.normal(size=(3, 12, 2))
    blocks = gpu.blocks_of(x.to(DEVICE), torch.tensor([70]), 12, normalize=True)
    upper, lower, radius = q + 0.3, q - 0.2, 2
    padded = [np.zeros((12, 2, gpu.QUERIES), np.float32) for _ in range(3)]
    for to, part in zip(padded, (upper, lower, q), strict=True):
        to[:, :, :3] = part.transpose(1, 2, 0)
    parts = [torch.from_numpy(part).to(DEVICE) for part in padded]
    above, below = _sliding(Batch(x.to(DEVICE)), radius)
    envelopes = gpu.Envelopes(*parts, above, below)
    one = gpu.Envelopes(*parts, above[:0], below[:0])
    windows = reference.normalize(x[0].unfold(0, 12, 1).mT.numpy())
    expected = np.array([[reference.keogh(w, upper[k], lower[k]) for w in windows] for k in range(3)])
    query, block = torch.arange(3, device=DEVICE), torch.zeros(3, dtype=torch.int64, device=DEVICE)
    found = gpu.pair_bounds(blocks, query, block, one, root=False).cpu().numpy()
    assert np.allclose(found[:, : len(windows)], expected, rtol=1e-3, atol=1e-3)
    assert np.isinf(found[:, len(windows) :]).all()
    least, place = gpu.block_bounds(blocks, slice(None), one, root=False)
    assert torch.equal(least[:3, 0].cpu(), torch.from_numpy(found.min(1)))
    assert torch.equal(place[:3, 0].cpu(), torch.from_numpy(found.argmin(1)))
    both = gpu.pair_bounds(blocks, query, block, envelopes, root=False).cpu().numpy()
    wide = np.stack([x[0, max(0, j - 2) : j + 3].numpy().max(0) for j in range(70)])
    deep = np.stack([x[0, max(0, j - 2) : j + 3].numpy().min(0) for j in range(70)])
    for k in range(3):
        for s in (0, 20, 58):
            raw = x[0, s : s + 12].numpy()
            mean, deviation = raw.mean(0), raw.std(0)
            up, low = (wide[s : s + 12] - mean) / deviation, (deep[s : s + 12] - mean) / deviation
            up[[0, -1]], low[[0, -1]] = windows[s][[0, -1]], windows[s][[0, -1]]
            assert np.isclose(both[k, s], max(expected[k, s], reference.keogh(q[k], up, low)), rtol=1e-3, atol=1e-3)


def test_padding_may_hold_anything():
    torch.manual_seed(1)
    x = torch.randn(2, 50, 1)
    lengths = torch.tensor([50, 30])
    clean, dirty = x.clone(), x.clone()
    clean[1, 30:], dirty[1, 30:] = 0, torch.nan
    query = Batch(torch.randn(1, 9, 1).to(DEVICE))
    results = [
        DeviceWindowSearch(DTW(band=2), Batch(part.to(DEVICE), lengths), 9, normalize=True).search(
            query, k=4, within=None, exclude=0.5
        )
        for part in (clean, dirty)
    ]
    assert torch.equal(results[0].distances, results[1].distances)
    assert torch.equal(results[0].starts, results[1].starts)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("size", [1e13, 1e100])
def test_huge_numbers_are_compared_without_bounds_or_refused(normalize, size):
    torch.manual_seed(3)
    x = torch.randn(1, 90, 1, dtype=torch.float64) * size
    query = Batch(torch.randn(2, 8, 1, dtype=torch.float64) * size)
    if DEVICE == "cuda" and size > 1e15 and not normalize:  # too large for DTW on a GPU
        with pytest.raises(ValueError, match="the value of a pair is beyond"):
            DeviceWindowSearch(DTW(band=2), Batch(x.to(DEVICE)), 8).search(
                Batch(query.values.to(DEVICE)), k=3, within=None, exclude=0.5
            )
        return
    found, expected = (
        kind(DTW(band=2), Batch(x.to(device)), 8, normalize=normalize).search(
            Batch(query.values.to(device)), k=3, within=None, exclude=0.5
        )
        for kind, device in ((DeviceWindowSearch, DEVICE), (WindowSearch, "cpu"))
    )
    same(found, expected, "huge")
    if size > 1e15:  # the bounds could overflow
        assert found.stats.compared >= found.stats.candidates


def test_several_passes_find_the_same(monkeypatch):
    torch.manual_seed(2)
    x, query = torch.randn(1, 1500, 1).cumsum(1).to(DEVICE), Batch(torch.randn(3, 20, 1).cumsum(1).to(DEVICE))
    searcher = DeviceWindowSearch(DTW(band=3), Batch(x), 20, normalize=True)
    once = searcher.search(query, k=5, within=None, exclude=0.5)
    monkeypatch.setattr("likewise.search.device_windows.PLACES_AT_ONCE", 1)
    monkeypatch.setattr("likewise.search.device_windows.BOUNDS_AT_ONCE", 1)
    monkeypatch.setattr("likewise.search.device_windows.NUMBERS_AT_ONCE", 1000)
    again = searcher.search(query, k=5, within=None, exclude=0.5)
    assert torch.allclose(once.distances, again.distances, rtol=1e-6)
    assert torch.equal(once.starts, again.starts)


def test_when_windows_stay_on_the_card():
    assert refusal(DTW(band=3), Batch(torch.zeros(1, 9, 1))) == "the items are not on a GPU"
    if DEVICE == "cuda":
        x = torch.randn(1, 600, 1, device="cuda")
        index = Index(DTW(band=3), x, length=20, normalize="window")
        assert "on the device" in index.search(x[:, 30:50]).stats.method
        assert torch.allclose(znormalize(x), znormalize(x.cpu()).cuda(), rtol=1e-5, atol=1e-6)
