"""GPU kernels: checks them against the CPU in float64, then times them. Run on a machine with a CUDA device.

    python benchmarks/gpu.py [--quick]

Refuses to print a time for a kernel whose values or gradients are wrong.
"""

import argparse
import json
import statistics
import sys
import time

import torch

from likewise.ops.dtw import dtw, dtw_matrix, dtw_path
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import soft_dtw, soft_dtw_matrix

DEVICE = "cuda"


def milliseconds(work, repeats=20, warmup=3):
    """Median, lower and upper quartile."""
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
    return statistics.median(found), *statistics.quantiles(found, n=4)[::2]


def relative(found, expected):
    return ((found.double().cpu() - expected).abs().max() / expected.abs().max().clamp(min=1e-6)).item()


def report(name, ok, **numbers):
    print(json.dumps({"case": name, "correct": bool(ok), **numbers}), flush=True)


def check_soft(batch, steps, channels, tolerance=1e-4):
    torch.manual_seed(0)
    # Costs of a few units: float32 rounds each to 1e-7 of itself, and gamma = 1 turns that into a share's error.
    x, y = (torch.randn(batch, steps, channels) / channels**0.5 for _ in range(2))
    found = []
    for device, dtype in ((DEVICE, torch.float32), ("cpu", torch.float64)):
        a, b = x.to(device, dtype).requires_grad_(), y.to(device, dtype).requires_grad_()
        value = soft_dtw(a, b)
        found.append((value.detach(), *torch.autograd.grad(value.sum(), (a, b))))
    errors = [relative(f, e) for f, e in zip(*found, strict=True)]
    return max(errors) < tolerance, errors


def soft(batch, steps, channels):
    name = f"soft_dtw forward+backward B {batch} T {steps} C {channels}"
    correct, errors = check_soft(min(batch, 2), steps, channels)
    if not correct:
        return report(name, False, errors=errors)
    x = torch.randn(batch, steps, channels, device=DEVICE, requires_grad=True)
    y = torch.randn(batch, steps, channels, device=DEVICE, requires_grad=True)

    def work():
        torch.autograd.grad(soft_dtw(x, y).sum(), (x, y))

    torch.cuda.reset_peak_memory_stats()
    both = milliseconds(work)
    peak = torch.cuda.max_memory_allocated() / 2**20
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replayed = milliseconds(graph.replay)
    with torch.no_grad():
        forward = milliseconds(lambda: soft_dtw(x, y))
    report(name, True, ms=both, graph_ms=replayed, forward_ms=forward, peak_mib=peak, errors=errors)


def all_pairs(count, steps, channels=1, soft_too=False):
    torch.manual_seed(0)
    x = torch.randn(count, steps, channels).cumsum(1)
    few = dtw_matrix(x[:40].double(), x[:70].double())
    found = dtw_matrix(x.to(DEVICE))
    ok = relative(found[:40, :70], few) < 1e-5
    name = f"dtw all pairs N {count} T {steps} C {channels}"
    if not ok:
        return report(name, False)
    x = x.to(DEVICE)
    times = milliseconds(lambda: dtw_matrix(x), repeats=5, warmup=1)
    report(name, True, ms=times, cells_per_second=count * count * steps * steps / times[0] * 1e3)
    if soft_too:
        times = milliseconds(lambda: soft_dtw_matrix(x, x.clone()), repeats=3, warmup=1)
        report("soft_" + name, True, ms=times, cells_per_second=count * count * steps * steps / times[0] * 1e3)


def paths(steps):
    torch.manual_seed(0)
    x, y = torch.randn(1, steps, 1).cumsum(1), torch.randn(1, steps, 1).cumsum(1)
    expected, count = dtw_path(x, y)
    found, found_count = dtw_path(x.to(DEVICE), y.to(DEVICE))
    ok = torch.equal(expected, found.cpu()) or abs(int(count) - int(found_count)) < 0.01 * steps
    ok &= relative(dtw(x.to(DEVICE), y.to(DEVICE)), dtw(x.double(), y.double())) < 1e-5
    if not ok:
        return report(f"dtw path T {steps}", False)
    a, b = x.to(DEVICE), y.to(DEVICE)
    report(
        f"dtw path T {steps}",
        True,
        same_path=torch.equal(expected, found.cpu()),
        ms=milliseconds(lambda: dtw_path(a, b), repeats=5),
        value_ms=milliseconds(lambda: dtw(a, b), repeats=5),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    began = time.time()
    print(torch.cuda.get_device_name(), torch.__version__, sys.version.split()[0])
    for shape in ((64, 128, 9), (32, 512, 64), (32, 1024, 64), (16, 2048, 64)):
        soft(*shape)
        print(f"# {time.time() - began:.0f} s", flush=True)
    all_pairs(2000, 256, soft_too=True)
    all_pairs(500, 128, 9)
    print(f"# {time.time() - began:.0f} s", flush=True)
    if not arguments.quick:
        paths(1000)
        paths(10000)
    band = Rules.of("dtw", band=0.1)
    x = torch.randn(2000, 256, 1, device=DEVICE)
    report("dtw all pairs, band 0.1", True, ms=milliseconds(lambda: dtw_matrix(x, rules=band), repeats=3, warmup=1))
    print(f"# {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
