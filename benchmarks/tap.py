"""TAP: its fused kernels against PyTorch's convolutions, and its time against DTW's and soft-DTW's.

    python benchmarks/tap.py pairs [--tune]                        all pairs, without gradients, on a CUDA device
    python benchmarks/tap.py figure [--device cuda] [--plot]       Figure 3 of the paper: a batch of 64 pairs
    python benchmarks/tap.py step [--device cuda] [--exact]        a training step with hard mining, and its memory
    python benchmarks/tap.py step --device cpu --alone             the same, one thread's processor time
    python benchmarks/tap.py epoch                                 seconds an epoch of the digits, by loss and distance
    python benchmarks/tap.py accuracy --metric FOLDER              of a metric of the digits, by fused kernels and not

A result that is wrong is not timed. Rows go to benchmarks/results/tap.jsonl, unless --no-rows. ``--tune`` tries other
constants of ops/tap/gpu, and changes none there.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from measure import interleave
from torch import Tensor
from torch.nn import functional

from likewise import Batch, FrameMLP, Metric
from likewise.distances.dtw import DTW
from likewise.distances.soft_dtw import SoftDTW
from likewise.distances.tap import TAP
from likewise.losses import HardMining

RESULTS = Path(__file__).parent / "results"
sys.path.append(str(Path(__file__).parents[1]))  # for papers/, which is not installed
TOLERANCE = 2e-3  # relative: convolutions in float16
BAR = 1e6  # pairs a second at 40 x 40 x 13
STEPS, CHANNELS, COUNT = 40, 13, 2000
SOME = 256  # sequences on a side for what is slow
FIGURE_BATCH, FIGURE_CHANNELS, FIGURE_STEPS = 64, 500, 100
# Batch, steps, channels, and the most milliseconds that a training step should take.
STEPS_OF = {"cuda": [(64, 51, 24, 12), (64, 144, 9, 100), (64, 206, 3, 210)], "cpu": [(32, 64, 13, None)]}
GRADIENT_TOLERANCE = {True: 1e-3, False: 2e-2}  # exact, and in half precision; relative, of all parameters together


class Unfused(TAP):
    """TAP by PyTorch's convolutions, each followed by passes for its bias, ReLU and mask."""

    dtype = torch.float32

    def correction(self, D: Tensor, time: Tensor, inside: Tensor | None = None) -> Tensor:
        """g; channels in eights and last, as the matrix units want them."""
        h = functional.pad(torch.stack([D, time], 1), (0, 0, 0, 0, 0, 6)).to(self.dtype)
        h = h.contiguous(memory_format=torch.channels_last)
        for k, convolution in enumerate(self.convolutions):
            if k > 0:
                h = h.relu() if inside is None else h.relu() * inside[:, None]
            more = -len(convolution.weight) % 8
            weight = functional.pad(
                convolution.weight, (0, 0, 0, 0, 0, h.shape[1] - convolution.weight.shape[1], 0, more)
            )
            bias = functional.pad(convolution.bias, (0, more))
            h = functional.conv2d(h, weight.to(h), bias.to(h), padding=weight.shape[2] // 2)
        return h[:, 0].to(D.dtype)


class UnfusedHalf(Unfused):
    """The same in float16."""

    dtype = torch.float16


def frames(count: int, steps: int, channels: int) -> Tensor:
    """Of unit length, as ``FrameMLP`` gives them."""
    return functional.normalize(torch.randn(count, steps, channels), dim=2)


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Median of a call as a user sees it; what takes long runs once, after a first time that does not count."""
    found: list[float] = []
    for k in range(repeats + 1):
        begin = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found += [time.perf_counter() - begin] if k else []
        if found and found[-1] > 2:
            break
    return statistics.median(found)


def error(found: Tensor, expected: Tensor) -> float:
    """Largest relative error."""
    return ((found.double().cpu() - expected).abs() / expected).max().item()


def sequences(kind: str, count: int) -> Batch:
    lengths = torch.full((count,), STEPS) if kind == "even" else torch.randint(4, 94, (count,))
    return Batch(frames(count, int(lengths.max()), CHANNELS), lengths)


def pairs(kind: str) -> dict[str, Any]:
    """All pairs of sequences of 40 frames, or of 4 to 93 as in Spoken Arabic Digits."""
    torch.manual_seed(0)
    tap, x = TAP(), sequences(kind, COUNT)
    there = x.to("cuda")
    expected = tap.double().matrix(
        Batch(x.values[:40].double(), x.lengths[:40]), Batch(x.values[-60:].double(), x.lengths[-60:])
    )
    ways = {"fused": tap.float().to("cuda")}
    for name, kind_of in (("cuDNN float16", UnfusedHalf), ("float32", Unfused)):
        ways[name] = kind_of().to("cuda")
        ways[name].load_state_dict(tap.state_dict())
    row: dict[str, Any] = {
        "case": f"all pairs, {kind} lengths, {CHANNELS} channels",
        "bar": BAR,
        "errors": {},
        "pairs_per_second": {},
    }
    for name, way in ways.items():
        wrong = error(way.matrix(there[:40], there[-60:]), expected)
        row["errors"][name] = wrong
        some = there if name == "fused" else there[:SOME]
        if wrong <= TOLERANCE:
            torch.cuda.reset_peak_memory_stats()
            row["pairs_per_second"][name] = len(some) ** 2 / seconds(
                lambda way=way, some=some: way.matrix(some), repeats=3
            )
            row[f"{name}_peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return row


def tune() -> None:
    """Pairs a second with other constants: each group of them in turn, the best of one kept for the next."""
    from likewise.ops.tap import gpu
    from likewise.ops.tap.gpu import convolutions

    tap, x = TAP().to("cuda"), sequences("even", 400).to("cuda")
    middle = ("MIDDLE_ROWS", "MIDDLE_WARPS", "MIDDLE_STAGES", "MIDDLE_CACHE")
    for module, names, values in (
        (convolutions, middle, itertools.product((64, 128, 256), (4, 8), (2, 3, 4), (".ca", ".cg"))),
        (convolutions, ("FIRST_BLOCK", "FIRST_WARPS"), itertools.product((64, 128, 256), (4, 8))),
        (gpu, ("ATTEND_CELLS", "ATTEND_WARPS"), itertools.product((512, 1024, 2048), (2, 4, 8))),
        (gpu, ("DISTANCE_BLOCK", "DISTANCE_WARPS"), itertools.product((128, 256, 512), (4, 8))),
        (gpu, ("SCRATCH_BYTES",), ((1 << k,) for k in (27, 28, 29, 30, 31))),
    ):
        rates = {tuple(getattr(module, name) for name in names): 0.0}
        for chosen in (*rates, *values):
            vars(module).update(zip(names, chosen, strict=True))
            try:
                rates[chosen] = len(x) ** 2 / seconds(lambda: tap.matrix(x), repeats=3)
            except Exception as refused:  # what the compiler or the machine has no room for
                print(names, chosen, type(refused).__name__, str(refused)[:100])
        vars(module).update(zip(names, max(rates, key=lambda one: rates[one]), strict=True))
        for chosen, rate in sorted(rates.items(), key=lambda one: -one[1]):
            print(
                f"{rate / 1e6:.3f} million pairs/s",
                *(f"{n}={c}" for n, c in zip(names, chosen, strict=True)),
                flush=True,
            )
    profile(lambda: tap.matrix(x))


def profile(work: Callable[[], object]) -> None:
    """Where the time goes, kernel by kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        work()
        torch.cuda.synchronize()
    print(found.key_averages().table(sort_by="cuda_time_total", row_limit=8, max_name_column_width=40))


def figure(steps: int, channels: int, device: str) -> dict[str, Any]:
    """Milliseconds of a batch of pairs, without gradients."""
    torch.manual_seed(0)
    x, y = frames(FIGURE_BATCH, steps, channels), frames(FIGURE_BATCH, steps, channels)
    tap, a, b = TAP(), x.to(device), y.to(device)
    short = slice(0, min(steps, 200))  # float64 on the CPU is slow
    expected = tap.double()(x[:1, short].double(), y[:1, short].double())
    tap = tap.float().to(device)
    wrong = error(tap(a[:1, short], b[:1, short]), expected)
    ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"SoftDTW": SoftDTW(), "DTW": DTW()}
    if wrong <= TOLERANCE:
        ways = {"TAP": tap, **ways}
    found = {name: 1e3 * seconds(lambda way=way: way(a, b)) for name, way in ways.items()}
    row = {"case": "figure 3", "batch": FIGURE_BATCH, "steps": steps, "channels": channels, "device": device}
    faster = [name for name in found if found[name] < found.get("TAP", 0)]
    return {**row, "error": wrong, "ms": found, "faster_than_tap": faster}


def plot(rows: list[dict[str, Any]], device: str) -> None:
    """Against length and against dimension, as in the paper."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    drawing, panels = plt.subplots(1, 2, figsize=(9, 3.5), constrained_layout=True)
    for panel, along, fixed, at in zip(
        panels, ("steps", "channels"), ("channels", "steps"), (FIGURE_CHANNELS, FIGURE_STEPS), strict=True
    ):
        some = sorted((row for row in rows if row[fixed] == at), key=lambda row: row[along])
        for name in ("TAP", "SoftDTW", "DTW"):
            panel.plot([row[along] for row in some], [row["ms"].get(name) for row in some], marker="o", label=name)
        panel.set(xlabel=along, ylabel=f"ms for {FIGURE_BATCH} pairs", yscale="log", title=f"{fixed} {at}, {device}")
        panel.legend()
    drawing.savefig(RESULTS / f"tap_{device}.png", dpi=150)


def step(
    batch: int, steps: int, channels: int, bar: float | None, device: str, exact: bool, alone: bool
) -> dict[str, Any]:
    """Milliseconds of a loss with hard mining and its backward pass; gradients of eight items are checked.

    On a CPU, beside those of PyTorch's convolutions, which compute the same.
    """
    torch.manual_seed(0)
    x, labels = torch.randn(batch, steps, channels, device=device), torch.arange(batch, device=device) % 4
    metric, measure = Metric(FrameMLP(channels), TAP()).to(device), HardMining()

    def gradients(items: int) -> Tensor:
        metric.zero_grad(set_to_none=True)
        D = metric.matrix(x[:items])
        D.retain_grad()
        measure(D, labels[:items]).backward()
        row["with_slope"] = float((D.grad != 0).double().mean())
        return torch.cat([parameter.grad.flatten() for parameter in metric.parameters()]).double()

    def train() -> None:
        metric.zero_grad(set_to_none=True)
        measure(metric.matrix(x), labels).backward()

    def by_torch() -> None:
        with mock.patch("likewise.ops.tap.cpu.fits", return_value=False):
            train()

    row: dict[str, Any] = {"case": "training step", "batch": batch, "steps": steps, "channels": channels}
    row |= {"device": device, "exact": exact, "bar_ms": bar}
    found = gradients(8)
    metric.double()
    x = x.double()
    row["gradient_error"] = float((found - gradients(8)).norm() / gradients(8).norm())
    metric.float()
    x = x.float()
    gradients(batch)  # of all items: how many pairs have a slope
    if row["gradient_error"] <= GRADIENT_TOLERANCE[exact]:
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            row["step_ms"] = 1e3 * seconds(train)
            row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        else:
            runs = {"step": train, "torch": by_torch}
            found = interleave(runs, repeats=7, clock=time.process_time if alone else time.perf_counter)
            row["clock"] = "processor" if alone else "wall"
            row |= {f"{name}_ms": 1e3 * each for name, each in found.items()}
            row |= {"times_faster": found["torch"] / found["step"], "load": os.getloadavg()[0]}
    return row


def epoch(distance: str, loss: str, train: Batch, labels: Tensor, steps: int = 30) -> dict[str, Any]:
    """Seconds of an epoch of training in bfloat16, from the median step of the paper's batches of 64."""
    from likewise.training.step import Step
    from papers.tap import run as recipe

    torch.manual_seed(0)
    kinds = recipe.LOSSES if distance == "tap" else recipe.LOSSES_OF_SUMS
    metric = Metric(FrameMLP(CHANNELS, out=CHANNELS), recipe.DISTANCES[distance](CHANNELS)).to("cuda").train()
    optimizer, measure = torch.optim.Adam(metric.parameters(), 1e-4), kinds[loss]()
    found: list[float] = []
    for index in torch.randperm(len(train))[: 64 * (steps + 5)].split(64):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            step = Step(metric, train[index.to("cuda")], labels[index].to("cuda"))
            value = measure(step.D, step.labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - begin)
    each = statistics.median(found[5:])
    case = {"case": "epoch", "data": "sad", "distance": distance, "loss": loss}
    return {**case, "step_ms": 1e3 * each, "seconds_an_epoch": each * (len(train) // 64)}


def accuracy(folder: Path, train: Batch, labels: Tensor, test: Batch, expected: Tensor, every: int) -> dict[str, Any]:
    """1-NN accuracy of every so-manieth test utterance by fused kernels, and by plain float32 convolutions."""
    metric = Metric.load(folder).to("cuda").eval()
    plain = Unfused()
    plain.load_state_dict(metric.distance.state_dict())
    references, queries = metric.embed(train), metric.embed(test[::every])
    row: dict[str, Any] = {
        "case": "1-NN accuracy",
        "data": "sad",
        "queries": len(queries),
        "accuracy": {},
        "seconds": {},
    }
    nearest = {}
    for name, way in (("fused", metric.distance), ("float32", plain.to("cuda"))):
        begin = time.perf_counter()
        nearest[name] = way.matrix(queries, references).argmin(1).cpu()
        row["seconds"][name] = time.perf_counter() - begin
        row["accuracy"][name] = float((labels[nearest[name]] == expected[::every]).double().mean())
    return {**row, "same_neighbor": float((nearest["fused"] == nearest["float32"]).double().mean())}


def digits() -> tuple[Batch, Tensor, Batch, Tensor]:
    """The paper's training and test utterances, on the device, and their labels."""
    from papers.tap.data import read_digits

    train, test = read_digits(Path(os.environ.get("LIKEWISE_DATA", ".")))
    return train.items.to("cuda"), train.codes, test.items.to("cuda"), test.codes


def where() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": os.environ.get("COMMIT", commit.stdout.strip()),
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pairs", "figure", "step", "epoch", "accuracy"])
    parser.add_argument("--metric", type=Path, help="of accuracy: a folder that papers.tap.run kept")
    parser.add_argument("--every", type=int, default=8, help="of accuracy: one of so many test utterances")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--longest", type=int, default=1000, help="of figure: frames and channels up to this")
    parser.add_argument("--plot", action="store_true", help="of figure: draw benchmarks/results/tap_<device>.png")
    parser.add_argument("--tune", action="store_true", help="of pairs: try other constants")
    parser.add_argument("--exact", action="store_true", help="of step: allow no half precision")
    parser.add_argument("--alone", action="store_true", help="of step on a CPU: one thread's processor time")
    parser.add_argument("--no-rows", action="store_true", help="print only; keep no rows")
    options = parser.parse_args()
    if options.alone:
        torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        print(json.dumps(row), flush=True)

    if options.what == "step":
        torch.backends.cudnn.allow_tf32 = not options.exact
        for given in STEPS_OF[options.device]:
            keep(step(*given, options.device, options.exact or options.device == "cpu", options.alone))
    if options.what == "epoch":
        train, labels, *_ = digits()
        for distance, loss in itertools.product(("tap", "softdtw"), ("hm", "lifted", "binomial")):
            keep(epoch(distance, loss, train, labels))
    with torch.no_grad():
        if options.what == "accuracy":
            keep(accuracy(options.metric, *digits(), options.every))
        elif options.what == "pairs":
            for kind in ("even", "uneven"):
                keep(pairs(kind))
            if options.tune:
                tune()
        elif options.what == "figure":
            sizes = range(100, options.longest + 1, 100)
            for steps, channels in dict.fromkeys(
                [*((size, FIGURE_CHANNELS) for size in sizes), *((FIGURE_STEPS, size) for size in sizes)]
            ):
                keep(figure(steps, channels, options.device))
            slow = [f"{row['steps']} x {row['channels']}" for row in rows if row["faster_than_tap"]]
            print("TAP is not the fastest at (frames x channels):", ", ".join(slow) or "none")
            if options.plot:
                plot(rows, options.device)
    if not options.no_rows:
        with open(RESULTS / "tap.jsonl", "a") as file:
            file.writelines(json.dumps(row | where()) + "\n" for row in rows)


if __name__ == "__main__":
    main()
