"""The cost of attended features, adversaries and joint representation similarity in a training step at batch 100.

    python benchmarks/unseen_classes.py [--device cuda] [--items images] [--alone] [--repeats 5] [--no-rows]

Images: EfficientNet-Lite0 at 96 px, three layers attended. Sequences: a TCN over 128 steps of 9 channels, two layers,
by 16 hidden features. Attention has 4 % of that step's multiplications; the rest of what it adds is memory that is not
in the cache, and gradients of the maps that are added to others. On a GPU small steps last as long as their launches
take.
--alone: one thread, and its processor time instead of the clock's, which others on the machine hardly change.
The step is the whole of one: forward, AM-softmax, backward, Adam. The similarity is checked against plain loops first.
Rows go to benchmarks/results/unseen_classes.jsonl.
"""

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Callable

import torch
from measure import RESULTS, check, interleave
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from likewise import TCN, Batch, Euclidean, Metric
from likewise.losses import AMSoftmax
from likewise.models.attended_features import AttendedFeatures
from likewise.models.attention import Additive
from likewise.models.embedder import Embedder
from likewise.models.frozen_batch_norm import freeze_batch_norm
from likewise.regularizers import JointRepresentationSimilarity
from likewise.training.adversary import AdaptiveAdversary
from likewise.training.regularizer import Regularizer
from likewise.training.step import Step

BATCH, CLASSES, SIZE, STEPS, CHANNELS = 100, 51, 96, 128, 9
TURN = 0.3  # seconds of one kind of step before the next has its turn: training runs one kind only
BARS = {  # the most of a step that each may add
    "cpu": {"similarity": 0.10, "attended": 0.08},
    "cuda": {"similarity": 0.08, "attended": 0.10, "all": 0.25},
}


class Lite0(nn.Module):
    """EfficientNet-Lite0's last map, (B, 1280, 3, 3) at 96 px; weights are random, batch norm has seen some images."""

    num_features = 1280

    def __init__(self) -> None:
        super().__init__()
        from efficientnet_lite_pytorch import EfficientNet

        network = EfficientNet.from_name("efficientnet-lite0")
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.momentum = None  # of all batches, here of one; with none, all images would end up alike
        with torch.no_grad():
            network.train().extract_features(torch.randn(16, 3, SIZE, SIZE))
        self.network = freeze_batch_norm(network)

    def forward(self, images: Tensor) -> Tensor:
        return self.network.extract_features(images)


def check_similarity(device: str) -> None:
    """The similarity on this device against loops in float64."""
    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(12, c, generator=generator, dtype=torch.float64) for c in (7, 5, 4)]
    labels = torch.arange(12) % 5
    values = []
    for i in range(12):
        for j in range(12):
            if labels[i] != labels[j]:
                product = 1.0
                for x, widths in zip(layers, ((0.5, 1, 2), (0.5, 1, 2), (1,)), strict=True):
                    width = torch.cdist(x, x).square().sum() / (12 * 11)
                    apart = (x[i] - x[j]).square().sum()
                    product *= float(sum(torch.exp(-apart / (w * width)) for w in widths)) / len(widths)
                values.append(product)
    found = JointRepresentationSimilarity()([x.float().to(device) for x in layers], labels)
    check("similarity", [found.item()], [sum(values) / len(values)], 1e-5)


def training_step(
    kind: str, device: str, *, attended: bool, similarity: bool, adversary: bool, half: bool = False
) -> Callable[[], None]:
    """One step of training, ready to run; half: in bfloat16, as "bf16-mixed" of ``fit`` has it."""
    torch.manual_seed(0)
    if kind == "images":
        backbone: nn.Module = Lite0()
        layers = [f"network._blocks.{i}" for i in (10, 14, 15)]
        items: Batch | Tensor = torch.randn(BATCH, 3, SIZE, SIZE, device=device)
    else:
        backbone, layers = TCN(CHANNELS, 64, steps=False), ["convolutions.1", "convolutions.2"]
        items = Batch(torch.randn(BATCH, STEPS, CHANNELS, device=device), torch.randint(64, STEPS + 1, (BATCH,)))
    if attended:
        attention = Additive() if kind == "images" else Additive(16)
        backbone = AttendedFeatures(backbone, layers, attention, example=items[:1].to("cpu"))
    metric = Metric(Embedder(backbone, 64), Euclidean()).to(device).train()
    loss = AMSoftmax(CLASSES, 64).to(device)
    labels = torch.arange(BATCH) % CLASSES
    terms: list[nn.Module] = []
    if similarity:
        terms.append(Regularizer(JointRepresentationSimilarity(), of=["backbone", None, loss.cosines]))
    if adversary:
        against = AdaptiveAdversary(0.5)
        against.prepare(metric, items, labels)
        terms.append(against)
    parameters = [p for part in (metric, loss, *terms) for p in part.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-5, fused=device != "cpu")
    names = sorted({name for term in terms for name in term.layers})  # type: ignore[union-attr]

    def run() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=half), loss.sharing():
            step = Step(metric, items, labels.to(device), layers=tuple(names))
            total = loss(step.features, step.labels)
            for term in terms:
                total = total + term(step)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        total.item()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--items", choices=("sequences", "images"), default=None, help="both by default")
    parser.add_argument("--repeats", type=int, default=5, help="repeats, of which the median counts")
    parser.add_argument("--alone", action="store_true", help="one thread's processor time")
    parser.add_argument("--no-rows", action="store_true", help="print only; write no rows")
    options = parser.parse_args()
    if options.alone:
        torch.set_num_threads(1)
    check_similarity(options.device)
    plain = {"attended": False, "similarity": False, "adversary": False}
    cases = {"plain": plain} | {name: plain | {name: True} for name in plain} | {"all": dict.fromkeys(plain, True)}
    if options.device != "cpu":
        torch.set_float32_matmul_precision("high")  # as the recipe has it
        cases["plain, bfloat16"] = plain | {"half": True}
    table = Table("items", "step", "ms", "more than plain", "bar")
    rows = []
    for kind in ("sequences", "images") if options.items is None else (options.items,):
        runs = {name: training_step(kind, options.device, **case) for name, case in cases.items()}
        for run in runs.values():
            run()
        clock = time.process_time if options.alone else time.perf_counter
        seconds = interleave(runs, options.repeats, turn=TURN, clock=clock)
        for name, found in seconds.items():
            more = found / seconds["plain"] - 1
            bar = BARS.get(options.device, {}).get(name)
            table.add_row(kind, name, f"{1e3 * found:.1f}", f"{more:+.1%}", "" if bar is None else f"{bar:.0%}")
            rows.append({"items": kind, "step": name, "seconds": found, "more": more, "bar": bar, "batch": BATCH})
    Console(width=100).print(table)
    if options.no_rows:
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    machine = torch.cuda.get_device_name() if options.device != "cpu" else platform.processor() or platform.machine()
    about = {"commit": commit, "device": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}
    about["clock"] = "processor" if options.alone else "wall"
    with (RESULTS / "unseen_classes.jsonl").open("a", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row | about) + "\n")


if __name__ == "__main__":
    main()
