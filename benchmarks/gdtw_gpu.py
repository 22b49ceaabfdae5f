"""GDTW on a GPU: checked against the CPU, then timed. Run on a machine with a CUDA device.

    python benchmarks/gdtw_gpu.py [--rows FILE] [--kinds walks] [--no-lengths] [--tune]

A result is correct if on the same grid no pair's objective is more than 1e-4 above the CPU's, every warp is feasible,
and the gradients are those of the C++ kernel at the same solution. Otherwise it is not timed.
The last part is figures 5 and 7 of the DecDTW paper on the GPU: GDTW against DTW by length, at test time and in
training. The bars are those of issue 3, in milliseconds and MB. It takes less than a minute.
"""

import argparse
import functools
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
from gpu import milliseconds, replayed
from torch import Tensor

from likewise.distances.dtw import DTW
from likewise.distances.gdtw import GDTW
from likewise.distances.soft_dtw import SoftDTW
from likewise.ops import cpu
from likewise.ops.gdtw import Inputs, _gdtw, _gdtw_grad, _Problem, _run, gdtw
from likewise.ops.gdtw import gpu as kernels
from likewise.ops.gdtw.gpu import search as searching

DEVICE = "cuda"
REG = 0.1
LENGTHS = 128, 256, 512, 1024
ROWS: list[dict] = []
MEGABYTE = 1e6


def signals(kind: str, batch: int, steps: int, channels: int) -> tuple[Tensor, Tensor]:
    """Pairs (B, T, C): curves and their warped copies with noise, two random walks, or noise alone."""
    torch.manual_seed(0)
    noise = torch.randn(2, batch, steps, channels)
    if kind == "noise":
        return noise[1], noise[0]
    if kind == "walks":
        y, x = noise.cumsum(2) / steps**0.5
        return x, y
    times, pace = torch.linspace(0, 1, steps)[:, None], 5 + 20 * torch.rand(batch, 1, channels)
    x, y = torch.sin(pace * times), torch.sin(pace * times**1.3)
    return x + 0.05 * noise[1], y + 0.05 * noise[0]


def arguments(x: Tensor, y: Tensor, nodes: int, refinements: int = 2) -> tuple:
    """Of the operator, at even times, without limits."""
    count, steps = x.shape[:2]

    def full(value: float, *shape: int) -> Tensor:
        return torch.full(shape, value, dtype=torch.float64, device=x.device)

    times = torch.linspace(0, 1, steps, dtype=torch.float64, device=x.device).expand(count, -1)
    limits = None, None, None, None
    return x, y, None, None, times, times, full(REG, count), *limits, False, torch.inf, nodes, refinements


def errors(x: Tensor, y: Tensor) -> dict[str, float]:
    """What differs from the CPU, on the same grid."""
    steps = x.shape[1]
    nodes = searching.Search.of(Inputs(*arguments(x, y, 0))).most_nodes(True)
    here, there = arguments(x, y, nodes), arguments(x.to(DEVICE), y.to(DEVICE), nodes)
    expected, warps, _ = _gdtw(*here)
    value, warp, holds = (each.cpu() for each in _gdtw(*there))
    steepness = warp.diff()
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(each.shape, dtype=torch.float64, generator=generator) for each in (value, warp)]
    truth = _gdtw_grad(*weights, warp, holds, *here)
    found = _gdtw_grad(*(each.to(DEVICE) for each in (*weights, warp, holds)), *there)
    ends = warp[:, 0].abs().max() + (warp[:, -1] - 1).abs().max()
    return {
        "objective, worst": ((value - expected) / expected).max().item(),
        "objective, best": ((value - expected) / expected).min().item(),
        "infeasible": max(-steepness.min().item(), ends.item(), 0.0),
        "gradients": max(relative(f.cpu(), t) for f, t in zip(found, truth, strict=True)),
        "pairs with another warp": ((warp - warps).abs().amax(1) > 1e-6 / steps).sum().item(),
    }


def relative(found: Tensor, expected: Tensor) -> float:
    """Largest error, relative to the largest expected number; 0 of nothing, as of limits that are absent."""
    if not expected.numel():
        return float(found.numel())
    return ((found - expected).abs().max() / expected.abs().max().clamp(min=1e-300)).item()


def parts(x: Tensor, y: Tensor) -> dict[str, float | None]:
    """Where a call spends its time: the search, with the passes that are always launched; the polish; the derivative.

    "_graph_ms" is the time of the kernels alone, replayed from a CUDA graph. settled: pairs that the GPU polishes.
    """
    given = arguments(x, y, 0)
    search = searching.Search.of(Inputs(*given))
    scratch, found = search.scratch(), search.found()
    search.begin(scratch)
    for number in range(search.refinements + 2, searching.MOST_PASSES):
        search.run_pass(scratch, number)  # does nothing where the search is done
    search.polish(scratch, found)

    def differentiate() -> tuple[Tensor, ...]:
        grads = torch.ones_like(found.values), torch.ones_like(found.warps)
        return kernels.gradient(*grads, found.warps, found.holds, *given)

    settled = (found.outcomes == searching.SETTLED).double().mean().item()
    work = {
        "polish": lambda: search.polish(scratch, found),
        "derivative": differentiate,
        "search": lambda: search.begin(search.scratch()),
    }
    times: dict[str, float | None] = {f"{name}_ms": milliseconds(run, repeats=10) for name, run in work.items()}
    times |= {f"{name}_graph_ms": replayed_or_none(run) for name, run in work.items()}
    return times | {"settled": settled}


def replayed_or_none(work: Callable[[], object]) -> float | None:
    """None where the kernels cannot be captured: a time that is missing must not cost the others."""
    try:
        return replayed(work)
    except RuntimeError as error:
        print(f"not captured: {error}", flush=True)
        return None


def host_polish_ms(x: Tensor, y: Tensor) -> float:
    """The time of the C++ kernel's polish, without copies."""
    given = arguments(x, y, 0)
    found = searching.Search.of(Inputs(*given)).search().cpu()
    host = [each.cpu() if isinstance(each, Tensor) else each for each in given]
    problem, count, knots = _Problem.of(Inputs(*host)), *x.shape[:2]
    value = torch.empty(count, dtype=torch.float64)
    holds = torch.empty(count, knots, 2, dtype=torch.int32)
    polished = []
    for _ in range(11):
        warp = found.clone()
        begin = time.perf_counter()
        _run(cpu.native.gdtw_polish, problem, value, warp, holds)
        polished.append(1e3 * (time.perf_counter() - begin))
    return sorted(polished)[5]


def case(kind: str, batch: int, steps: int, channels: int, bars: dict[str, float]) -> None:
    x, y = signals(kind, batch, steps, channels)
    found = errors(x, y)
    right = found["objective, worst"] <= 1e-4 and found["infeasible"] <= 1e-9 and found["gradients"] <= 1e-5
    row = {"case": f"{kind}, B {batch}, T {steps}, C {channels}", "correct": right, "errors": found}
    if right or kind == "noise":  # noise has near-ties, in which either device may be the lucky one
        row |= {"bars": bars, **measure(x.to(DEVICE), y.to(DEVICE))}
    ROWS.append(row)
    print(json.dumps(row), flush=True)


def measure(x: Tensor, y: Tensor) -> dict[str, float | None]:
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    layer = GDTW(REG)
    given = Inputs(*arguments(x, y, 0))
    times, reg = given.times_x, given.reg
    both(layer, a, b)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result: dict[str, float | None] = {
        "forward_and_backward_ms": milliseconds(lambda: both(layer, a, b)),
        "forward_ms": milliseconds(lambda: layer.warp(x, y)),
        "operator_forward_ms": milliseconds(lambda: gdtw(x, y, times_x=times, times_y=times, reg=reg)),
    }
    result["peak_mb"] = (torch.cuda.max_memory_allocated() - held) / MEGABYTE
    return result | parts(x, y) | {"host_polish_ms": host_polish_ms(x, y)}


def both(layer: GDTW, a: Tensor, b: Tensor) -> None:
    torch.autograd.grad(layer.warp(a, b).values.sum(), (a, b))


def by_length(batch: int = 4, channels: int = 16) -> None:
    """GDTW against our DTW, whose path is the alignment at test time and whose value is what is trained."""
    for steps in LENGTHS:
        times = time_length(*(each.to(DEVICE) for each in signals("walks", batch, steps, channels)))
        row = {"case": f"by length, B {batch}, T {steps}, C {channels}", "ms": times}
        row["times_dtw"] = times["GDTW"] / times["DTW"]
        row["times_dtw_trained"] = times["GDTW, trained"] / times["DTW, trained"]
        ROWS.append(row)
        print(json.dumps(row), flush=True)


def time_length(x: Tensor, y: Tensor) -> dict[str, float]:
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    continuous, single, classic, soft = GDTW(REG), GDTW(REG, refinements=0), DTW(), SoftDTW()

    def train(result: Tensor) -> None:
        torch.autograd.grad(result.sum(), (a, b))

    runs: dict[str, Callable[[], object]] = {
        "GDTW": lambda: continuous.warp(x, y),
        "GDTW, one pass": lambda: single.warp(x, y),
        "DTW": lambda: classic.align(x, y).path(0),
        "GDTW, trained": lambda: train(continuous.warp(a, b).values),
        "DTW, trained": lambda: train(classic(a, b)),
        "soft-DTW, trained": lambda: train(soft(a, b)),
    }
    return {name: milliseconds(run, repeats=10) for name, run in runs.items()}


def tune() -> None:
    """Milliseconds of the search's kernels by the nodes of a group and the lanes that share a node."""
    usual = searching.tiles
    for batch, steps in ((16, 256), (4, 512)):
        x, y = (each.to(DEVICE) for each in signals("walks", batch, steps, 64))
        found = {}
        for group, share in itertools.product((8, 16, 32), (2, 4)):
            searching.tiles = functools.partial(grouped, group=group, share=share)
            found[f"groups of {group}, {share} lanes"] = search_graph_ms(x, y)
        print(json.dumps({"case": f"B {batch}, T {steps}", "search_graph_ms": found}), flush=True)
    searching.tiles = usual


def grouped(width: int, group: int, share: int) -> tuple[int, dict[str, int]]:
    return min(32, width * share // 64), {"GROUPS": width // group, "GROUP": group, "SHARE": share}


def search_graph_ms(x: Tensor, y: Tensor) -> float | None:
    search = searching.Search.of(Inputs(*arguments(x, y, 0)))
    search.begin(search.scratch())  # compiles
    return replayed_or_none(lambda: search.begin(search.scratch()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path(__file__).parent / "results" / "gdtw_gpu.jsonl")
    parser.add_argument("--kinds", nargs="+", default=("smooth", "walks", "noise"))
    parser.add_argument("--no-lengths", action="store_true", help="leave out GDTW against DTW by length")
    parser.add_argument("--tune", action="store_true", help="only time the search with other groups of nodes")
    options = parser.parse_args()
    if options.tune:
        tune()
        return
    short = {"forward_ms": 3.0, "forward_and_backward_ms": 4.0, "peak_mb": 250.0}
    for kind in options.kinds:
        case(kind, 16, 256, 64, short)
        case(kind, 4, 512, 64, {"forward_and_backward_ms": 8.0})
    if not options.no_lengths:
        by_length()
    where = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": os.environ.get("COMMIT", ""),
        "gpu": torch.cuda.get_device_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    with open(options.rows, "a") as file:
        file.writelines(json.dumps(row | where) + "\n" for row in ROWS)


if __name__ == "__main__":
    main()
