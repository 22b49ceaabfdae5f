"""The coupled GRU against a plain loop of PyTorch's operations, and against torch.nn.GRU on the same pairs.

    python benchmarks/coupled_gru.py [--repeats 7] [--only pairs]         on the CPU
    python benchmarks/coupled_gru.py --device cuda                        on a GPU: checks, then times; under a minute
    python benchmarks/coupled_gru.py --device cuda --variants             the kernels' shapes in turn, and a CUDA graph

Cases: forward and backward over all 630 pairs of 36 sequences (T 128, C 9, H 20), all 780 pairs of 40 sequences (T 300,
C 36, H 100), and pairs a second without gradients, from which the time of UCI HAR's 2,947 x 7,352 pairs follows. Before
anything is timed it is compared with the plain loop. Rows go to benchmarks/results/coupled_gru.jsonl, unless --no-rows.
"""

import argparse
import functools
import json
import math
import statistics
import time
from collections.abc import Callable

import torch
from measure import RESULTS, check, machine
from torch import Tensor, nn

from likewise.distances.coupled_gru import CoupledGRU
from likewise.ops.coupled_gru import _flat, projections, reference

HAR_PAIRS = 2947 * 7352
# Name, sequences, steps, channels, states; milliseconds wanted on an H200.
CASES = (("36 sequences", 36, 128, 9, 20, 8.0), ("40 sequences", 40, 300, 36, 100, 30.0))
# Shapes of the kernels: states multiplied at a time, warps, loads on their way.
WIDE_SHAPES = ((32, 8, 2), (32, 8, 1), (32, 8, 3), (32, 16, 2), (64, 8, 1), (64, 16, 2), (16, 8, 3))
NARROW_SHAPES = ((32, 4, 1), (32, 2, 1), (32, 8, 1), (16, 4, 2))
VALUE, GRADIENT = 1e-5, 1e-3  # relative errors allowed, of float32 against float32


class Bench:
    """Times on one device, and the rows that they make."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device, self.rows = options, torch.device(options.device), []

    def seconds(self, run: Callable[[], object]) -> float:
        """One call, everything on the device done."""
        self.wait()
        begin = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - begin

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def in_turn(self, runs: dict[str, Callable[[], object]]) -> dict[str, float]:
        """Median seconds of each, after one call that is not counted; all in turn."""
        times: dict[str, list[float]] = {name: [] for name in runs}
        for repeat in range(self.options.repeats + 1):
            for name, run in runs.items():
                found = self.seconds(run)
                if repeat:
                    times[name].append(found)
        return {name: statistics.median(found) for name, found in times.items()}

    def add(self, case: str, times: dict[str, float], **more: object) -> None:
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        milliseconds = {name: 1e3 * found for name, found in times.items()}
        self.rows.append({"case": case, "device": device, "ms": milliseconds, **more, **machine()})
        shown = ", ".join(f"{name} {found:.2f} ms" for name, found in milliseconds.items())
        print(f"{case}: {shown} {more}")

    def close(self) -> None:
        if not self.options.no_rows:
            RESULTS.mkdir(exist_ok=True)
            with open(RESULTS / "coupled_gru.jsonl", "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in self.rows)


def plain_distances(network: CoupledGRU, x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The distances of pairs by a loop over steps of PyTorch's operations."""
    cells = [cell.weights for cell in network.cells]
    g, n = projections(x, cells[0]), torch.full((len(x),), x.shape[1], device=x.device)
    states = reference.states(g, None, rows, columns, n, None, _flat(cells, x.dtype), list(network.hidden))
    return torch.linalg.vector_norm(states[:, 0, -1] - states[:, 1, -1], dim=-1)


def all_pairs(bench: Bench, name: str, count: int, steps: int, channels: int, hidden: int, bar: float) -> None:
    """Forward and backward over all pairs of a batch."""
    torch.manual_seed(0)
    network = CoupledGRU(channels, (hidden,)).to(bench.device)
    gru = nn.GRU(channels, hidden, batch_first=True).to(bench.device)
    x = torch.randn(count, steps, channels, device=bench.device)
    rows, columns = torch.triu_indices(count, count, 1, device=bench.device)
    parameters = list(network.parameters())

    def ours() -> list[Tensor]:
        D = network.matrix(x)[rows, columns]
        return [D, *torch.autograd.grad(D.sum(), parameters)]

    def plain() -> list[Tensor]:
        D = plain_distances(network, x, rows, columns)
        return [D, *torch.autograd.grad(D.sum(), parameters)]

    def uncoupled() -> None:
        hx, hy = (gru(x[index])[1][0] for index in (rows, columns))
        torch.autograd.grad(torch.linalg.vector_norm(hx - hy, dim=-1).sum(), list(gru.parameters()))

    found, expected = ours(), plain()
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        check(
            f"{name}: {'gradient' if k else 'distances'}", a.detach().cpu(), b.detach().cpu(), GRADIENT if k else VALUE
        )
    times = bench.in_turn({"likewise": ours, "plain loop": plain, "torch.nn.GRU": uncoupled})
    mine = times["likewise"]
    bench.add(
        f"forward and backward, all {len(rows)} pairs of {name}, T {steps}, C {channels}, H {hidden}",
        times,
        times_faster_than_plain=times["plain loop"] / mine,
        times_faster_than_gru=times["torch.nn.GRU"] / mine,
        bar=f"{bar} ms" if bench.device.type == "cuda" else "8 times the plain loop, 1 time torch.nn.GRU",
    )


def variants(bench: Bench, name: str, count: int, steps: int, channels: int, hidden: int, bar: float) -> None:
    """The same in other shapes of the kernels, each checked first; and as a CUDA graph, which is the GPU's own time."""
    from likewise.ops.coupled_gru import gpu

    torch.manual_seed(0)
    network = CoupledGRU(channels, (hidden,)).to(bench.device)
    x = torch.randn(count, steps, channels, device=bench.device)
    rows, columns = torch.triu_indices(count, count, 1, device=bench.device)
    parameters = list(network.parameters())

    def both_ways(distances: Callable[[], Tensor]) -> list[Tensor]:
        D = distances()
        # Detached: a live history would tie a CUDA graph to its stream.
        return [D.detach(), *torch.autograd.grad(D.sum(), parameters)]

    def ours() -> list[Tensor]:
        return both_ways(lambda: network.matrix(x)[rows, columns])

    expected = both_ways(lambda: plain_distances(network, x, rows, columns))
    setting = "NARROW_SHAPE" if hidden <= gpu.NARROW else "WIDE_SHAPE"
    chosen = getattr(gpu, setting)

    def shaped(shape: object) -> list[Tensor]:
        setattr(gpu, setting, shape)
        try:
            return ours()
        finally:
            setattr(gpu, setting, chosen)

    runs: dict[str, Callable[[], object]] = {}
    for chunk, warps, stages in NARROW_SHAPES if hidden <= gpu.NARROW else WIDE_SHAPES:
        shape = gpu.Shape(chunk, warps, stages)
        for k, (a, b) in enumerate(zip(shaped(shape), expected, strict=True)):
            check(f"{name}, {shape}", a.cpu(), b.cpu(), GRADIENT if k else VALUE)
        runs[f"chunk {chunk}, {warps} warps, {stages} stages"] = functools.partial(shaped, shape)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = ours()
    graph.replay()
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        check(f"{name}, CUDA graph", a.cpu(), b.cpu(), GRADIENT if k else VALUE)
    times = bench.in_turn({**runs, f"CUDA graph, {chosen}": graph.replay})
    bench.add(f"variants, all {len(rows)} pairs of {name}, T {steps}, C {channels}, H {hidden}", times, bar=f"{bar} ms")


def evaluation(bench: Bench, count: int) -> None:
    """Pairs a second without gradients, at the size of UCI HAR."""
    torch.manual_seed(0)
    network = CoupledGRU(9, (20,)).to(bench.device)
    x, y = (torch.randn(n, 128, 9, device=bench.device) for n in (count, 7352))
    with torch.no_grad():
        some = torch.arange(64, device=bench.device)
        expected = plain_distances(network, torch.cat([x[:8], y[:8]]), some // 8, 8 + some % 8)
        check("evaluation", network.matrix(x[:8], y[:8]).flatten().cpu(), expected.cpu(), VALUE)
        times = bench.in_turn({"likewise": lambda: network.matrix(x, y)})
    rate = count * len(y) / times["likewise"]
    bench.add(
        f"no gradients, {count} x 7,352 pairs, T 128, C 9, H 20",
        times,
        pairs_a_second=rate,
        har_seconds=HAR_PAIRS / rate,
        bar="10 s for HAR" if bench.device.type == "cuda" else "600 s for HAR on two cores",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5, help="repeats, of which the median counts")
    parser.add_argument("--only", default="", help="run the cases whose name contains this text")
    parser.add_argument("--queries", type=int, help="of the evaluation; 8 on a CPU and 2,947 on a GPU unless given")
    parser.add_argument("--variants", action="store_true", help="on a GPU: time the kernels in other shapes")
    parser.add_argument("--no-rows", action="store_true", help="print only; write no rows")
    options = parser.parse_args()
    bench = Bench(options)
    gpu = bench.device.type == "cuda"
    if options.variants:
        for name, *sizes in CASES:
            variants(bench, name, *sizes)  # type: ignore[arg-type]
        bench.close()
        return
    for name, *sizes in CASES if gpu else CASES[:1]:
        if options.only in f"pairs of {name}":
            all_pairs(bench, name, *sizes)  # type: ignore[arg-type]
    if options.only in "evaluation":
        evaluation(bench, options.queries or (2947 if gpu else 8))
    if not all(math.isfinite(ms) for row in bench.rows for ms in row["ms"].values()):
        raise SystemExit("a time is not finite")
    bench.close()


if __name__ == "__main__":
    main()
