"""DTW on the CPU, against aeon, tslearn, dtaidistance and tsdistances in the same run.

    python benchmarks/dtw.py [--repeats 7] [--only band]

Every peer uses as many threads as it can. Values are checked against the plain reference, in float64.
"""

import aeon.distances
import dtaidistance.dtw
import dtaidistance.dtw_ndim
import numpy as np
import torch
import tsdistances
import tslearn.metrics
from measure import Benchmark, check

import likewise as lw
from likewise.ops.dtw import reference
from likewise.ops.rules import Rules
from likewise.testing import TOLERANCE

THREADS = torch.get_num_threads()


def walks(count: int, steps: int, channels: int) -> torch.Tensor:
    """Random walks (count, steps, channels), float64."""
    torch.manual_seed(0)
    return torch.randn(count, steps, channels, dtype=torch.float64).cumsum(1)


def check_pairs(D: torch.Tensor, x: torch.Tensor, rules: Rules) -> None:
    """The peers may share a mistake: some pairs of the float64 matrix are computed by the plain reference."""
    for i in range(0, len(x), 50):
        j = (7 * i + 3) % len(x)
        cost = (x[i][:, None] - x[j][None]).square().sum(-1)
        check(f"pair {i}, {j}", D[i, j], reference.value(cost, rules), TOLERANCE[torch.float64].value)


def all_pairs(benchmark: Benchmark, band: float | None, bars: dict[torch.dtype, float]) -> None:
    x = walks(200, 256, 1)
    distance = lw.DTW(band=band)
    exact = distance.matrix(x)
    check_pairs(exact, x, Rules.of("benchmark", band=band))
    radius = None if band is None else int(band * x.shape[1])
    series, stacked = x[..., 0].numpy(), x.transpose(1, 2).contiguous().numpy()
    peers = {
        "aeon": lambda: aeon.distances.dtw_pairwise_distance(stacked, window=band, n_jobs=THREADS),
        "tslearn": lambda: tslearn.metrics.cdist_dtw(
            x.numpy(), sakoe_chiba_radius=radius, n_jobs=THREADS
        ) ** 2,
        "dtaidistance": lambda: dtaidistance.dtw.distance_matrix_fast(
            series, window=None if radius is None else radius + 1, parallel=True
        ) ** 2,
        "tsdistances": lambda: tsdistances.dtw_distance(series, band=1.0 if band is None else band, par=True),
    }  # fmt: skip
    for dtype, bar in bars.items():
        given = x.to(dtype)
        benchmark.case(
            f"all pairs of 200, length 256{'' if band is None else f', band {band:.0%}'}, {str(dtype)[6:]}",
            lambda given=given: distance.matrix(given).numpy(),
            peers,
            exact,
            tolerance=TOLERANCE[dtype].value,
            bar=bar,
        )


def channels(benchmark: Benchmark) -> None:
    x, y = walks(128, 128, 9).split(64)
    distance = lw.DTW()
    exact = distance.matrix(x, y)
    a, b = (t.transpose(1, 2).contiguous().numpy() for t in (x, y))
    both = torch.cat([x, y]).numpy()
    peers = {
        "aeon": lambda: aeon.distances.dtw_pairwise_distance(a, b, n_jobs=THREADS),
        "tslearn": lambda: tslearn.metrics.cdist_dtw(x.numpy(), y.numpy(), n_jobs=THREADS) ** 2,
        "dtaidistance": lambda: dtaidistance.dtw_ndim.distance_matrix_fast(
            both, block=((0, 64), (64, 128)), parallel=True
        )[:64, 64:] ** 2,
    }  # fmt: skip
    x, y = x.float(), y.float()
    benchmark.case(
        "all pairs 64 x 64, length 128, 9 channels, float32",
        lambda: distance.matrix(x, y).numpy(),
        peers,
        exact,
        tolerance=TOLERANCE[torch.float32].value,
        bar=15,
    )


def path(benchmark: Benchmark, steps: int, bar: float) -> None:
    x, y = walks(2, steps, 1).split(1)
    a, b = x[0, :, 0].numpy(), y[0, :, 0].numpy()

    def total(cells: object) -> float:
        i, j = np.asarray(cells).T
        return ((a[i] - b[j]) ** 2).sum()

    # Paths may differ if costs are equal, so their total costs are compared.
    peers = {
        "aeon": lambda: aeon.distances.dtw_alignment_path(a, b)[0],
        "tslearn": lambda: tslearn.metrics.dtw_path(a, b)[0],
        "dtaidistance": lambda: dtaidistance.dtw.warping_path_fast(a, b),
    }
    distance = lw.DTW()
    for dtype in (torch.float32, torch.float64):
        first, second = x.to(dtype), y.to(dtype)
        benchmark.case(
            f"path of one pair, length {steps:,}, {str(dtype)[6:]}",
            lambda first=first, second=second: distance.align(first, second).path(0),
            peers,
            distance(x, y)[0],
            read=total,
            tolerance=TOLERANCE[dtype].value,
            bar=bar,
        )


def main() -> None:
    benchmark = Benchmark("dtw", __doc__)
    all_pairs(benchmark, None, {torch.float32: 40, torch.float64: 25})
    all_pairs(benchmark, 0.1, {torch.float32: 30})
    channels(benchmark)
    path(benchmark, 1_000, 15)
    path(benchmark, 10_000, 20)
    benchmark.close()


if __name__ == "__main__":
    main()
