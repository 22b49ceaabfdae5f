"""The coupled GRU on UCI HAR: seven folds by subject, then the test set.

    python -m papers.coupled_gru.run --model cgru --out lines.jsonl            # also sgru and cgru-4
    python -m papers.coupled_gru.run --model cgru --part folds --global-weight 0.3      # to choose a setting
    python -m papers.coupled_gru.run --data shl_synthetic --part test --seeds 0 --hidden 100 100 --batch-size 40 \
        --epochs 2 --val-every 1 --most-pairs 400000

Models: sgru, the siamese GRU; cgru, the coupled GRU with coupling_bias 0, as the paper's text has it; cgru-4, with
coupling_bias -4, the weak start that the text means. All have the same settings and start from the same weights.

A fold leaves three of the 21 training subjects out. The others train, and the best weights by 1-NN accuracy of the
three are scored on the same three, as in the paper: these scores are a little too good, alike for all models. A test
run keeps the best weights on the subjects of fold (seed mod 7); test sequences then find all training sequences.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch

import likewise as lw
from likewise.regularizers.coupling_norm import coupling_norm
from likewise.training.options import falling
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
from papers.coupled_gru.data import FOLDS, READERS, fold_mask
from papers.coupled_gru.measures import measure

MODELS = {"sgru": None, "cgru": 0.0, "cgru-4": -4.0}  # the coupling_bias of each
SCORES = ("accuracy", "f1", "map")


@dataclass(frozen=True)
class Settings:
    """Sizes, weight decay, clip and the weight of the coupling norm are the paper's; its learning rate is 1e-3."""

    data: str = "har"
    model: str = "cgru"
    hidden: tuple[int, ...] = (20,)
    batch_size: int = 36
    lr: float = 1e-2
    decay: float = 0.5  # share of the epochs, the last ones, over which the learning rate falls to zero
    average: float = 0.99  # share that the moving average of the weights keeps at a step; it is validated and kept
    weight_decay: float = 1e-4
    coupling_weight: float = 0.01  # times the norm of W_hc, added to the loss
    clip: float = 6.0
    epochs: int = 23  # 4,000 steps of HAR
    val_every: int = 2  # epochs
    margin: float = 1.0
    temperature: float = 1.0
    global_weight: float = 0.1
    val_references: int = 500  # training sequences that a validation looks among
    standardize: bool = False  # scale channels by the training sequences' mean and deviation
    jitter: tuple[float, ...] = (0.0, 0.0, 0.0)  # offset, scale and noise of what is seen in training
    most_pairs: int | None = None  # scored in the end; beyond it, queries and references are thinned


@dataclass(frozen=True)
class Parts(Run):
    """Which experiments are run, and where."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # of the test runs; the folds have the first one
    part: str = "both"  # folds, test or both
    only: tuple[int, ...] = ()  # of the folds; all of them otherwise
    candidates: bool = False  # after a test run, also let a siamese GRU choose candidates


def main(run: Parts, settings: Settings) -> None:
    """Train one model on all folds and for all seeds, and score it by retrieval."""
    check_choice("--part", run.part, ("folds", "test", "both"))
    check_choice("--data", settings.data, READERS)
    check_choice("--model", settings.model, MODELS)
    train, test = (moved(thinned(part, run.items), run.device) for part in READERS[settings.data](run.data_dir))
    for kind, number, seed in planned(run):
        about = {"recipe": "coupled_gru", **asdict(settings), "kind": kind, "number": number, "seed": seed}
        if find_line(about, run.out) is None:
            emit(about | experiment(run, settings, kind, number, seed, train, test), run.out)


def planned(run: Parts) -> Iterator[tuple[str, int, int]]:
    """Kind, number and seed of each experiment."""
    if run.part in ("folds", "both"):
        yield from (("fold", number, run.seeds[0]) for number in run.only or range(FOLDS))
    if run.part in ("test", "both"):
        yield from (("test", seed, seed) for seed in run.seeds)


def experiment(
    run: Parts, settings: Settings, kind: str, number: int, seed: int, train: lw.Dataset, test: lw.Dataset
) -> dict:
    """Train, score and measure one network; returns the contents of its line."""
    held_out = fold_mask(train, number % FOLDS)  # (N,) bool
    own, theirs = train[~held_out], train[held_out]
    torch.manual_seed(seed)
    distance = build(settings, train.items.channels).to(run.device)
    about = learn(distance, settings, own, theirs, seed)
    kept = run.kept(settings.data, settings.model, kind, number)
    if kept is not None:
        lw.Metric(None, distance).save(kept)
    queries, references = (theirs, own) if kind == "fold" else (test, train)
    step = thinning(len(queries), len(references), settings.most_pairs)
    start = time.perf_counter()
    scores = lw.evaluate(distance, queries[::step], references[::step])
    about |= {
        **{name: getattr(scores, name) for name in SCORES},
        "pairs": scores.queries * scores.references,
        "test_seconds": time.perf_counter() - start,
        "device": device_name(run.device),
    }
    if kind == "test":
        siamese = run.kept(settings.data, "sgru", kind, number)
        chooser = lw.Metric.load(siamese).distance.to(run.device) if siamese is not None and siamese.exists() else None
        about |= measure(distance, train, test, candidates=run.candidates, siamese=chooser)
    return about


def learn(distance: lw.Distance, settings: Settings, own: lw.Dataset, theirs: lw.Dataset, seed: int) -> dict:
    """Train a network in place; returns a summary of the training."""
    step = thinning(len(theirs), len(own), settings.most_pairs)
    asked, among = theirs[::step], own[:: max(step, len(own) // settings.val_references)]
    coupled, norms = isinstance(distance, lw.CoupledGRU), []

    def validate(metric: lw.Metric) -> dict[str, float]:
        scores = lw.evaluate(metric, asked, among)
        if coupled:
            norms.append(float(coupling_norm(distance)))
        return {"accuracy": scores.accuracy, "map": scores.map}

    steps = settings.epochs * (len(own) // min(settings.batch_size, len(own)))
    seen = distance
    if any(settings.jitter):
        offset, scale, noise = settings.jitter
        seen = lw.Metric(lw.models.Jitter(torch.nn.Identity(), offset=offset, scale=scale, noise=noise), distance)
    history = lw.fit(
        seen,
        own,
        lw.losses.Structural(settings.margin, settings.temperature, global_weight=settings.global_weight),
        val=lw.training.Validation(validate, every=settings.val_every),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        optimizer=lw.training.Optimization(
            weight_decay=settings.weight_decay,
            clip=settings.clip,
            schedule=falling(settings.decay, steps),
            per_step=True,
        ),
        sampler=lw.data.Shuffled(len(own), min(settings.batch_size, len(own)), drop_last=True, seed=seed),
        terms=[lambda step: settings.coupling_weight * coupling_norm(step.metric.distance)] if coupled else [],
        average=settings.average,
        seed=seed,
        verbose=False,
        accelerator=accelerator(own.items.device),
    )
    at = [int(score.epoch) for score in history.scores]
    return {
        "best_epoch": history.best.epoch,
        "validation_accuracy": history.best.accuracy,
        "validation_epochs": at,
        "losses": [history.losses[epoch - 1] for epoch in at],
        "accuracies": [score.accuracy for score in history.scores],
        "norms": norms,
        "seconds": history.wall_time,
    }


def build(settings: Settings, channels: int) -> lw.Distance:
    """An untrained model. Both kinds start from the same GRU: the coupling's weights are drawn after it."""
    bias, state = MODELS[settings.model], torch.get_rng_state()
    siamese = lw.SiameseGRU(channels, settings.hidden, standardize=settings.standardize)
    if bias is None:
        return siamese
    torch.set_rng_state(state)
    coupled = lw.CoupledGRU(channels, settings.hidden, coupling_bias=bias, standardize=settings.standardize)
    with torch.no_grad():
        for layer, cell in zip(siamese.layers, coupled.cells, strict=True):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(cell, name).copy_(getattr(layer, f"{name}_l0"))
    return coupled


def thinning(queries: int, references: int, most_pairs: int | None) -> int:
    """The n for taking every n-th query and reference, so that there are at most about ``most_pairs`` pairs."""
    return 1 if most_pairs is None else max(1, math.ceil(math.sqrt(queries * references / most_pairs)))


if __name__ == "__main__":
    main(*from_command_line(Parts(), Settings()))
