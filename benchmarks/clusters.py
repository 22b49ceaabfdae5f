"""Clusters and tuning on the CPU, against tslearn and aeon in the same run.

    python benchmarks/clusters.py [--repeats 5] [--only KMeans]

KMeans is timed only if its inertia is not above the peer's: inertias are sums of DTW from the centres, computed by the
same function for all, in float64. Peers take as many starts as we do, and seconds to minutes: they are run once,
after a small problem for their compilers. Tuning has no peer: its accuracies are compared with those of whole matrices.
"""

import time
import warnings

import numpy as np
import torch
from measure import Benchmark, WrongResult, check, machine

import likewise as lw
from likewise.sklearn import KMeans, KShape

with warnings.catch_warnings(action="ignore"):  # tslearn warns that it could read more kinds of files
    from tslearn.clustering import KShape as TheirKShape
    from tslearn.clustering import TimeSeriesKMeans
from aeon.clustering import TimeSeriesKMeans as AeonKMeans

CLUSTERS = 5


def waves(count: int, steps: int, kinds: int) -> tuple[torch.Tensor, np.ndarray]:
    """Waves of some frequencies at other speeds, with noise: (count, steps, 1), float64, and their kinds."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % kinds
    speed = torch.rand(count, 1, generator=generator, dtype=torch.float64) + 0.6
    values = torch.sin((6 + 2 * labels[:, None]) * torch.linspace(0, 1, steps, dtype=torch.float64) ** speed)
    noise = 0.3 * torch.randn(count, steps, generator=generator, dtype=torch.float64)
    return (values + noise)[..., None], labels.numpy()


def kmeans(benchmark: Benchmark) -> None:
    x, _ = waves(500, 128, CLUSTERS)
    single, series, stacked = x.float(), x.numpy(), x.transpose(1, 2).contiguous().numpy()
    name = "KMeans(DTW), 500 series of 128, 5 clusters"
    if benchmark.options.only not in name:
        return

    def ours() -> KMeans:
        return KMeans(lw.DTW(), CLUSTERS).fit(single)

    def theirs(some: slice) -> TimeSeriesKMeans:
        return TimeSeriesKMeans(CLUSTERS, metric="dtw", random_state=0).fit(series[some])

    def aeons(some: slice) -> AeonKMeans:
        settings = {"method": "petitjean", "max_iters": 30}
        return AeonKMeans(CLUSTERS, distance="dtw", n_init=1, random_state=0, average_params=settings).fit(
            stacked[some]
        )

    def inertia(centers: np.ndarray) -> float:
        return float(lw.DTW().matrix(torch.as_tensor(centers, dtype=torch.float64), x).min(0).values.sum())

    # Peers take a minute and more: each runs once, timed, after a small problem that compiles what it compiles.
    model, seconds = ours(), []
    for _ in range(max(5, benchmark.options.repeats)):
        begin = time.perf_counter()
        model = ours()
        seconds.append(time.perf_counter() - begin)
    mine, inertias, times = inertia(model.cluster_centers_.values.numpy()), {}, {}
    for peer, run in {"tslearn": theirs, "aeon": aeons}.items():
        run(slice(None, None, 25))
        begin = time.perf_counter()
        centers = np.asarray(run(slice(None)).cluster_centers_)
        times[peer] = 1e3 * (time.perf_counter() - begin)
        inertias[peer] = inertia(centers.transpose(0, 2, 1) if peer == "aeon" else centers)
        print(f"{name}: {peer} {times[peer]:.0f} ms, inertia {inertias[peer]:.6g}", flush=True)
        if mine > inertias[peer] * (1 + 1e-3):
            raise WrongResult(f"{name}: inertia {mine} is above {peer}'s {inertias[peer]}")
    best = min(times, key=lambda peer: times[peer])
    taken = 1e3 * float(np.median(seconds))
    row = {"case": name, "ms": taken, "best_peer": best, "times_faster": times[best] / taken, "bar": 20}
    row |= {"peers_ms": times, "peer_repeats": 1, "inertia": mine, "peers_inertia": inertias, **machine()}
    print(f"{name}: {taken:.1f} ms, inertia {mine:.6g}, {times[best] / taken:.1f} times faster than {best}")
    benchmark.rows.append(row)


def kshape(benchmark: Benchmark) -> None:
    """From the same start as tslearn, which has to end with an inertia that is not below ours."""
    x, _ = waves(500, 128, CLUSTERS)
    x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True, correction=0)
    start = x[:CLUSTERS].numpy()
    name = "KShape, 500 series of 128, 5 clusters"
    if benchmark.options.only not in name:
        return

    def inertia(model: KShape | TheirKShape) -> float:
        centers = torch.as_tensor(np.asarray(getattr(model.cluster_centers_, "values", model.cluster_centers_)))
        return float(lw.SBD(independent=False).matrix(x, centers.double()).min(1).values.sum())

    mine = inertia(KShape(CLUSTERS, init=start).fit(x))
    benchmark.case(
        name,
        lambda: KShape(CLUSTERS, init=start).fit(x),
        {"tslearn": lambda: TheirKShape(CLUSTERS, init=start).fit(x.numpy())},
        1.0,
        tolerance=1e-9,
        bar=1,
        read=lambda model: max(1.0, mine / inertia(model) / (1 + 1e-6)),
        peer_repeats=3,
    )


def tune(benchmark: Benchmark) -> None:
    x, labels = waves(300, 256, CLUSTERS)
    x = x.float() + torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    grids = {"DTW": {"band": [k / 100 for k in range(100)]}, "MSM": {"cost": np.geomspace(0.01, 100, 100)}}
    for kind, grid in grids.items():
        name = f"tune({kind}), 100 settings, 300 series of 256"
        if benchmark.options.only not in name or not hasattr(lw, kind):
            continue
        distance = getattr(lw, kind)()
        found = lw.tune(distance, (x, labels), grid)
        for k in range(0, 100, 33):
            D = type(distance)(**{**distance.config(), **found.settings[k]}).matrix(x).fill_diagonal_(torch.inf)
            expected = np.mean(labels[D.argmin(1).numpy()] == labels)
            check(f"{name}, setting {k}", 1 + found.accuracies[k], 1 + expected, 1e-9)
        times = []
        for _ in range(max(5, benchmark.options.repeats)):
            begin = time.perf_counter()
            lw.tune(distance, (x, labels), grid)
            times.append(time.perf_counter() - begin)
        seconds = float(np.median(times))
        print(f"{name}: {seconds:.2f} s, {found.computed:,} of {100 * 300 * 299 // 2:,} distances computed (bar: 10 s)")
        row = {"case": name, "ms": 1e3 * seconds, "computed": found.computed, "bar_s": 10.0, **machine()}
        if not benchmark.options.no_rows:
            import json

            from measure import RESULTS

            with open(RESULTS / "tune.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")


def main() -> None:
    benchmark = Benchmark("clusters", __doc__ or "")
    tune(benchmark)
    kmeans(benchmark)
    kshape(benchmark)
    if benchmark.rows:
        benchmark.close()


if __name__ == "__main__":
    main()
