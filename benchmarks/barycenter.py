"""Averages on the CPU, against tslearn and aeon in the same run, from the same start.

    python benchmarks/barycenter.py [--repeats 5] [--only DBA] [--others]

A peer is timed if our average costs no more than its own: costs are weighted mean distances, computed by the same
function for all, in float64. The peers run on one thread, where they are fastest at this size.

Under MSM, one iteration of L-BFGS is compared with KASBA. That number was chosen on the data of this
benchmark. Other data, real and synthetic, confirm it: with --others, the costs on those are printed, and nothing
is timed.
"""

import warnings
from collections.abc import Callable
from typing import Any

import aeon.datasets
import numpy as np
import torch
from measure import Benchmark

import likewise as lw
from likewise.clusters import LBFGS, MajorizeMinimize

with warnings.catch_warnings(action="ignore"):  # tslearn warns that it could read more kinds of files
    from tslearn.barycenters import dtw_barycenter_averaging, softdtw_barycenter
from aeon.clustering.averaging import kasba_average

COUNT, STEPS = 100, 128


def shapes() -> torch.Tensor:
    """One shape at other speeds with noise, (COUNT, STEPS, 1), float64."""
    generator = torch.Generator().manual_seed(0)
    speed = torch.rand(COUNT, 1, generator=generator, dtype=torch.float64) + 0.6
    values = torch.sin(9 * torch.linspace(0, 1, STEPS, dtype=torch.float64) ** speed)
    return (values + 0.2 * torch.randn(COUNT, STEPS, generator=generator, dtype=torch.float64))[..., None]


def case(
    benchmark: Benchmark,
    name: str,
    distance: lw.Distance,
    ours: Callable[[], Any],
    peers: dict[str, Callable[[], Any]],
    bar: float,
) -> None:
    """Check that our cost is not above any peer's, then time all."""
    x = shapes()

    def cost(z: Any) -> float:
        values = torch.as_tensor(np.asarray(z), dtype=torch.float64).reshape(1, -1, 1)
        return distance.matrix(values, x).mean().item()

    if benchmark.options.only not in name:
        return
    mine = cost(ours())
    theirs = {peer: cost(run()) for peer, run in peers.items()}
    text = ", ".join(f"{peer} {value:.6g}" for peer, value in theirs.items())
    print(f"{name}: cost {mine:.6g}, {text}")
    worse = {peer: value for peer, value in theirs.items() if mine > value + 1e-6 * abs(value)}
    if worse:
        raise SystemExit(f"{name}: cost {mine} is above {worse}: no time is printed")
    benchmark.case(name, ours, peers, 1.0, tolerance=1e-9, bar=bar, read=lambda _: 1.0)
    if benchmark.rows:
        benchmark.rows[-1] |= {"cost": mine, "peers_cost": theirs}


def others() -> dict[str, np.ndarray]:
    """Other series (N, T) of one class each, of the sets that come with aeon, and two kinds of synthetic ones."""
    found = {}
    for name in ("gunpoint", "italy_power_demand", "osuleaf", "arrow_head"):
        items, labels = getattr(aeon.datasets, f"load_{name}")()
        for label in np.unique(labels)[:2]:
            found[f"{name}, class {label}"] = items[labels == label][:60, 0, :200]
    generator = np.random.default_rng(5)
    found["walks"] = generator.standard_normal((60, 100)).cumsum(1)
    place = 0.3 + 0.4 * generator.random((60, 1))
    bumps = np.exp(-(((np.linspace(0, 1, 90) - place) / 0.08) ** 2))
    found["bumps"] = bumps + 0.1 * generator.standard_normal((60, 90))
    return found


def compare_on_others() -> None:
    """Costs under MSM of KASBA's averages and of ours, by the number of iterations."""
    for name, series in others().items():
        x = torch.from_numpy(series)[..., None]
        theirs = torch.from_numpy(kasba_average(series[:, None], distance="msm", random_state=0).T[None].copy())
        costs = [lw.barycenter(lw.MSM(), x, solver=LBFGS(max_iter=count)).cost for count in (1, 2, 50)]
        text = ", ".join(f"{count} iterations {cost:.4f}" for count, cost in zip((1, 2, 50), costs, strict=True))
        print(f"{name}: KASBA {lw.MSM().matrix(theirs, x).mean():.4f}, {text}")


def main() -> None:
    flags = {"others": "print costs under MSM on other data, and time nothing"}
    benchmark = Benchmark("barycenter", __doc__ or "", flags)
    if benchmark.options.others:
        return compare_on_others()
    x = shapes()
    single, series, stacked = x.float(), x.numpy(), x.transpose(1, 2).contiguous().numpy()
    ten = MajorizeMinimize(max_iter=10, tol=0)
    case(
        benchmark,
        f"DBA, 10 iterations, {COUNT} series of {STEPS}",
        lw.DTW(),
        lambda: lw.barycenter(lw.DTW(), single, solver=ten).sequence.numpy(),
        {"tslearn": lambda: dtw_barycenter_averaging(series, max_iter=10, tol=0)},
        20,
    )
    case(
        benchmark,
        f"soft-DTW, gamma 1, {COUNT} series of {STEPS}",
        lw.SoftDTW(1.0),
        lambda: lw.barycenter(lw.SoftDTW(1.0), single, solver=LBFGS(tol=1e-4)).sequence.numpy(),
        {"tslearn": lambda: softdtw_barycenter(series, gamma=1.0)},
        20,
    )
    case(
        benchmark,
        f"DTW on subsets against kasba, {COUNT} series of {STEPS}",
        lw.DTW(),
        lambda: lw.barycenter(lw.DTW(), single, solver=MajorizeMinimize(4, subsets=20)).sequence.numpy(),
        {"aeon": lambda: kasba_average(stacked, distance="dtw", random_state=0).T},
        10,
    )
    if hasattr(lw, "MSM"):
        case(
            benchmark,
            f"MSM against kasba, {COUNT} series of {STEPS}",
            lw.MSM(),
            lambda: lw.barycenter(lw.MSM(), single, solver=LBFGS(max_iter=1)).sequence.numpy(),
            {"aeon": lambda: kasba_average(stacked, distance="msm", random_state=0).T},
            10,
        )
    benchmark.close()


if __name__ == "__main__":
    main()
