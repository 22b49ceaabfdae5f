"""Elastic distances on the CPU, against aeon, tsdistances, dtaidistance and tslearn in the same run.

    python benchmarks/elastic.py [--repeats 5] [--only MSM] [--whole]

All pairs of 200 series of length 256, in float32. Every peer runs on as many threads as it can, in float64, and takes
seconds: it compares the first 50 series only, 1,225 of the 19,900 pairs, and its time is scaled up; with --whole, all.
Each distance is first checked against a plain recurrence in float64. aeon and tsdistances charge more than the paper
for gaps at the beginning of ERP: a peer whose values are off by more than 1e-3 of the largest is not timed. aeon's
ShapeDTW is wrong where a path begins along a border, so that for it all series begin with the same 96 steps.
"""

from collections.abc import Callable

import aeon.distances
import dtaidistance.dtw
import numpy as np
import torch
import tsdistances
from measure import Benchmark, check

import likewise as lw
from likewise.distances import Elastic
from likewise.ops.elastic import reference
from likewise.testing import TOLERANCE

THREADS = torch.get_num_threads()
COUNT, STEPS, PEERS_COUNT = 200, 256, 50


def walks(alike: int = 0) -> torch.Tensor:
    """Random walks (200, 256, 1), float64, of which the first steps may be alike."""
    torch.manual_seed(0)
    steps = torch.randn(COUNT, STEPS, 1, dtype=torch.float64)
    steps[:, :alike] = steps[:1, :alike]
    return steps.cumsum(1)


def check_pairs(distance: lw.Distance, x: torch.Tensor) -> None:
    """The peers may share a mistake: some pairs of 40 steps are computed by the plain recurrence."""
    if not isinstance(distance, Elastic):
        return
    x = x[:3, -40:]  # series may begin alike
    D = distance.matrix(x)
    sides = [distance.side(item[None], None) for item in x]
    steps = torch.tensor(sides[0].frames.shape[1])
    weights = distance.weights(int(steps), x)
    offset, factor = distance.scale(steps, steps)
    for i, j in ((0, 1), (1, 2)):
        value = reference.value(sides[i], sides[j], distance.moves(), distance.rules, weights)
        check(f"pair {i}, {j}", D[i, j], offset + factor * value, TOLERANCE[torch.float64].value)


def peers(x: torch.Tensor) -> dict[str, tuple[lw.Distance, dict[str, Callable[[], np.ndarray]]]]:
    """Each distance, and the peers that compute the same."""
    series, stacked = x[..., 0].numpy(), x.transpose(1, 2).contiguous().numpy()

    def of_aeon(name: str, **options: object) -> Callable[[], np.ndarray]:
        pairwise = getattr(aeon.distances, f"{name}_pairwise_distance")
        return lambda: pairwise(stacked, n_jobs=THREADS, **options)

    def of_tsdistances(name: str, **options: object) -> Callable[[], np.ndarray]:
        compute = getattr(tsdistances, f"{name}_distance")
        return lambda: compute(series, par=True, **options)

    def both(name: str, ours: dict[str, object], theirs: dict[str, object]) -> dict[str, Callable[[], np.ndarray]]:
        return {"aeon": of_aeon(name, **ours), "tsdistances": of_tsdistances(name, **theirs)}

    return {
        "MSM": (lw.MSM(), both("msm", {"c": 1.0}, {})),
        "TWE": (lw.TWE(), both("twe", {"nu": 0.001, "lmbda": 1.0}, {"stifness": 0.001, "penalty": 1.0})),
        "ADTW": (
            lw.ADTW(),
            both("adtw", {"warp_penalty": 1.0}, {"warp_penalty": 1.0})
            | {"dtaidistance": lambda: dtaidistance.dtw.distance_matrix_fast(series, penalty=1.0, parallel=True) ** 2},
        ),
        "WDTW": (lw.WDTW(), both("wdtw", {"g": 0.05}, {"g": 0.05})),
        "ERP": (lw.ERP(), both("erp", {"g": 0.0}, {"gap_penalty": 0.0})),
        "LCSS": (lw.LCSS(), both("lcss", {"epsilon": 1.0}, {"epsilon": 1.0})),
        "EDR": (lw.EDR(free_start=True), {"aeon": of_aeon("edr")}),
        "DDTW": (lw.DDTW(), both("ddtw", {}, {})),
        "WDDTW": (lw.WDDTW(), both("wddtw", {"g": 0.05}, {"g": 0.05})),
        "ShapeDTW": (lw.ShapeDTW(), {"aeon": of_aeon("shape_dtw", reach=15)}),
        "SBD": (lw.SBD(), {"aeon": of_aeon("sbd"), "tsdistances": of_tsdistances("sb")}),
        "MSM, dependent": (lw.MSM(independent=False), {"aeon": of_aeon("msm", c=1.0, independent=False)}),
    }


def rotations(benchmark: Benchmark) -> None:
    """DTW under a rotation: 20 x 20 series of length 256 with 3 channels."""
    torch.manual_seed(0)
    x, y = torch.randn(40, STEPS, 3, dtype=torch.float64).cumsum(1).split(20)
    a, b = (t.transpose(1, 2).contiguous().numpy() for t in (x, y))
    distance, given = lw.DTWGlobalInvariance(), (x.float(), y.float())
    benchmark.case(
        f"DTWGlobalInvariance, all pairs 20 x 20, length {STEPS}, 3 channels, float32",
        lambda: distance.matrix(*given).numpy(),
        {"aeon": lambda: aeon.distances.dtw_gi_pairwise_distance(a, b, n_jobs=THREADS)},
        distance.matrix(x, y),
        tolerance=TOLERANCE[torch.float32].value,
        bar=25,
    )


def main() -> None:
    benchmark = Benchmark("elastic", __doc__, flags={"whole": "peers compare all series"})
    few = COUNT if benchmark.options.whole else PEERS_COUNT
    share = few * (few - 1) / (COUNT * (COUNT - 1))
    for name in peers(walks()[:few]):
        if benchmark.options.only not in name:
            continue
        x = walks(alike=96 if name == "ShapeDTW" else 0)
        given, (distance, others) = x.float(), peers(x[:few])[name]
        exact = distance.matrix(x)
        check_pairs(distance, x)
        benchmark.case(
            f"{name}, all pairs of {COUNT}, length {STEPS}, float32",
            lambda distance=distance, given=given: distance.matrix(given).numpy(),
            others,
            exact,
            tolerance=TOLERANCE[torch.float32].value,
            bar=25,
            part=(share, exact[:few, :few]),
        )
    rotations(benchmark)
    benchmark.close()


if __name__ == "__main__":
    main()
