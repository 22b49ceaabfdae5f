"""GPU kernels: checked against the CPU in float64, then timed. Run on a machine with a CUDA device.

    python benchmarks/gpu.py [--rows FILE]

A kernel whose values or gradients are wrong gets no time. "ms" is the time of a call as a user sees it, "graph_ms" that
of its kernels alone, replayed from a CUDA graph: the difference is what the host takes to launch them. "host_ms" is how
long the host was busy or waiting in the call, the GPU being idle when it began. The last row trains on sequences whose
longest length changes at every step.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
from torch import Tensor

from likewise import SoftDTW
from likewise.ops.dtw import dtw, dtw_matrix, dtw_path
from likewise.ops.gpu import common, tape
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import soft_dtw, soft_dtw_matrix
from likewise.testing import TOLERANCE

DEVICE = "cuda"
ROWS: list[dict] = []


def milliseconds(work: Callable[[], object], repeats: int = 20, warmup: int = 3) -> float:
    """Median."""
    for _ in range(warmup):
        work()
    torch.cuda.synchronize()
    found = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return statistics.median(found)


def replayed(work: Callable[[], object]) -> float:
    """Median milliseconds of the kernels alone."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return milliseconds(graph.replay)


def on_the_host(work: Callable[[], object], repeats: int = 20) -> float:
    """Median milliseconds until the call returns."""
    found = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        found.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(found)


def error(found: Tensor, expected: Tensor) -> float:
    """Largest error, relative to the largest expected number."""
    return ((found.double().cpu() - expected).abs().max() / expected.abs().max()).item()


def report(case: str, errors: dict[str, float], measure: Callable[[], dict[str, float]]) -> None:
    """Print a row: with times if every error is allowed, with the errors otherwise."""
    allowed = TOLERANCE[torch.float32]
    correct = all(e <= (allowed.gradient if "gradient" in name else allowed.value) for name, e in errors.items())
    row = {"case": case, "correct": correct, "errors": errors, **(measure() if correct else {})}
    ROWS.append(row)
    print(json.dumps(row), flush=True)


def soft(batch: int, steps: int, channels: int, bar: float) -> None:
    torch.manual_seed(0)
    # Costs of a few units: float32 rounds each to 1e-7 of itself, and gamma = 1 turns that into a share's error.
    x, y = (torch.randn(batch, steps, channels) / channels**0.5 for _ in range(2))

    def both(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        a, b = a.requires_grad_(), b.requires_grad_()
        value = soft_dtw(a, b)
        return value.detach(), *torch.autograd.grad(value.sum(), (a, b))

    expected = both(x[:2].double(), y[:2].double())
    found = both(x[:2].to(DEVICE), y[:2].to(DEVICE))
    names = ("value", "gradient of x", "gradient of y")
    errors = {name: error(f, e) for name, f, e in zip(names, found, expected, strict=True)}
    a, b = x.to(DEVICE).requires_grad_(), y.to(DEVICE).requires_grad_()
    distance = SoftDTW()

    def work() -> None:
        a.grad = b.grad = None
        distance(a, b).sum().backward()

    def measure() -> dict[str, float]:
        work()
        torch.cuda.reset_peak_memory_stats()
        times = {"ms": milliseconds(work), "graph_ms": replayed(work), "bar_ms": bar, "host_ms": on_the_host(work)}
        times["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
        with torch.no_grad():
            times["forward_ms"] = milliseconds(lambda: soft_dtw(a, b))
            times["forward_graph_ms"] = replayed(lambda: soft_dtw(a, b))
        return times

    report(f"soft_dtw forward and backward, B {batch}, T {steps}, C {channels}", errors, measure)


def varying(steps: int = 50, batch: int = 64, channels: int = 9) -> None:
    """Training steps whose longest lengths change: how many kernels they compile, and how long they take."""
    torch.manual_seed(0)
    lengths = torch.randint(20, 201, (steps, 2)).tolist()
    check = [(1, 20), (16, 33), (200, 47)]
    errors = {}
    for n, m in check:
        x, y = torch.randn(2, n, channels) / 3, torch.randn(2, m, channels) / 3
        found = soft_dtw(x.to(DEVICE), y.to(DEVICE))
        errors[f"value {n} x {m}"] = error(found, soft_dtw(x.double(), y.double()))

    def measure() -> dict[str, float]:
        common._ready.clear(), common._compiled.clear(), tape._tapes.clear()  # Triton's own files stay
        times = []
        for n, m in lengths * 2:
            x = torch.randn(batch, n, channels, device=DEVICE, requires_grad=True)
            y = torch.randn(batch, m, channels, device=DEVICE, requires_grad=True)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            soft_dtw(x, y).sum().backward()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return {
            "kernels": len({id(kernel) for kernel in common._compiled.values()}),
            "first_seconds": sum(times[:steps]),
            "slowest_ms": max(times[:steps]) * 1e3,
            "again_seconds": sum(times[steps:]),
            "again_median_ms": statistics.median(times[steps:]) * 1e3,
        }

    report(f"soft_dtw training, {steps} steps of random lengths, B {batch}, C {channels}", errors, measure)


def all_pairs(name: str, run: Callable[..., Tensor], count: int, steps: int, channels: int, **options: object) -> None:
    torch.manual_seed(0)
    x = torch.randn(count, steps, channels) / channels**0.5
    there = x.to(DEVICE)
    expected = run(x[:40].double(), x[:70].double(), **options)
    errors = {"value": error(run(there, **options)[:40, :70], expected)}

    def measure() -> dict[str, float]:
        ms = milliseconds(lambda: run(there, **options), repeats=5, warmup=1)
        return {"ms": ms} if options else {"ms": ms, "cells_per_second": count * count * steps * steps / ms * 1e3}

    report(f"{name}, all pairs of {count}, T {steps}, C {channels}", errors, measure)


def path(steps: int) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 1, steps, 1).cumsum(2)
    a, b = x.to(DEVICE), y.to(DEVICE)
    cells, count = dtw_path(a, b)
    i, j = cells[0, : int(count)].cpu().T
    exact = dtw(x.double(), y.double())
    # Another path may be as short: what counts is what it adds up to.
    total = (x.double()[0, i] - y.double()[0, j]).square().sum()
    errors = {"value": error(dtw(a, b), exact), "value of the path": error(total[None], exact)}
    times = {"ms": lambda: dtw_path(a, b), "value_ms": lambda: dtw(a, b)}
    report(f"dtw path, T {steps}", errors, lambda: {k: milliseconds(work, repeats=5) for k, work in times.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="append the rows to this file")
    options = parser.parse_args()
    soft(64, 128, 9, bar=0.3)
    soft(32, 512, 64, bar=1.0)
    soft(32, 1024, 64, bar=2.5)
    soft(16, 2048, 64, bar=6.0)
    all_pairs("dtw", dtw_matrix, 2000, 256, 1)
    all_pairs("dtw", dtw_matrix, 500, 128, 9)
    all_pairs("dtw, band 0.1", dtw_matrix, 2000, 256, 1, rules=Rules.of("dtw", band=0.1))
    all_pairs("soft_dtw", soft_dtw_matrix, 1000, 256, 1)
    path(1000)
    path(10000)
    varying()
    where = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": os.environ.get("COMMIT", ""),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    if options.rows:
        with open(options.rows, "a") as file:
            file.writelines(json.dumps(row | where) + "\n" for row in ROWS)


if __name__ == "__main__":
    main()
