"""Elastic distances and averages on a GPU: checked against the CPU, then timed. Run on a machine with a CUDA device.

    python benchmarks/elastic_gpu.py [--rows FILE] [--only MSM TWE]

All pairs of 1,000 and 1,000 series of length 256, one channel, float32; "cells" are those of the tables, 65.5 billion.
SBD has no table: its rate says how many cells a table would have had. DTWGlobalInvariance computes a table for every
rotation that it tries: all of these count, and it also runs on 300 and 300 series of three channels. A distance whose
values differ from the CPU's, in float64, is not timed. Then 1,000 averages of 50 series of length 128, ten iterations
each; those of the first 20 must cost what they cost on the CPU. About a minute.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch

import likewise as lw
from likewise.clusters import LBFGS, MajorizeMinimize
from likewise.ops.dtw_rotation.gpu import turns
from likewise.testing import TOLERANCE

ROWS = Path(__file__).parent / "results" / "elastic_gpu.jsonl"
COUNT, STEPS = 1000, 256
MEMBERS = {
    "DTW": lw.DTW(),
    "ADTW": lw.ADTW(),
    "WDTW": lw.WDTW(),
    "DDTW": lw.DDTW(),
    "WDDTW": lw.WDDTW(),
    "MSM": lw.MSM(),
    "MSM, dependent": lw.MSM(independent=False),
    "TWE": lw.TWE(),
    "ERP": lw.ERP(),
    "EDR": lw.EDR(),
    "LCSS": lw.LCSS(),
    "ShapeDTW": lw.ShapeDTW(),
    "SBD": lw.SBD(),
    "DTWGlobalInvariance": lw.DTWGlobalInvariance(),
}
AVERAGES = {
    "DBA": (lw.DTW(), MajorizeMinimize(max_iter=10, tol=0)),
    "MSM": (lw.MSM(), LBFGS(max_iter=10, tol=0)),
}


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The median time of a call, the first one left out."""
    found = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - begin)
    return sorted(found[1:])[repeats // 2]


def tables(distance: lw.Distance, x: torch.Tensor, y: torch.Tensor) -> float:
    """The number of tables that are computed for a pair, on average."""
    if not isinstance(distance, lw.DTWGlobalInvariance):
        return 1
    run, counts = turns.run_turns, []

    def counted(*arguments: Any, **options: Any) -> None:
        counts.append(len(arguments[6]))
        run(*arguments, **options)

    turns.run_turns = counted
    distance.matrix(x, y)
    turns.run_turns = run
    return sum(counts) / (len(x) * len(y))


def matrices(only: list[str]) -> Iterator[dict]:
    """One row for each distance whose values are right."""
    torch.manual_seed(0)
    x, y = (torch.randn(COUNT, STEPS, 1).cumsum(1) for _ in range(2))
    for name in only:
        yield from matrix(name, MEMBERS[name], x, y)
    if "DTWGlobalInvariance" in only:
        x, y = (torch.randn(300, STEPS, 3).cumsum(1) for _ in range(2))
        yield from matrix("DTWGlobalInvariance, 3 channels", MEMBERS["DTWGlobalInvariance"], x, y)


def matrix(name: str, distance: lw.Distance, x: torch.Tensor, y: torch.Tensor) -> Iterator[dict]:
    """The row of a distance, unless its values are wrong."""
    on_gpu = x.cuda(), y.cuda()
    # In float32, the last digit leads a pair in a thousand to another minimum over the rotations, on the CPU, too.
    exact = isinstance(distance, lw.DTWGlobalInvariance)
    found = distance.matrix(*(t.double() if exact else t for t in on_gpu))[:4].cpu().double()
    expected = distance.matrix(x[:4].double(), y.double())
    error = float((found - expected).abs().max() / expected.abs().max())
    case = f"{name}, all pairs of {len(x):,} and {len(y):,}, length {STEPS}, float32"
    if not error <= TOLERANCE[torch.float32].value:
        print(f"{case}: WRONG, relative error {error:.1e}")
        return
    each = tables(distance, *on_gpu)
    taken = seconds(lambda: distance.matrix(*on_gpu))
    rate = each * len(x) * len(y) * STEPS**2 / taken
    print(f"{case}: {1e3 * taken:.1f} ms, {rate / 1e12:.2f} trillion cells/s", flush=True)
    row = {"case": case, "ms": 1e3 * taken, "cells_per_second": rate, "bar": 5e11, "error": error}
    yield row if each == 1 else row | {"tables": each}


def averages() -> Iterator[dict]:
    """One row for each kind of average."""
    generator = torch.Generator().manual_seed(0)
    speed = torch.rand(50_000, 1, generator=generator) + 0.6
    values = torch.sin(9 * torch.linspace(0, 1, 128) ** speed) + 0.2 * torch.randn(50_000, 128, generator=generator)
    x, groups = values[..., None], torch.arange(1000).repeat_interleave(50)
    on_gpu = x.cuda()
    for name, (distance, solver) in AVERAGES.items():
        found = lw.barycenter(distance, on_gpu, groups=groups, solver=solver).costs[:20].cpu()
        expected = lw.barycenter(distance, x[:1000], groups=groups[:1000], solver=solver).costs
        error = float(((found - expected) / expected).abs().max())
        case = f"1,000 averages of 50 series of 128 under {distance.name}, 10 iterations"
        if not error <= 1e-3:
            print(f"{case}: WRONG, costs differ by {error:.1e}")
            continue
        taken = seconds(
            lambda distance=distance, solver=solver: lw.barycenter(distance, on_gpu, groups=groups, solver=solver), 3
        )
        print(f"{case} ({name}): {taken:.2f} s, costs differ from the CPU's by {error:.0e}", flush=True)
        yield {"case": case, "ms": 1e3 * taken, "error": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="file to append the rows to")
    parser.add_argument("--only", nargs="+", choices=MEMBERS, help="these distances, without averages")
    options = parser.parse_args()
    machine = {"gpu": torch.cuda.get_device_name(), "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__}
    machine["commit"] = os.environ.get("COMMIT", "")
    for row in chain(matrices(options.only or list(MEMBERS)), () if options.only else averages()):
        with options.rows.open("a") as file:
            file.write(json.dumps(row | machine) + "\n")


if __name__ == "__main__":
    main()
