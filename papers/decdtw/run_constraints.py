"""Learn GDTW's constraints with the features: what "Deep declarative dynamic time warping" leaves for later.

    python -m likewise.recipes.learnable_constraints --seeds 3 --plot constraints.png

Signals repeat a motif, so that a warp can slip by a whole period; among their channels are ones that say nothing. The
true warps stay close to the diagonal at first and swing off it later on. Learned, by TimeErr through the warp, are

    features      a linear map of the channels,
    lambda        what bends cost, a number,
    band          how far from the diagonal a warp may be, a width for each of eight times,

alone and together. They begin as what a user would have tried without learning: the channels themselves, and the
lambda and the constant band, of a grid, that are best on validation pairs. What is not learned stays so. Every variant
keeps the step that was best on validation pairs, and is scored on test pairs.
Prints a JSON line for each seed and variant, then a table; draws the learned band beside the warps that it is for.

What it shows (results/learnable_constraints.jsonl, mean TimeErr of three seeds): nothing learned 17.4, lambda and band
16.0, features 10.8, features and lambda 10.7, features and band 9.1, all 9.2. The band helps in every seed, and comes
to enclose the true warps; lambda, once chosen on a grid, has nothing to gain. Where the true warps are smooth enough
for a stiff lambda, a band has nothing to add either; nor has it on the audio slices of
``likewise.recipes.audio_score``, whose true warps leave the diagonal by up to 0.4 of the duration: bands of 0.2 and
less harm there.
"""

import copy
import itertools
import math
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import likewise as lw
from likewise.recipes.common import emit

STEPS = 48  # frames of a signal
CHANNELS, INFORMATIVE = 6, 2
PERIODS = 5  # of the motif in a signal
WANDER = 0.06  # how far the true warps leave the diagonal, at most
NOISE = 0.6
REGS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
BANDS = (0.05, 0.1, 0.15, 0.2, 0.5)  # no warp touches the last
BAND_KNOTS = 8
VARIANTS = {
    "nothing": (),
    "lambda and band": ("reg", "band"),
    "features": ("features",),
    "features and lambda": ("features", "reg"),
    "features and band": ("features", "band"),
    "all": ("features", "reg", "band"),
}


@dataclass(frozen=True)
class Pairs:
    """x (N, T, C) is the reference, y (N, T, C) what it is warped to; truth (N, T), the warps at y's times (T,)."""

    x: Tensor
    y: Tensor
    truth: Tensor
    times: Tensor

    def __getitem__(self, index: Tensor) -> "Pairs":
        return Pairs(self.x[index], self.y[index], self.truth[index], self.times)


class Aligner(nn.Module):
    """GDTW on mapped channels, with a lambda and a band that may be learned."""

    def __init__(self, reg: float, band: float, learned: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.features = nn.Linear(CHANNELS, CHANNELS, bias=False)
        nn.init.eye_(self.features.weight)
        # Logarithms, so that both stay positive.
        self.log_reg = nn.Parameter(torch.tensor(math.log(reg)))
        self.log_band = nn.Parameter(torch.full((BAND_KNOTS,), math.log(band)))
        self.features.requires_grad_("features" in learned)
        self.log_reg.requires_grad_("reg" in learned)
        self.log_band.requires_grad_("band" in learned)

    @property
    def reg(self) -> Tensor:
        """lambda, ()."""
        return self.log_reg.exp()

    @property
    def band(self) -> Tensor:
        """Widths (8,) at times spread evenly."""
        return self.log_band.exp()

    def forward(self, pairs: Pairs) -> lw.Warp:
        """The warps of all pairs."""
        return lw.GDTW(self.reg, band=self.band).warp(self.features(pairs.x), self.features(pairs.y))


def main(
    seeds: Annotated[int, typer.Option(help="How many runs of each variant, from seed 0.")] = 3,
    steps: Annotated[int, typer.Option(help="Steps of learning.")] = 150,
    pairs: Annotated[int, typer.Option(help="How many to learn from; as many validate, and twice as many test.")] = 100,
    batch_size: int = 20,
    lr: float = 0.02,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the learned band.")] = None,
) -> None:
    """Learn features, lambda and a band, alone and together."""
    lines = []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        train, val, test = (make_pairs(count, generator) for count in (pairs, pairs, 2 * pairs))
        reg, band = min(itertools.product(REGS, BANDS), key=lambda grid: time_err(Aligner(*grid), val))
        for variant, learned in VARIANTS.items():
            start = time.perf_counter()
            aligner, curve = learn(Aligner(reg, band, learned), train, val, steps, batch_size, lr, generator)
            line = {
                "recipe": "learnable_constraints", "learned": variant, "seed": seed, "steps": steps, "pairs": pairs,
                "batch_size": batch_size, "lr": lr, "reg_before": reg, "band_before": band, "reg": aligner.reg.item(),
                "band": [round(width, 4) for width in aligner.band.tolist()], "val_time_err": min(curve),
                "time_err": time_err(aligner, test), "wall_time": time.perf_counter() - start, "device": "cpu",
            }  # fmt: skip
            lines.append(line)
            emit(line, out)
            if plot is not None and variant == "all" and seed == 0:
                draw(plot, aligner, test)
    print_table(lines)


def make_pairs(count: int, generator: torch.Generator) -> Pairs:
    """Pairs whose second signal is the first one, warped, in noise."""
    times = torch.linspace(0, 1, STEPS)
    # Zero at both ends, small at first, and widest at two thirds of the time.
    shape = 6.75 * times.square() * (1 - times)
    frequency, begin, phase = torch.rand(3, count, 1, generator=generator)
    swing = torch.sin(2 * math.pi * ((0.5 + 1.5 * frequency) * times + begin))  # half a swing to two of them
    truth = times + WANDER * shape * swing

    def motif(at: Tensor) -> Tensor:
        turn = 2 * math.pi * (PERIODS * at + phase)
        return torch.stack([turn.sin(), turn.cos() + 0.3 * (2 * turn).sin()], 2)

    def noisy(signal: Tensor) -> Tensor:
        noise = torch.randn(count, STEPS, CHANNELS, generator=generator)
        noise = (noise + noise.roll(1, 1) + noise.roll(2, 1)) / math.sqrt(3)  # neighbouring frames err alike
        noise[..., :INFORMATIVE] *= NOISE
        return torch.cat([signal, torch.zeros(count, STEPS, CHANNELS - INFORMATIVE)], 2) + noise

    return Pairs(noisy(motif(times.expand(count, -1))), noisy(motif(truth)), truth, times)


def learn(
    aligner: Aligner, train: Pairs, val: Pairs, steps: int, batch_size: int, lr: float, generator: torch.Generator
) -> tuple[Aligner, list[float]]:
    """The aligner after the best of its steps, and its TimeErr on the validation pairs every tenth step."""
    parameters = [parameter for parameter in aligner.parameters() if parameter.requires_grad]
    curve, best = [time_err(aligner, val)], copy.deepcopy(aligner)
    if not parameters:
        return best, curve
    optimizer = torch.optim.Adam(parameters, lr)
    for step in range(1, steps + 1):
        part = train[torch.randint(len(train.x), (batch_size,), generator=generator)]
        loss = lw.losses.TimeError()(aligner(part)(part.times), part.truth, part.times)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == steps:
            curve.append(time_err(aligner, val))
            if curve[-1] <= min(curve):
                best = copy.deepcopy(aligner)
    return best, curve


@torch.no_grad()
def time_err(aligner: Aligner, pairs: Pairs) -> float:
    """Mean TimeErr, in thousandths of a signal's duration."""
    return 1000 * float(lw.time_error(aligner(pairs)(pairs.times), pairs.truth, pairs.times).mean())


def draw(path: Path, aligner: Aligner, pairs: Pairs) -> None:
    """Draw the true warps and the ones found, less the diagonal, within the learned band."""
    from matplotlib.figure import Figure

    with torch.no_grad():
        found, band = aligner(pairs)(pairs.times), aligner.band
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    spread = torch.linspace(0, 1, len(band))
    for ax, title, warps in zip(
        figure.subplots(1, 2, sharey=True), ("true warps", "found warps"), (pairs.truth, found), strict=True
    ):
        ax.plot(pairs.times, (warps - pairs.times).T[:, :60], color="tab:blue", linewidth=0.6, alpha=0.5)
        for side in (band, -band):
            ax.plot(spread, side, color="tab:red", linewidth=1.5)
        ax.set(title=title, xlabel="time", ylim=(-2.5 * WANDER, 2.5 * WANDER))
        ax.label_outer()
    figure.axes[0].set_ylabel("distance from the diagonal; the band in red")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def print_table(lines: list[dict]) -> None:
    """Print means over seeds."""
    table = Table(title="TimeErr on test pairs, thousandths of the duration")
    for heading in ("learned", "seeds", "TimeErr", "each seed", "lambda", "band"):
        table.add_column(heading, justify="left" if heading == "learned" else "right")
    for variant in dict.fromkeys(line["learned"] for line in lines):
        same = [line for line in lines if line["learned"] == variant]
        table.add_row(
            variant,
            str(len(same)),
            f"{statistics.mean(line['time_err'] for line in same):.2f}",
            " ".join(f"{line['time_err']:.1f}" for line in same),
            f"{statistics.geometric_mean([line['reg'] for line in same]):.3g}",
            " ".join(f"{statistics.mean(widths):.2f}" for widths in zip(*(line["band"] for line in same), strict=True)),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    typer.run(main)
