"""Learn GDTW's constraints with the features: what the paper leaves for later.

    python -m papers.decdtw.run_constraints --seeds 0 1 2 --plot constraints.png

Signals repeat a motif, so that a warp can slip by a whole period; some of their channels are noise alone. The true
warps stay close to the diagonal at first and swing off it later on. Learned, by TimeErr through the warp, are

    features      a linear map of the channels,
    lambda        the penalty of bends, a number,
    band          how far from the diagonal a warp may be, a width for each of eight times,

alone and together. They start from what a user would try without learning: the channels themselves, and the lambda and
the constant band, of a grid, that are best on validation pairs. What is not learned keeps this value. Every variant
keeps the step that was best on validation pairs, and is scored on test pairs.
"""

import itertools
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import likewise as lw
from likewise.training import AlignedPairs
from papers.common import Run, emit, from_command_line

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
class Settings:
    """How long every variant learns, and from how many pairs."""

    steps: int = 150
    pairs: int = 100  # to learn from; as many validate, and twice as many test
    batch_size: int = 20
    lr: float = 0.02


@dataclass(frozen=True)
class Figure(Run):
    """Which seeds run, and what is drawn."""

    plot: Path | None = None  # draw the learned band beside the true warps


def main(run: Figure, settings: Settings) -> None:
    """Learn features, lambda and a band, alone and together."""
    for seed in run.seeds:
        generator = torch.Generator().manual_seed(seed)
        train, val, test = (make_pairs(settings.pairs * times, generator) for times in (1, 1, 2))
        reg, band = min(itertools.product(REGS, BANDS), key=lambda grid: time_err(build(*grid), val))
        for variant, learned in VARIANTS.items():
            start, metric = time.perf_counter(), build(reg, band, learned)
            val_time_err = learn(metric, settings, train, val, seed) if learned else time_err(metric, val)
            line = {
                "recipe": "learnable_constraints", "learned": variant, "seed": seed, **asdict(settings),
                "reg_before": reg, "band_before": band, "reg": metric.distance.reg.item(),
                "band": [round(width, 4) for width in metric.distance.band.tolist()], "val_time_err": val_time_err,
                "time_err": time_err(metric, test), "wall_time": time.perf_counter() - start, "device": "cpu",
            }  # fmt: skip
            emit(line, run.out)
            if run.plot is not None and variant == "all" and seed == run.seeds[0]:
                draw(run.plot, metric, test)


def make_pairs(count: int, generator: torch.Generator) -> AlignedPairs:
    """Pairs in noise: x (N, T, C) is y at the times of the true warps, (N, T)."""
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

    y, x = noisy(motif(times.expand(count, -1))), noisy(motif(truth))
    return AlignedPairs(x, y, truth)


def build(reg: float, band: float, learned: tuple[str, ...] = ()) -> lw.Metric:
    """GDTW on mapped channels, with a lambda and a band that may be learned; the map begins as the identity."""
    features = lw.FrameMLP(CHANNELS, out=CHANNELS, depth=0, normalize=False, standardize=False)
    (layer,) = features.layers
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    layer.weight.requires_grad_("features" in learned)
    layer.bias.requires_grad_(False)
    strength, widths = torch.tensor(reg), torch.full((BAND_KNOTS,), band)
    return lw.Metric(
        features,
        lw.GDTW(
            nn.Parameter(strength) if "reg" in learned else strength,
            band=nn.Parameter(widths) if "band" in learned else widths,
        ),
    )


def learn(metric: lw.Metric, settings: Settings, train: AlignedPairs, val: AlignedPairs, seed: int) -> float:
    """Train the metric, and leave it as it was at the best step; its TimeErr on the validation pairs there."""
    history = lw.fit(
        metric,
        train,
        lw.losses.TimeError(),
        val=lw.training.Validation(lambda metric: time_err(metric, val), every_steps=10, lowest=True, before=True),
        epochs=-(-settings.steps * settings.batch_size // len(train)),
        batch_size=settings.batch_size,
        lr=settings.lr,
        optimizer=lw.training.Optimization(weight_decay=0.0),
        average=0,
        seed=seed,
        verbose=False,
        accelerator="cpu",
    )
    return history.best["score"]


@torch.no_grad()
def warps(metric: lw.Metric, pairs: AlignedPairs) -> Tensor:
    """The warps that are found, (N, T), at x's frames."""
    return metric.distance.warp(metric.embed(pairs.x), metric.embed(pairs.y)).values


def time_err(metric: lw.Metric, pairs: AlignedPairs) -> float:
    """Mean TimeErr, in thousandths of a signal's duration."""
    times = torch.linspace(0, 1, STEPS)
    return 1000 * float(lw.evaluation.time_error(warps(metric, pairs), pairs.truth, times).mean())


def draw(path: Path, metric: lw.Metric, pairs: AlignedPairs) -> None:
    """Draw the true warps and the ones found, less the diagonal, within the learned band."""
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(8.4, 3.6), layout="constrained")
    times, band = torch.linspace(0, 1, STEPS), metric.distance.band.detach()
    axes = figure.subplots(1, 2, sharey=True)
    for ax, title, found in zip(axes, ("true warps", "found warps"), (pairs.truth, warps(metric, pairs)), strict=True):
        ax.plot(times, (found - times).T[:, :60], color="tab:blue", linewidth=0.6, alpha=0.5)
        for side in (band, -band):
            ax.plot(torch.linspace(0, 1, len(band)), side, color="tab:red", linewidth=1.5)
        ax.set(title=title, xlabel="time", ylim=(-2.5 * WANDER, 2.5 * WANDER))
        ax.label_outer()
    axes[0].set_ylabel("distance from the diagonal; the band in red")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(*from_command_line(Figure(), Settings()))
