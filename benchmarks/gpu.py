"""GPU kernels: checked against the CPU in float64, then timed. Run on a machine with a CUDA device.

    python benchmarks/gpu.py [--rows FILE] [--only "soft_dtw, all pairs"]

A kernel whose values or gradients are wrong is not timed. "ms" is the time of a call as a user sees it, "graph_ms" that
of its kernels alone, replayed from a CUDA graph: the difference is what the host takes to launch them. "host_ms" is how
long the host was busy or waiting in the call, the GPU being idle when it began. "first_seconds" are those until the
first call was done, compiling included. Rows of the host say where its time goes in the first two cases. The last row
trains on sequences whose longest length changes at every step. About a minute, with nothing compiled before.
"""

import argparse
import inspect
import itertools
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
from likewise.ops.launch import launcher, tape
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import gpu as gpu_soft_dtw
from likewise.ops.soft_dtw import soft_dtw, soft_dtw_matrix
from likewise.testing import TOLERANCE

DEVICE = "cuda"
WARM_SECONDS = 0.3
FILES: list[Path] = []  # that get the rows
ONLY: list[str] = []  # what the names of the cases to run begin with, if not all


def milliseconds(work: Callable[[], object], repeats: int = 20, warmup: int = 3) -> float:
    """Median of at least ``repeats`` calls, and of as many as fit in WARM_SECONDS, after as long a warm-up.

    A GPU that has been idle, as while kernels are compiled, needs some time at work to run at its speed; and the host's
    part of a short call differs twofold from one to the next.
    """
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for event in (begin, end):  # made by the driver when first recorded
        event.record()

    def timed(least: int) -> list[float]:
        found, until = [], time.perf_counter() + WARM_SECONDS
        while len(found) < least or time.perf_counter() < until:
            torch.cuda.synchronize()
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end))
        return found

    timed(warmup)
    return statistics.median(timed(repeats))


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


def host_steps(calls: dict[str, tuple[object, str]], work: dict[str, Callable[[], object]], repeats: int = 200) -> dict:
    """Median microseconds of the host between one mark and the next: around each piece of work and each of the calls.

    ``calls`` are functions, by the object that holds them and their name, that the work comes through once each.
    """
    marks: list[tuple[str, float]] = []

    def marked(name: str, run: Callable) -> Callable:
        def wrapped(*arguments: object) -> object:
            marks.append((f"{name} begins", time.perf_counter()))
            found = run(*arguments)
            marks.append((f"{name} ends", time.perf_counter()))
            return found

        return wrapped

    before = {name: inspect.getattr_static(*place) for name, place in calls.items()}
    between: dict[tuple[str, str], list[float]] = {}
    try:
        for name, (holder, attribute) in calls.items():
            wrapped = marked(name, getattr(holder, attribute))
            setattr(holder, attribute, staticmethod(wrapped) if isinstance(before[name], staticmethod) else wrapped)
        for _ in range(repeats):
            torch.cuda.synchronize()
            marks[:] = [("begin", time.perf_counter())]
            for name, piece in work.items():
                piece()
                marks.append((name, time.perf_counter()))
            for (name, start), (following, stop) in itertools.pairwise(marks):
                between.setdefault((name, following), []).append((stop - start) * 1e6)
    finally:
        for name, (holder, attribute) in calls.items():
            setattr(holder, attribute, before[name])
    return {" -> ".join(pair): round(statistics.median(found), 1) for pair, found in between.items()}


def error(found: Tensor, expected: Tensor) -> float:
    """Largest error, relative to the largest expected number."""
    return ((found.double().cpu() - expected).abs().max() / expected.abs().max()).item()


def wanted(case: str) -> bool:
    return not ONLY or case.startswith(tuple(ONLY))


def keep(row: dict) -> None:
    """Print a row, and append it to the file at once: what was measured stays if a later case fails."""
    print(json.dumps(row), flush=True)
    where = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": os.environ.get("COMMIT", ""),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    for path in FILES:
        with open(path, "a") as file:
            file.write(json.dumps(row | where) + "\n")


def report(case: str, errors: dict[str, float], measure: Callable[[], dict[str, float]]) -> None:
    """Print a row: with times if every error is allowed, with the errors otherwise."""
    allowed = TOLERANCE[torch.float32]
    correct = all(e <= (allowed.gradient if "gradient" in name else allowed.value) for name, e in errors.items())
    keep({"case": case, "correct": correct, "errors": errors, **(measure() if correct else {})})


def soft(batch: int, steps: int, channels: int, bar: float, kernels_bar: float) -> None:
    case = f"soft_dtw forward and backward, B {batch}, T {steps}, C {channels}"
    if not wanted(case):
        return
    torch.manual_seed(0)
    since = time.perf_counter()
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
        torch.cuda.synchronize()
        first = time.perf_counter() - since
        torch.cuda.reset_peak_memory_stats()
        times = {
            "first_seconds": first,
            "ms": milliseconds(work),
            "graph_ms": replayed(work),
            "bar_ms": bar,
            "graph_bar_ms": kernels_bar,
            "host_ms": on_the_host(work),
        }
        times["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
        with torch.no_grad():
            times["forward_ms"] = milliseconds(lambda: soft_dtw(a, b))
            times["forward_graph_ms"] = replayed(lambda: soft_dtw(a, b))
        return times

    report(case, errors, measure)


def host(batch: int, steps: int, channels: int) -> None:
    """Where the host spends the time of a call whose kernels are short, and what PyTorch takes by itself."""
    case = f"soft_dtw on the host, B {batch}, T {steps}, C {channels}, microseconds"
    if not wanted(case):
        return
    a, b = (torch.randn(batch, steps, channels, device=DEVICE, requires_grad=True) for _ in range(2))
    leaf, distance, kept = torch.randn(batch, device=DEVICE, requires_grad=True), SoftDTW(), []

    def alone() -> None:
        leaf.grad = None
        leaf.sum().backward()

    def forget() -> None:
        kept.clear()
        a.grad = b.grad = None

    for _ in range(3):
        alone()
        distance(a, b).sum().backward()
    calls: dict[str, tuple[object, str]] = {
        "forward": (gpu_soft_dtw.Differentiable, "forward"),
        "launches": (tape.Tape, "run"),
        "backward": (gpu_soft_dtw.Differentiable, "backward"),
        "weighted": (gpu_soft_dtw, "weighted"),
    }
    work = {
        "forget": forget,
        "value": lambda: kept.append(distance(a, b)),
        "sum": lambda: kept.append(kept[-1].sum()),
        "gradient": lambda: kept[-1].backward(),
    }
    row = {
        "case": case,
        "steps": host_steps(calls, work),
        "pytorch_alone_us": on_the_host(alone, 200) * 1e3,
        "tapes": len(tape._tapes),
    }
    keep(row)


def varying(steps: int = 50, batch: int = 64, channels: int = 9) -> None:
    """Training steps whose longest lengths change: how many kernels they compile, and how long they take."""
    case = f"soft_dtw training, {steps} steps of random lengths, B {batch}, C {channels}"
    if not wanted(case):
        return
    torch.manual_seed(0)
    lengths = torch.randint(20, 201, (steps, 2)).tolist()
    check = [(1, 20), (16, 33), (200, 47)]
    errors = {}
    for n, m in check:
        x, y = torch.randn(2, n, channels) / 3, torch.randn(2, m, channels) / 3
        found = soft_dtw(x.to(DEVICE), y.to(DEVICE))
        errors[f"value {n} x {m}"] = error(found, soft_dtw(x.double(), y.double()))

    def measure() -> dict[str, float]:
        launcher._ready.clear(), launcher._compiled.clear(), tape._tapes.clear()  # Triton's own files stay
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
            "kernels": len({id(kernel) for kernel in launcher._compiled.values()}),
            "first_seconds": sum(times[:steps]),
            "slowest_ms": max(times[:steps]) * 1e3,
            "again_seconds": sum(times[steps:]),
            "again_median_ms": statistics.median(times[steps:]) * 1e3,
        }

    report(case, errors, measure)


def all_pairs(name: str, run: Callable[..., Tensor], count: int, steps: int, channels: int, **options: object) -> None:
    case = f"{name}, all pairs of {count}, T {steps}, C {channels}"
    if not wanted(case):
        return
    torch.manual_seed(0)
    x = torch.randn(count, steps, channels) / channels**0.5
    there = x.to(DEVICE)
    rows, columns = (40, 70) if steps * steps * channels < 1e6 else (4, 9)
    expected = run(x[:rows].double(), x[:columns].double(), **options)
    errors = {"value": error(run(there, **options)[:rows, :columns], expected)}

    def measure() -> dict[str, float]:
        ms = milliseconds(lambda: run(there, **options), repeats=5, warmup=1)
        computed = count * (count + 1) // 2 * steps * steps  # each pair once
        return {"ms": ms} if options else {"ms": ms, "cells_per_second": computed / ms * 1e3}

    report(case, errors, measure)


def path(steps: int) -> None:
    case = f"dtw path, T {steps}"
    if not wanted(case):
        return
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
    report(case, errors, lambda: {k: milliseconds(work, repeats=5) for k, work in times.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="append the rows to this file")
    parser.add_argument("--only", action="append", help="run only the cases whose names begin like this")
    options = parser.parse_args()
    ONLY.extend(options.only or [])
    FILES.extend([options.rows] if options.rows else [])
    soft(64, 128, 9, bar=0.3, kernels_bar=0.06)
    host(64, 128, 9)
    soft(32, 512, 64, bar=1.0, kernels_bar=0.4)
    host(32, 512, 64)
    soft(32, 1024, 64, bar=2.5, kernels_bar=1.1)
    soft(16, 2048, 64, bar=6.0, kernels_bar=2.2)
    all_pairs("dtw", dtw_matrix, 2000, 256, 1)
    all_pairs("dtw", dtw_matrix, 500, 128, 9)
    all_pairs("dtw, band 0.1", dtw_matrix, 2000, 256, 1, rules=Rules.of("dtw", band=0.1))
    all_pairs("soft_dtw", soft_dtw_matrix, 1000, 256, 1)
    for count, steps, channels in ((64, 1000, 64), (256, 512, 16), (128, 2048, 1)):
        all_pairs("dtw", dtw_matrix, count, steps, channels)
        all_pairs("soft_dtw", soft_dtw_matrix, count, steps, channels)
    path(1000)
    path(10000)
    varying()


if __name__ == "__main__":
    main()
