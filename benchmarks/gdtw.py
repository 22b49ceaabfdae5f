"""GDTW on the CPU, against the gdtw package in the same run, and against DTW by length.

    python benchmarks/gdtw.py [--repeats 7] [--only length]

The objective is evaluated at both warps, in float64: ours must not be worse. "warp by length" redraws figures 5 and 7
of the DecDTW paper (GDTW against DTW at test and at training time) in results/gdtw.png, "solver at work" its figure 6
in results/gdtw_solver.png. "minimum of walks" prints how often the default grid misses the minimum of noisy walks.
"""

import importlib
import sys
from importlib.metadata import version
from types import ModuleType

import numpy as np
import torch
from matplotlib.figure import Figure
from measure import RESULTS, Benchmark, WrongResult, interleave, machine
from torch import Tensor

from likewise.distances.dtw import DTW
from likewise.distances.gdtw import GDTW
from likewise.distances.soft_dtw import SoftDTW
from likewise.ops.gdtw.reference import Pair, objective
from likewise.viz.solver import plot_solver

REG = 0.1  # the package's default
LENGTHS = 64, 128, 256, 512, 1024
BATCH, CHANNELS = 4, 16


def import_package() -> ModuleType:
    """The gdtw package, which this file hides: Python looks first in the folder of the script."""
    folder = sys.path.pop(0)
    try:
        return importlib.import_module("gdtw")
    finally:
        sys.path.insert(0, folder)


def signals(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Two curves and a little noise, scaled to [-1, 1] as the package would scale them."""
    rng, time = np.random.default_rng(0), np.linspace(0, 1, steps)
    noise = 0.03 * rng.standard_normal((2, steps)).cumsum(1)
    both = np.sin(20 * time) + noise[1], np.sin(20 * time**1.3) + noise[0]
    return tuple(2 * (z - z.min()) / (z.max() - z.min()) - 1 for z in both)  # type: ignore[return-value]


def exact(x: np.ndarray, y: np.ndarray, warp: np.ndarray | Tensor) -> float:
    """Our objective at any warp, whose knots are x's times, by the plain reference."""
    times, limit = torch.linspace(0, 1, len(x), dtype=torch.float64), torch.full((len(y),), torch.inf).double()
    reference = Pair(
        *(torch.from_numpy(z)[:, None] for z in (x, y)),
        times,
        times,
        torch.tensor(REG).double(),
        -limit,
        limit,
        0 * times[1:],
        limit[1:],
    )
    return objective(reference, torch.as_tensor(warp, dtype=torch.float64)).item()


def against_the_package(benchmark: Benchmark, steps: int, bar: float) -> None:
    x, y = signals(steps)
    a, b = (torch.from_numpy(z)[None, :, None] for z in (x, y))
    ours, package = GDTW(REG), import_package()
    # With lambda_cum 0 it solves our problem; by default it adds a cost of |phi(t) - t|^2.
    settings = {"gdtw": {}, "gdtw, lambda_cum 0": {"lambda_cum": 0.0}}

    def theirs(options: dict[str, float]) -> np.ndarray:
        return package.GDTW().set_params({"x": y, "y": x, **options}).run().tau  # it warps its x

    value = exact(x, y, ours.warp(a, b).values[0])
    values = {name: exact(x, y, theirs(options)) for name, options in settings.items()}
    if value > min(values.values()) * (1 + 1e-12):
        raise WrongResult(f"length {steps}: our objective {value}, the package's {values}")
    runs = {name: lambda options=options: theirs(options) for name, options in settings.items()}
    times = interleave({"likewise": lambda: ours.warp(a, b), **runs}, benchmark.options.repeats)
    add(benchmark, f"one pair of length {steps}", times, bar, objective=value, objectives=values, gdtw=version("gdtw"))


def add(benchmark: Benchmark, case: str, times: dict[str, float], bar: float, **more: object) -> None:
    """A row like those of the other benchmarks: ours against the fastest of the others."""
    mine = times.pop("likewise")
    best = min(times, key=lambda name: times[name])
    row = {"case": case, "ms": 1e3 * mine, "best_peer": best, "times_faster": times[best] / mine, "bar": bar}
    row |= {"peers_ms": {name: 1e3 * seconds for name, seconds in times.items()}, **more, **machine()}
    benchmark.rows.append(row)
    benchmark.console.print(f"{case}: {1e3 * mine:.2f} ms, {best} {1e3 * times[best]:.2f} ms", highlight=False)


def walks(noise: float, seeds: int = 120, steps: int = 40) -> tuple[Tensor, Tensor]:
    """Walks (B, T, 2), and the same at sorted random times, with noise."""
    x, y = [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        x.append(rng.standard_normal((steps, 2)).cumsum(0))
        at = np.sort(rng.uniform(0, 1, steps))
        warped = np.stack([np.interp(at, np.linspace(0, 1, steps), channel) for channel in x[-1].T], 1)
        y.append(warped + noise * rng.standard_normal((steps, 2)))
    return torch.from_numpy(np.stack(x)), torch.from_numpy(np.stack(y))


def missing_the_minimum(benchmark: Benchmark) -> None:
    """How often the default grid ends more than 1 % above what 401 nodes find, on walks; nothing is timed."""
    for noise in (0.3, 0.0):
        x, y = walks(noise)
        for names, pair in (("x to y", (x, y)), ("y to x", (y, x))):
            share = GDTW(0.01)(*pair) / GDTW(0.01, grid=401)(*pair)
            missed, worst = 100 * (share > 1.01).double().mean().item(), share.max().item()
            line = (
                f"walks, noise {noise}, {names}: {missed:.1f} % of {len(share)} above by 1 %, worst {worst:.3f} times"
            )
            benchmark.console.print(line, highlight=False)


def doubling_the_grid(benchmark: Benchmark) -> None:
    """The cost grows with the nodes, not with their square: at most 2.4 times for twice as many."""
    x, y = (torch.from_numpy(z)[None, :, None] for z in signals(256))
    distances = {str(nodes): GDTW(REG, grid=nodes) for nodes in (257, 513, 1025)}
    calls = {nodes: lambda distance=distance: distance(x, y) for nodes, distance in distances.items()}
    times = interleave(calls, benchmark.options.repeats)
    for half, double in (("257", "513"), ("513", "1025")):
        pair = {"likewise": times[double], f"{half} nodes": times[half]}
        add(benchmark, f"length 256, {double} nodes of the grid", pair, 1 / 2.4)


def by_length(benchmark: Benchmark) -> None:
    """Figure 5: an alignment at test time. Figure 7: forwards and backwards through it."""
    found: dict[str, list[float]] = {}
    for steps in LENGTHS:
        times = time_length(steps, benchmark.options.repeats)
        for name, seconds in times.items():
            found.setdefault(name, []).append(1e3 * seconds)
        case = f"B {BATCH}, T {steps}, C {CHANNELS}, float32"
        classic, trained = {"our DTW": times["DTW"]}, {"our DTW": times["DTW, trained"]}
        # The bars are the paper's slowest: 50 times slower than its DTW, 12 times without refinement.
        add(benchmark, f"warp, {case}", {"likewise": times["GDTW"], **classic}, 1 / 50)
        add(benchmark, f"warp in one pass, {case}", {"likewise": times["GDTW, one pass"], **classic}, 1 / 12)
        soft = 1e3 * times["soft-DTW, trained"]
        both = {"likewise": times["GDTW, trained"], **trained}
        add(benchmark, f"warp and backwards, {case}", both, 1 / 50, soft_dtw_ms=soft)
    draw(found)


def time_length(steps: int, repeats: int) -> dict[str, float]:
    torch.manual_seed(0)
    x, y = torch.randn(2, BATCH, steps, CHANNELS).cumsum(2)
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    continuous, single_pass, classic, soft = GDTW(REG), GDTW(REG, refinements=0), DTW(), SoftDTW()

    def train(result: Tensor) -> None:
        torch.autograd.grad(result.sum(), (a, b))

    runs = {
        "GDTW": lambda: continuous.warp(x, y),
        "GDTW, one pass": lambda: single_pass.warp(x, y),
        "DTW": lambda: classic.align(x, y).path(0),
        "GDTW, trained": lambda: train(continuous.warp(a, b).values),
        "DTW, trained": lambda: train(classic(a, b)),
        "soft-DTW, trained": lambda: train(soft(a, b)),
    }
    return interleave(runs, repeats)


def draw(found: dict[str, list[float]]) -> None:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for ax, title, trained in zip(figure.subplots(1, 2), ("At test time", "In training"), (False, True), strict=True):
        for name, times in found.items():
            if name.endswith("trained") == trained:
                ax.plot(LENGTHS, times, marker="o", markersize=3, label=name.removesuffix(", trained"))
        ax.set(xscale="log", yscale="log", xlabel="length", ylabel="ms", title=title)
        ax.set_xticks(LENGTHS, [str(steps) for steps in LENGTHS], minor=False)
        ax.minorticks_off()
        ax.legend(frameon=False)
    figure.suptitle(f"{BATCH} pairs of {CHANNELS} channels, {torch.get_num_threads()} threads")
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "gdtw.png", dpi=120)


def draw_solver(benchmark: Benchmark) -> None:
    """Figure 6: the passes over the grid for a subsequence, by the plain reference; nothing is timed."""
    times_x, times_y = torch.linspace(0, 1, 31).double(), torch.linspace(0, 1.6, 49).double()
    x, y = torch.sin(9 * (0.25 + 0.2 * times_x + 0.6 * times_x**2)), torch.sin(9 * times_y)
    pair = x[None, :, None], y[None, :, None], times_x, times_y
    distance = GDTW(REG / 10, subsequence=True, grid=51)
    ax = Figure(figsize=(5.2, 6), layout="constrained").subplots()
    ax = plot_solver(distance.passes(*pair), distance.warp(*pair).values[0], ax=ax)
    ax.set_title(f"A subsequence: objective {distance(*pair).item():.5g} after the polish")
    RESULTS.mkdir(exist_ok=True)
    ax.figure.savefig(RESULTS / "gdtw_solver.png", dpi=120)
    benchmark.console.print(f"the solver at work: {RESULTS / 'gdtw_solver.png'}", highlight=False)


def main() -> None:
    benchmark = Benchmark("gdtw", __doc__)
    for steps, bar in ((256, 10), (500, 20)):
        if benchmark.options.only in f"one pair of length {steps}":
            against_the_package(benchmark, steps, bar)
    if benchmark.options.only in "minimum of walks":
        missing_the_minimum(benchmark)
    if benchmark.options.only in "nodes of the grid":
        doubling_the_grid(benchmark)
    if benchmark.options.only in "warp by length":
        by_length(benchmark)
    if benchmark.options.only in "solver at work":
        draw_solver(benchmark)
    benchmark.close()


if __name__ == "__main__":
    main()
