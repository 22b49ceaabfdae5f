"""Learn GDTW's constraints with the features: what the paper leaves for later.

    python -m papers.decdtw.run_constraints --seeds 0 1 2 --plot constraints.png

Signals repeat a motif, so that a warp can slip by a whole period; some of their channels are noise alone. The true
warps stay close to the diagonal at first and swing off it later on. Learned, by TimeErr through the warp, are

    features      a linear map of the channels,
    lambda        what bends cost, a number,
    band          how far from the diagonal a warp may be, a width for each of eight times,

alone and together. They begin as what a user would have tried without learning: the channels themselves, and the
lambda and the constant band, of a grid, that are best on validation pairs. What is not learned stays so. Every variant
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
        reg, band = min(itertools.product(REGS, BANDS), key=lambda grid: time_err(Aligner(*grid), val))
        for variant, learned in VARIANTS.items():
            start = time.perf_counter()
            aligner = Aligner(reg, band, learned)
            val_time_err = learn(aligner, settings, train, val, seed)
            line = {
                "recipe": "learnable_constraints", "learned": variant, "seed": seed, **asdict(settings),
                "reg_before": reg, "band_before": band, "reg": aligner.reg.item(),
                "band": [round(width, 4) for width in aligner.band.tolist()], "val_time_err": val_time_err,
                "time_err": time_err(aligner, test), "wall_time": time.perf_counter() - start, "device": "cpu",
            }  # fmt: skip
            emit(line, run.out)
            if run.plot is not None and variant == "all" and seed == run.seeds[0]:
                draw(run.plot, aligner, test)


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


def learn(aligner: Aligner, settings: Settings, train: Pairs, val: Pairs, seed: int) -> float:
    """Train the aligner, and leave it as it was at the best step; its TimeErr on the validation pairs there."""
    if not any(parameter.requires_grad for parameter in aligner.parameters()):
        return time_err(aligner, val)

    def loss(step: lw.training.Step) -> Tensor:
        part = train[step.index]
        return lw.losses.TimeError()(aligner(part)(part.times), part.truth, part.times)

    history = lw.fit(
        lw.Metric(aligner, lw.GDTW()),
        train.x,
        step=loss,
        val=lw.training.Validation(lambda _: time_err(aligner, val), every_steps=10, lowest=True, before=True),
        epochs=-(-settings.steps * settings.batch_size // len(train.x)),
        batch_size=settings.batch_size,
        lr=settings.lr,
        optimizer=lw.training.Optimization(weight_decay=0.0),
        average=0,
        seed=seed,
        verbose=False,
    )
    return history.best["score"]


@torch.no_grad()
def time_err(aligner: Aligner, pairs: Pairs) -> float:
    """Mean TimeErr, in thousandths of a signal's duration."""
    return 1000 * float(lw.evaluation.time_error(aligner(pairs)(pairs.times), pairs.truth, pairs.times).mean())


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


if __name__ == "__main__":
    main(*from_command_line(Figure(), Settings()))
