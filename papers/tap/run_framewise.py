"""Features that are trained frame by frame, and aligned afterwards by DTW and OPW: baselines of the TAP paper.

    python -m papers.tap.run_framewise --data msr_action3d --loss binomial --validate --out lines.jsonl
    python -m papers.tap.run_framewise --data msr_action3d --loss binomial --epochs 40 --out lines.jsonl

The network is that of ``run.py``. Every frame has the label of its sequence; a loss of pairs sees the distances between
``frames`` random frames of each sequence of a batch, and no alignment. Test sequences then find training sequences by
DTW and by OPW of the features. --validate scores training subjects or speakers that are held out, after each of
``checks`` epochs, by which the number of epochs is chosen.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

import likewise as lw
from papers.common import (
    Run,
    accelerator,
    check_choice,
    device_name,
    emit,
    find_line,
    from_command_line,
    moved,
    thinned,
)
from papers.tap.data import READERS, held_out

LOSSES: dict[str, Callable[[], lw.losses.Loss]] = {
    "hm": lw.losses.HardMiningMeans,
    "lifted": lw.losses.LiftedStructure,
    "binomial": lw.losses.BinomialDeviance,
    "multi_similarity": lw.losses.MultiSimilarity,
}
ALIGNERS: dict[str, Callable[[], lw.Distance]] = {"dtw": lw.DTW, "opw": lambda: lw.OPW(n_iter=20)}


@dataclass(frozen=True)
class Settings:
    """One row of the table."""

    data: str = "msr_action3d"
    loss: str = "binomial"
    epochs: int = 60
    checks: tuple[int, ...] = (5, 10, 20, 40, 60)  # epochs after which --validate scores
    frames: int = 4  # of each sequence, at a step
    batch_size: int = 64
    lr: float = 1e-4
    weight_decay: float = 1e-4
    dropout: float = 0.0
    validate: bool = False


def main(run: Run, settings: Settings) -> None:
    """Train a network for each seed, and score it with every aligner."""
    for name, choices in (("data", READERS), ("loss", LOSSES)):
        check_choice(f"--{name}", getattr(settings, name), choices)
    train, test = READERS[settings.data](run.data_dir)
    if settings.validate:
        train, test = held_out(train)
    train, test = (moved(thinned(part, run.items), run.device) for part in (train, test))
    for seed in run.seeds:
        about = {"recipe": "framewise", **asdict(settings), "seed": seed, "train": len(train), "test": len(test)}
        wanted = {name: value for name, value in about.items() if name != "checks"}
        if find_line(wanted | {"aligner": next(reversed(ALIGNERS))}, run.out) is None:
            for line in experiment(run, settings, seed, train, test):
                emit(about | line, run.out)


def experiment(run: Run, settings: Settings, seed: int, train: lw.Dataset, test: lw.Dataset) -> list[dict]:
    """Train one network; a line for each aligner, and for each check where held-out data are scored."""
    torch.manual_seed(seed)
    channels = train.items.channels
    encoder = lw.FrameMLP(channels, out=channels, dropout=settings.dropout, standardize=False)
    loss = LOSSES[settings.loss]()
    metric = lw.Metric(encoder, lw.DTW()).to(run.device)
    lines: list[dict] = []

    def score(trained: lw.Metric, epoch: int) -> dict[str, float]:
        if settings.validate and epoch not in settings.checks and epoch != settings.epochs:
            return {"epoch": epoch}
        x, y = trained.embed(test.items), trained.embed(train.items)
        for name, make in ALIGNERS.items():
            found = lw.evaluate(
                make(), (x, test.labels), (y, train.labels), ks=[k for k in (1, 5, 30) if k <= len(train)]
            )
            lines.append(
                {"aligner": name, "epoch": epoch, "accuracy": found.accuracy, "map": found.map,
                 "knn": {str(k): v for k, v in found.knn.items()}, "device": device_name(run.device)}
            )  # fmt: skip
        return {"epoch": epoch}

    def frame_loss(step: lw.training.Step) -> Tensor:
        frames, labels = some_frames(step.features, step.labels, settings.frames, step.generator)
        return loss(lw.Euclidean().matrix(frames), labels)

    epochs = iter(range(1, settings.epochs + 1))
    lw.fit(
        metric,
        train,
        step=frame_loss,
        val=lw.training.Validation(lambda trained: score(trained, next(epochs))) if settings.validate else None,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        optimizer=lw.training.Optimization(weight_decay=settings.weight_decay),
        sampler=lw.data.Shuffled(len(train), min(settings.batch_size, len(train)), drop_last=True, seed=seed),
        average=0,
        seed=seed,
        verbose=False,
        accelerator=accelerator(run.device),
    )
    if not settings.validate:
        score(metric.to(run.device), settings.epochs)
    return lines


def some_frames(
    batch: lw.Batch, labels: Tensor, count: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """``count`` random frames of each sequence (B count, C), with the labels of their sequences."""
    places = torch.rand(len(batch), count, generator=generator).to(batch.device)
    places = (places * batch.lengths[:, None].to(batch.device)).long()
    frames = batch.values[torch.arange(len(batch), device=batch.device)[:, None], places]
    return frames.flatten(0, 1), labels.repeat_interleave(count)


if __name__ == "__main__":
    main(*from_command_line(Run(seeds=(0, 1, 2, 3, 4)), Settings()))
