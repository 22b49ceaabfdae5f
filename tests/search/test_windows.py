"""Every window with bounds: equal to brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likewise import DTW, Batch
from likewise.ops.search import normalize
from likewise.search.windows import WindowSearch
from tests.search.problems import differs, draw


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_equals_brute_force(seed):
    assert differs(draw(np.random.default_rng(seed), whole=False), whole=False) is None


def waves(steps: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    t = torch.arange(steps)
    return (torch.sin(t / 11) * torch.sin(t / 170) + 0.1 * torch.randn(steps)).to(dtype)[None, :, None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normal", [False, True])
def test_a_long_series(dtype, normal):
    x, m = waves(40_000, dtype), 64
    distance = DTW(band=4)
    query = x[:, 20_000 : 20_000 + m] + 0.05 * torch.randn(1, m, 1, dtype=dtype)
    searcher = WindowSearch(distance, Batch(x), m, normalize=normal)
    found = searcher.search(Batch(query), k=5, within=None, exclude=0.5)
    windows = x[0].unfold(0, m, 1).mT.contiguous()
    D = distance.matrix(*((normalize(query), normalize(windows)) if normal else (query, windows)))[0]
    best = int(D.argmin())
    assert (float(found.distances[0, 0]), int(found.starts[0, 0])) == (float(D[best]), best)
    assert torch.equal(found.distances[0], D[found.starts[0]])
    gaps = (found.starts[0][:, None] - found.starts[0]).abs() + 1000 * torch.eye(5)
    assert gaps.min() >= m // 2
    assert found.stats.compared < 0.1 * found.stats.candidates


def test_offsets_and_spikes_lose_no_digit():
    x = waves(5_000).clone()
    x[0, 1000:2000] += 1e4  # a shift of level
    x[0, 3000] = 1e6  # a spike
    x[0, 4000:4200] = 7.0  # constant
    for query in (x[:, 1200:1232], x[:, 4100:4132], x[:, 2990:3022]):
        found = WindowSearch(DTW(band=2), Batch(x), 32, normalize=True).search(
            Batch(query), k=3, within=None, exclude=1.0
        )
        D = DTW(band=2).matrix(normalize(query), normalize(x[0].unfold(0, 32, 1).mT.contiguous()))[0]
        assert float(found.distances[0, 0]) == float(D.min())
        assert int(found.starts[0, 0]) == int(D.argmin())


def test_memory_of_an_index_is_at_most_four_times_its_samples():
    x = waves(10_000)
    prepared = WindowSearch(DTW(band=4), Batch(x), 64).prepared(64)
    tensors = (prepared.values, prepared.plane, prepared.upper, prepared.lower)
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors) <= 4.05 * 4 * x.numel()


def test_windows_longer_than_the_series():
    found = WindowSearch(DTW(), Batch(torch.randn(2, 5, 1))).search(
        Batch(torch.randn(1, 9, 1)), k=3, within=None, exclude=0.5
    )
    assert found.counts.tolist() == [0]
    assert found.distances.shape == (1, 0)


def test_nan_is_refused():
    x = torch.zeros(1, 9, 1)
    bad = x.clone()
    bad[0, 4] = torch.nan
    with pytest.raises(ValueError, match="nan"):
        WindowSearch(DTW(), Batch(bad), 3)
    with pytest.raises(ValueError, match="nan"):
        WindowSearch(DTW(), Batch(x), 9, normalize=True).search(Batch(bad), k=1, within=None, exclude=0.0)
