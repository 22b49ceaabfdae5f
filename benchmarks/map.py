"""The speed of each op at many shapes, as a share of what this machine could reach there.

    python benchmarks/map.py [--device cuda] [--only "dtw all"] [--repeats 5] [--no-peers] [--no-rows]
    python benchmarks/map.py --check --part 1/6 [...]      every sixth cell: compiled and compared, not timed
    python benchmarks/map.py --report [--device cuda]      from the rows: heat maps, medians, the ten worst cells

Each cell of the map is an op at one shape: so many sequences, steps and channels, paired or all pairs, of equal or very
unequal lengths, with or without a band. Before it is timed, some of its pairs are compared with float64. ``limits``
says how fast this machine could be at that shape. On the CPU the fastest peer that gives the same result runs in the
same turns, on fewer sequences where it would take long; the row says on how many, and the load of the machine. Rows go
to benchmarks/results/map_<device>.jsonl: a run may be cut into parts (--missing), and the newest row of a cell counts.
"""

import argparse
import copy
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from map_peers import peers_of
from measure import RESULTS, WrongResult, check, machine
from torch import Tensor

import likewise as lw
from likewise.testing import TOLERANCE

GAMMA, REG, ITERATIONS, HIDDEN = 1.0, 1.0, 20, 20
PEER_STEPS = 2048  # a peer gets no more steps of a sequence: the memory of some grows with their square
HOPELESS = 3  # a peer this many times as slow as another is not measured again
OPS = ("dtw", "soft_dtw", "soft_dtw gradient", "gdtw", "sinkhorn", "tap", "tap gradient", "coupled_gru")


@dataclass(frozen=True)
class Shape:
    """One cell of a map."""

    op: str
    pairing: str  # "all": every sequence with every other; "paired": each with one
    count: int
    steps: int
    channels: int
    lengths: str = "equal"  # "1:20": x is 20 times as long as y; "half short": half of the batch is
    band: float | None = None

    @property
    def name(self) -> str:
        """As --only reads it."""
        more = ("" if self.lengths == "equal" else f", {self.lengths}") + (f", band {self.band}" if self.band else "")
        return f"{self.op} {self.pairing} {self.count}, T {self.steps}, C {self.channels}{more}"

    @property
    def symmetric(self) -> bool:
        """Whether a pair and its mirror image are computed once."""
        return self.pairing == "all" and self.lengths != "1:20" and self.op in ("dtw", "soft_dtw", "coupled_gru")

    @property
    def pairs(self) -> float:
        """How many have to be computed."""
        both = self.count if self.pairing == "paired" else self.count**2
        return both / 2 if self.symmetric else both

    @property
    def cells(self) -> float:
        """Cells of all alignments together."""
        short = max(1, self.steps // 20)
        each = {
            "equal": self.steps**2,
            "1:20": self.steps * short,
            "half short": (self.steps**2 + short**2) / 2
            if self.pairing == "paired"
            else ((self.steps + short) / 2) ** 2,
        }[self.lengths]
        return self.pairs * each * (1.0 if self.band is None else self.band * (2 - self.band))


def shapes(device: str = "cpu") -> list[Shape]:
    """The grid: few long sequences, many short ones, one channel or many; on a GPU, more of both."""
    sizes = [(2, 512), (2, 8192), (4, 4096), (8, 2048), (20, 1000), (64, 256), (200, 128), (500, 64), (2000, 32)]
    if device == "cuda":
        sizes += [(64, 1000), (128, 2048), (256, 512), (500, 128), (2000, 64), (2000, 128), (2000, 256)]
    found = []
    for op in ("dtw", "soft_dtw", "soft_dtw gradient"):
        for count, steps in sizes:
            found += [Shape(op, "all", count, steps, channels) for channels in (1, 3, 16, 64, 256)]
        for count, steps in ((1, 8192), (4, 2048), (64, 512), (256, 128), (2000, 32)):
            found += [Shape(op, "paired", count, steps, channels) for channels in (1, 9, 64)]
        for count, steps, channels in ((20, 1000, 1), (64, 256, 1), (64, 256, 16), (200, 128, 3)):
            found += [Shape(op, "all", count, steps, channels, lengths) for lengths in ("1:20", "half short")]
            found += [Shape(op, "all", count, steps, channels, band=0.1)]
        found += [Shape(op, "all", 200, 128, 1, "half short", 0.1)]
    for count, steps, channels in ((1, 64, 1), (1, 256, 1), (1, 1024, 1), (16, 256, 9), (4, 512, 64), (64, 128, 3)):
        found += [Shape("gdtw", "paired", count, steps, channels)]
    for count, steps, channels in ((8, 32, 1), (64, 128, 9), (16, 512, 9), (4, 1024, 64), (256, 64, 3), (1, 2048, 1)):
        found += [Shape("sinkhorn", "paired", count, steps, channels)]
    for count, steps, channels in ((8, 32, 3), (32, 64, 13), (16, 128, 9), (4, 256, 64)):
        found += [Shape(op, "all", count, steps, channels) for op in ("tap", "tap gradient")]
    for count, steps, channels in ((4, 512, 3), (36, 128, 9), (100, 64, 16), (300, 32, 1)):
        found += [Shape("coupled_gru", "all", count, steps, channels)]
    # Shapes that take more than a few seconds on two cores show nothing that smaller ones do not.
    most = 2.5e10 if device == "cpu" else 4e12
    return [s for s in found if s.cells * (s.channels + 8) * (3 if "gradient" in s.op else 1) < most]


@dataclass(frozen=True)
class Peaks:
    """The limits of the machine: multiply-adds and bytes per second, measured here or from its data sheet."""

    fma: float
    bytes: float

    @classmethod
    def of(cls, device: str) -> "Peaks":
        """A product of large matrices and a copy of much memory on a CPU; an H200's sheet on a GPU."""
        if device == "cuda":
            return cls(33.5e12, 4.8e12)  # without tensor cores; an H200's 67 TFLOP/s of float32
        a, b = torch.randn(2, 1536, 1536)
        x, y = torch.randn(2, 1 << 25)
        multiply = min(seconds(lambda: torch.mm(a, b)) for _ in range(5))
        copy = min(seconds(lambda: y.copy_(x)) for _ in range(5))
        return cls(1536**3 / multiply, 8 * len(x) / copy)


WINOGRAD = 64 / 16  # products for each pair of channels and each result of TAP's middle convolution; directly, 25


def limits(shape: Shape, peaks: Peaks, products: float = WINOGRAD) -> dict[str, float]:
    """Seconds that each resource takes at least; the slowest of them is the shape's limit.

    Issue slots: as many vectors are added or compared in a cycle as are multiplied, beside each other, so that an
    instruction counts as half a multiply-add, and one that multiplies at least as a whole one. Instructions per cell:
        DTW: two minima and a sum; a difference and a multiply-add per channel.
        soft-DTW: an exponential (9), three scalings (6), their sums and normalisation (11); with gradients, the shares
            (4), the walk back (8), and three more instructions per channel.
        GDTW: a grid of Tx times Ty nodes, and half of it twice more: insertion and readout of a parabola (12), and an
            interpolation and a square per channel (4); in float64, which has half the lanes.
        Sinkhorn: two multiply-adds an iteration, an exponential, and two instructions per channel in float64.
        TAP: its convolutions of 5, 5 and 3, 30 channels wide, the one between them by Winograd's algorithm; backwards,
            twice as much again.
        Coupled GRU: per pair and step, eight products of H x H, for both sides, and their nonlinearities.
    Memory: the sequences once, the results once; gradients once more.
    """
    c, cells = shape.channels, shape.cells
    tap = 2 * 25 * 30 + 30 * 30 * products + 30 * 9
    multiply, others = {  # per cell; of these, in order: multiplications, and all else
        "dtw": (c, 3 + c),
        "soft_dtw": (14 + c, 12 + c),
        "soft_dtw gradient": (20 + 3 * c, 18 + 2 * c),
        "gdtw": (4 * (6 + 2 * c), 4 * (6 + 2 * c)),
        "sinkhorn": (2 * ITERATIONS + 7 + 2 * c, 2 + 2 * c),
        "tap": (tap, 0),
        "tap gradient": (3 * tap, 0),
        "coupled_gru": ((8 * HIDDEN**2 + 60 * HIDDEN) / shape.steps, 40 * HIDDEN / shape.steps),
    }[shape.op]
    slots = cells * max(multiply, (multiply + others) / 2)
    numbers = 2 * shape.count * shape.steps * c * (2 if "gradient" in shape.op else 1) + shape.pairs
    return {"issue slots": slots / peaks.fma, "memory": 4 * numbers / peaks.bytes}


def gpu_limits(shape: Shape, peaks: Peaks) -> dict[str, float]:
    """The same for an H200, 132 multiprocessors of 128 lanes.

    Every instruction takes a slot. Per cell, besides a difference and a multiply-add per channel:
        DTW: a minimum of three, and a sum. soft-DTW: a minimum, a middle and a maximum (6), two powers and a logarithm
            of the special function units, which have an eighth of the lanes, and their sums (6); with gradients, one
            more power, an inverse and the shares (5), the walk back (6), and four more instructions per channel.
    With more than 16 channels the costs, and the gradients of all, are products of TF32 in three passes, and costs are
    written and read; the gradient also writes and reads two shares, and E twice.
    """
    if shape.op not in ("dtw", "soft_dtw", "soft_dtw gradient"):
        return limits(shape, peaks, products=25)
    c, cells, gradient = shape.channels, shape.cells, "gradient" in shape.op
    slots, special = {"dtw": (2, 0), "soft_dtw": (12, 3), "soft_dtw gradient": (24, 5)}[shape.op]
    products, numbers = 0, 7 * gradient
    if c > 16:
        products, numbers = 3 * c, numbers + 2
    else:
        slots += 2 * c
    products += 6 * c * gradient
    once = 2 * shape.count * shape.steps * c * (2 if gradient else 1) + shape.pairs
    return {
        "issue slots": slots * cells / peaks.fma,
        "special functions": 8 * special * cells / peaks.fma,
        "tensor cores": products * cells / 247e12,
        "memory": 4 * (once + numbers * cells) / peaks.bytes,
    }


def sequences(shape: Shape, device: str) -> tuple[lw.data.Batch, lw.data.Batch | None]:
    """x, and y unless x meets itself."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, shape.count, shape.steps, shape.channels, generator=generator)
    values = values.cumsum(2) / math.sqrt(shape.steps * shape.channels)
    if shape.op == "gdtw":  # as its package scales them
        low, high = values.amin(2, keepdim=True), values.amax(2, keepdim=True)
        values = 2 * (values - low) / (high - low) - 1
    full, short = torch.full((shape.count,), shape.steps), max(1, shape.steps // 20)
    lengths = full.clone()
    if shape.lengths == "half short":
        lengths[::2] = short
    x = lw.data.Batch(values[0], lengths).to(device)
    if shape.lengths == "1:20":
        return x, lw.data.Batch(values[1][:, :short].contiguous(), torch.full((shape.count,), short)).to(device)
    return x, None if shape.pairing == "all" else lw.data.Batch(values[1], lengths).to(device)


def distance_of(shape: Shape) -> torch.nn.Module:
    torch.manual_seed(0)
    return {
        "dtw": lambda: lw.DTW(band=shape.band),
        "soft_dtw": lambda: lw.SoftDTW(gamma=GAMMA, band=shape.band),
        "soft_dtw gradient": lambda: lw.SoftDTW(gamma=GAMMA, band=shape.band),
        "gdtw": lambda: lw.GDTW(reg=0.1),
        "sinkhorn": lambda: lw.Sinkhorn(reg=REG, n_iter=ITERATIONS),
        "tap": lw.TAP,
        "tap gradient": lw.TAP,
        "coupled_gru": lambda: lw.CoupledGRU(shape.channels, hidden=(HIDDEN,)),
    }[shape.op]()


def run(distance: torch.nn.Module, shape: Shape, x: lw.data.Batch, y: lw.data.Batch | None) -> Tensor:
    """Values, or the gradient with respect to x's values where the op has it."""
    if "gradient" not in shape.op:
        with torch.no_grad():
            return distance.matrix(x, y) if shape.pairing == "all" else distance(x, y)
    leaf = x.values.detach().requires_grad_()
    batch = lw.data.Batch(leaf, x.lengths)
    D = distance.matrix(batch, y) if shape.pairing == "all" else distance(batch, y)
    return torch.autograd.grad(D.sum(), leaf)[0]


def verify(distance: torch.nn.Module, shape: Shape, x: lw.data.Batch, y: lw.data.Batch | None) -> None:
    """Compare all of a small problem, or some pairs of a large one, with float64 on the CPU."""
    some = max(2, min(shape.count, int((2e7 / (shape.steps**2 * (shape.channels + 8))) ** 0.5)))
    exact = [None if b is None else lw.data.Batch(b.values[:some].double(), b.lengths[:some]).to("cpu") for b in (x, y)]
    expected = run(copy.deepcopy(distance).double().cpu(), shape, *exact)
    # A gradient sums over all pairs: that of the part is its own problem. Values are those of the whole.
    part = [None if b is None else b[:some] for b in (x, y)]
    found = run(distance, shape, *part) if "gradient" in shape.op else run(distance, shape, x, y)
    found = found[:some, :some] if shape.pairing == "all" and "gradient" not in shape.op else found[:some]
    tolerance = TOLERANCE[torch.float32]
    allowed = tolerance.gradient if "gradient" in shape.op else tolerance.value
    networks = ("tap", "tap gradient", "coupled_gru")
    check(shape.name, found.cpu(), expected.cpu(), 10 * allowed if shape.op in networks else allowed)


def seconds(work: Callable[[], object]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def shortened(batch: lw.data.Batch, kept: float) -> lw.data.Batch:
    """The first steps of every sequence."""
    if kept == 1:
        return batch
    lengths = (kept * batch.lengths).long().clamp(min=1)
    return lw.data.Batch(batch.values[:, : int(lengths.max())].contiguous(), lengths)


def fastest_peer(
    shape: Shape,
    x: lw.data.Batch,
    y: lw.data.Batch | None,
    ours: Callable[..., Tensor],
    mine: Callable[[], float],
    enough: float,
) -> dict[str, Any]:
    """The peer with the least time for all pairs, scaled up from as many as it computes in ``enough`` seconds.

    Of long sequences it gets the first PEER_STEPS steps, and its time is scaled up by cells.

    Its turns alternate with ours, whose seconds ``mine`` returns, so that both see the same load. A peer whose first
    turn is HOPELESS times as long as the best one's has no more.
    """
    best: dict[str, Any] = {}
    kept = min(1.0, PEER_STEPS / shape.steps)
    for name, peer in peers_of(shape, GAMMA, REG, ITERATIONS).items():
        count = 2 if shape.pairing == "all" else 1
        while True:
            part = [None if b is None else shortened(b[:count], kept) for b in (x, y)]
            first = seconds(lambda part=part, peer=peer: peer(*part))  # also compiles, where a peer does that
            again = 1 if first > 10 * enough else 2  # a pause of a busy machine is not the peer's time
            spent = min(seconds(lambda part=part, peer=peer: peer(*part)) for _ in range(again))
            if spent > enough or count >= shape.count:
                break
            count = min(shape.count, 2 * count)
        share = kept**2 * (count / shape.count) ** (2 if shape.pairing == "all" else 1)
        if best and spent > enough and spent / share > HOPELESS * best["peer_ms"] / 1e3:
            continue
        found, wanted = peer(*part), ours(*part).detach()
        try:
            if shape.op == "gdtw":  # two local minima: a peer may end in a worse one
                wanted = torch.maximum(wanted, torch.as_tensor(found))
            check(name, found, wanted.cpu(), 2e-2)
        except WrongResult:
            continue
        turns = [(seconds(lambda part=part, peer=peer: peer(*part)), mine()) for _ in range(2 if spent > 1 else 4)]
        theirs, beside = (1e3 * statistics.median(times) for times in zip(*turns, strict=True))
        row = {"peer": name, "peer_ms": theirs / share, "peer_sequences": count, "beside_ms": beside}
        row |= {"peer_steps": round(kept * shape.steps)}
        best = row if not best or ahead(row) < ahead(best) else best
    return best


def measure(shape: Shape, peaks: Peaks, options: argparse.Namespace) -> dict[str, Any] | None:
    """One row; none if it is only to be checked."""
    if options.device == "cuda":
        torch.cuda.empty_cache()
    x, y = sequences(shape, options.device)
    distance = distance_of(shape).to(options.device)
    verify(distance, shape, x, y)
    first = seconds(lambda: run(distance, shape, x, y))
    if options.check:
        return None
    calls = max(1, math.ceil(0.02 / max(first, 1e-6)))
    repeats = options.repeats if first < (2 if options.device == "cpu" else 0.3) else 1

    def turn() -> float:
        return seconds(lambda: [run(distance, shape, x, y) for _ in range(calls)]) / calls

    mine = statistics.median(turn() for _ in range(repeats))
    bounds = (limits if options.device == "cpu" else gpu_limits)(shape, peaks)
    limit = max(bounds, key=lambda resource: bounds[resource])
    row = {
        "case": shape.name,
        **asdict(shape),
        "ms": 1e3 * mine,
        "limit_ms": 1e3 * bounds[limit],
        "limit": limit,
        "share": bounds[limit] / mine,
    }
    if options.device == "cpu" and not options.no_peers:
        row |= fastest_peer(shape, x, y, lambda *part: run(distance, shape, *part), turn, options.peer_seconds)
    return row


def newest_rows(device: str) -> list[dict[str, Any]]:
    """The last row of every cell that still is in the grid."""
    path = RESULTS / f"map_{device}.jsonl"
    rows = {row["case"]: row for row in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
    return [rows[shape.name] for shape in shapes(device) if shape.name in rows]


def ahead(row: dict[str, Any]) -> float:
    """How many times as long as ours the peer's turns took, which alternate with ours."""
    return row["peer_ms"] / (row["beside_ms"] if "beside_ms" in row else row["ms"])


def report(device: str) -> None:
    """Heat maps, medians, and the ten worst cells."""
    from map_plots import draw

    rows = newest_rows(device)
    if not rows:
        raise SystemExit(f"no rows in {RESULTS}/map_{device}.jsonl: run benchmarks/map.py first")
    for op in OPS:
        own = [row for row in rows if row["op"] == op]
        if own:
            draw(own, RESULTS / f"map_{device}_{op.replace(' ', '_')}.png")
    median = statistics.median(row["share"] for row in rows)
    print(f"{len(rows)} cells, median share {median:.0%}; the worst of those of at least 0.2 ms:")
    worst = sorted((row for row in rows if row["ms"] >= 0.2), key=lambda row: row["share"])[:10]
    for row in worst:
        print(f"  {row['share']:6.1%}  {row['ms']:9.2f} ms  {row['case']} ({row['limit']})")
    ratios = sorted(((ahead(row), row) for row in rows if row.get("peer")), key=lambda found: found[0])
    if ratios:
        median = statistics.median(ratio for ratio, _ in ratios)
        print(f"{len(ratios)} cells have a peer, median {median:.1f} times the fastest; the least:")
        for ratio, row in ratios[:10]:
            print(f"  {ratio:6.1f}  {row['ms']:9.2f} ms, {row['peer']} {row['peer_ms']:.1f} ms  {row['case']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help='cells whose name holds this text, such as "dtw all 20"')
    parser.add_argument("--missing", action="store_true", help="only cells that have no row yet")
    parser.add_argument("--minutes", type=float, default=60, help="stop after so long; --missing goes on from there")
    parser.add_argument("--part", default="1/1", help="2/6 is the second of six processes that share the cells")
    parser.add_argument("--check", action="store_true", help="compile and compare with float64 only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-seconds", type=float, default=0.3, help="a peer gets as many pairs as it computes then")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-rows", action="store_true", help="print only; keep no rows")
    parser.add_argument("--report", action="store_true", help="no measurement: heat maps and worst cells of the rows")
    options = parser.parse_args()
    if options.report:
        return report(options.device)
    here, peaks, begin = machine(), Peaks.of(options.device), time.monotonic()
    if options.device == "cuda":
        here |= {"gpu": torch.cuda.get_device_name(), "commit": here["commit"] or os.environ.get("COMMIT", "")}
    print(f"{2 * peaks.fma / 1e9:.0f} GFLOP/s, {peaks.bytes / 1e9:.0f} GB/s")
    done = {row["case"] for row in newest_rows(options.device)} if options.missing else set()
    RESULTS.mkdir(exist_ok=True)
    grid, wrong = shapes(options.device), []
    grid = random.Random(0).sample(grid, len(grid))  # a run that is cut short samples the whole grid
    part, parts = map(int, options.part.split("/"))
    for shape in grid[part - 1 :: parts]:
        if not shape.name.startswith(options.only) or shape.name in done:
            continue
        if time.monotonic() - begin > 60 * options.minutes:
            break
        try:
            row = measure(shape, peaks, options)
        except WrongResult as error:
            wrong.append(shape.name)
            print(f"not timed: {error}", flush=True)
            continue
        if row is None:
            continue
        row |= {"gflops": 2 * peaks.fma / 1e9, "gbytes": peaks.bytes / 1e9} | here
        row["load"] = os.getloadavg()[0]
        peer = f", {row['peer']} {ahead(row):.1f} times" if row.get("peer") else ""
        print(f"{row['case']}: {row['ms']:.2f} ms, {row['share']:.0%} of {row['limit']}{peer}", flush=True)
        if not options.no_rows:
            with open(RESULTS / f"map_{options.device}.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")
    if wrong:
        raise SystemExit(f"{len(wrong)} cells are wrong: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
