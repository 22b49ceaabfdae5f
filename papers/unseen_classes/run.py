"""Classes that training has not seen: one loss with one set of additions, a row of the tables.

    python -m papers.unseen_classes.run --data flowers102 --loss proxy_nca --add gdfl+soft_adv --out lines.jsonl
    python -m papers.unseen_classes.run --data sad --loss am_softmax --add jrd --out lines.jsonl
    python -m papers.unseen_classes.run --add untrained --data flowers102          # the backbone's features as they are
    python -m papers.unseen_classes.run --add untrained+pooled --data flowers102   # GDFL's layers, without attention
    python -m papers.unseen_classes.run --loss am_softmax --add jrd --alpha 0.3 --validate     # a point of a sweep

A metric learns from some classes; items of the others then find each other, none finding itself: NMI, Recall@1, 2, 4
and 8, and the share of items of which 3 of the 5 nearest have their label.

--add: none, or some of these, joined by +: gdfl (attended features), pooled (the same layers' means, its control),
soft_adv, adapt_adv (class adversaries), energy (energy confusion), jrd, mrd, jmmd (similarity of classes in three
layers, in one, mean discrepancy), jrd_c, jrd_pooling (one kernel for all layers, maximum for mean), intra (equation 5).
--kernel laplace, polynomial, polynomial5 or mgf are JRD's other kernels; --ceiling inf takes the adaptive adversary's
ceiling away, and --threshold 0.4 puts its threshold at 0.4 ln C. JRD's own recipe is --eps 0.01 --drop-every 20
--epochs 50 --lr 1e-4; triplets with the paper's margin, --margin 0.01. --encoder frozen computes the maps of
EfficientNet-Lite0 once and trains only what follows them: GDFL and its control on a CPU.

How long to train, and the weights of additions, 0.2, 1 or 5 times those of the papers, are chosen for each row on
training classes that are held out, half of them and then the other half, with the first seed, by Recall@1 and, among
equals, MAP@R. All seeds then learn from all training classes. --validate stops after the held-out classes. Lines that
are in --out are not run again. On a GPU, NVIDIA's MPS lets several rows share the card:

    nvidia-cuda-mps-control -d
    for add in none gdfl soft_adv adapt_adv jrd energy mrd jmmd gdfl+soft_adv gdfl+adapt_adv gdfl+soft_adv+jrd; do
      for loss in triplet proxy_nca am_softmax; do echo --add $add --loss $loss; done; done |
      xargs -P 10 -L 1 python -m papers.unseen_classes.run --data flowers102 --out lines.jsonl
"""

import statistics
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

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
    rounded,
)
from papers.unseen_classes.data import SEQUENCES, SKELETONS, folds, read, thinned
from papers.unseen_classes.frozen import with_maps
from papers.unseen_classes.parts import (
    ENCODERS,
    FOR_SEQUENCES,
    KERNELS,
    LOSSES,
    PRETRAINED,
    Settings,
    make_encoder,
    make_loss,
    make_rates,
    make_sampler,
    make_terms,
    scores,
    transfer_terms,
    untrained,
)
from papers.unseen_classes.report import best_epoch

TRIED = (0.2, 1.0, 5.0)  # times the papers' weights of additions
STORED = 256 / 224  # sides of images in memory, to what the encoder sees of them
FROM_SCRATCH = {"encoder": "tcn", "lr_backbone": 1e-3, "lr": 1e-3, "epochs": 20}
PRESETS: dict[str, dict[str, Any]] = {
    **{data: {**FROM_SCRATCH, "batch_size": 64, "epochs": 40, "decay": 0.97} for data in SKELETONS},
    "sad": FROM_SCRATCH,
}
PAIRS = {"lr_backbone": 3e-4, "lr": 3e-4}  # from scratch, with losses of pairs, which fit the training set sooner


def main(run: Run, settings: Settings) -> None:
    """Choose epochs and weights on held-out training classes; then train on all of them, and score the others."""
    settings = completed(settings, run.device)
    train, test = read(settings.data, run.data_dir, size=round(settings.crop * STORED))
    train, test = (moved(thinned(part, run.items), run.device) for part in (train, test))
    if "untrained" in settings.add.split("+"):
        about = {"recipe": "unseen_classes", "data": settings.data, "loss": "untrained", "encoder": settings.encoder}
        about |= {} if settings.add == "untrained" else {"add": settings.add}
        emit(rounded(about | {"validate": False, "test": len(test)} | untrained(settings, train, test)), run.out)
        return
    if settings.encoder == "frozen":
        train, test = with_maps(train, run.kept("train.npy")), with_maps(test, run.kept("test.npy"))
    chosen = []
    for tried in weighted(settings):
        found = [
            experiment(run, tried, run.seeds[0], rest, kept, fold=fold)
            for fold, (rest, kept) in enumerate(folds(train))
        ]
        chosen.append((best_epoch(found), tried))
    best, tried = max(chosen, key=lambda pair: (pair[0].recall, pair[0].map_at_r))
    if not settings.validate:
        for seed in run.seeds:
            experiment(run, replace(tried, epochs=best.epoch), seed, train, test, fold=None)


def completed(settings: Settings, device: str) -> Settings:
    """The settings with those of their data and loss where none were given; words that are unknown are refused."""
    check_choice("--loss", settings.loss, LOSSES)
    check_choice("--kernel", settings.kernel, KERNELS)
    preset = {"encoder": "lite0", "embedding": 512 if settings.loss == "am_softmax" else 64, "epochs": 12,
              "batch_size": 100, "lr_backbone": 1e-4, "lr": 1e-3, "decay": 0.94, "crop": 112}  # fmt: skip
    if ":" in settings.data:
        preset["crop"] = 224
    preset |= PRESETS.get(settings.data, {})
    if settings.data in PRESETS and settings.loss in ("triplet", "angular"):
        preset |= PAIRS
    encoder = settings.encoder or preset["encoder"]
    preset["precision"] = "bf16-mixed" if device == "cuda" and encoder in PRETRAINED else "32-true"
    settings = replace(settings, **{name: value for name, value in preset.items() if getattr(settings, name) is None})
    check_choice("--encoder", settings.encoder, ENCODERS)
    for one, other in (("soft_adv", "adapt_adv"), ("gdfl", "pooled")):
        if {one, other} <= settings.added:
            raise SystemExit(f"error: choose one of {one} and {other}")
    if "jrd_pooling" in settings.added and {"gdfl", "pooled"} & settings.added:
        raise SystemExit("error: jrd_pooling takes the maximum of the last map, which gdfl and pooled replace")
    if (settings.encoder in FOR_SEQUENCES) != (settings.data in SEQUENCES):
        raise SystemExit(f"error: {settings.encoder} does not take {settings.data}")
    return settings


def weighted(settings: Settings) -> Iterator[Settings]:
    """The settings with every weight of the additions that is tried."""
    given = settings.strength is not None or settings.alpha is not None
    for factor in (settings.factor,) if given or not settings.added - {"gdfl", "pooled"} else TRIED:
        yield replace(settings, factor=factor)


def experiment(
    run: Run, settings: Settings, seed: int, train: lw.Dataset, scored: lw.Dataset, *, fold: int | None
) -> dict:
    """The line of an earlier run, or of a new one. fold: which of the pairs of ``folds`` this is; None for the test."""
    about = {**asdict(settings), "seed": seed, "validate": fold is not None, "fold": fold, "train": len(train)}
    line = find_line(about, run.out)
    if line is None:
        line = rounded(about | learn(run, settings, seed, train, scored, fold))
        emit(line, run.out)
    return line


def learn(
    run: Run, settings: Settings, seed: int, train: lw.Dataset, scored: lw.Dataset, fold: int | None
) -> dict[str, Any]:
    """Train and score one metric, on held-out classes after every epoch; returns the contents of its line."""
    torch.manual_seed(seed)
    metric = lw.Metric(make_encoder(settings, train), lw.Euclidean()).to(run.device)
    loss = make_loss(settings, len(train.classes))
    terms, adversary = make_terms(settings, loss)
    curve: list[dict[str, Any]] = []

    def note(metric: lw.Metric) -> dict[str, float]:
        curve.append({"epoch": len(curve) + 1, **scores(metric, scored, starts=1)})
        return {"epoch": len(curve)}  # the last one is kept: choosing comes later, over both folds

    kept = run.kept(settings.data, settings.loss, settings.add, settings.factor, f"seed {seed}", f"fold {fold}")
    history = lw.fit(
        metric,
        train,
        loss,
        val=None if fold is None else lw.training.Validation(note),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=make_rates(settings, loss, terms, adversary),
        optimizer=lw.training.Optimization(
            make=partial(torch.optim.Adam, eps=settings.eps),
            weight_decay=settings.weight_decay,
            schedule=lambda optimizer: falling(optimizer, settings),
        ),
        sampler=make_sampler(settings, train.codes, seed),
        terms=terms,
        average=0,
        checkpoints=None if kept is None else lw.training.Checkpoints(kept, resume=True),
        seed=seed,
        verbose=False,
        accelerator=accelerator(run.device),
        precision=settings.precision,
    )
    found = scores(metric, scored)
    if fold is None:
        found["transfer"] = transfer_terms(
            metric.embed(train.items), train.codes, metric.embed(scored.items), scored.codes
        )
    if found.get("recall_any") == found["recall"]:
        del found["recall_any"]
    short = [
        {**{name: point[name] for name in ("epoch", "nmi", "map_at_r")}, "recall": {"1": point["recall"]["1"]}}
        for point in curve
    ]
    return {
        "recipe": "unseen_classes",
        "test": len(scored),
        "classes": len(train.classes),
        "test_classes": len(scored.classes),
        **found,
        **({"curve": short} if fold is not None else {}),
        **({"lambdas": adversary.trace} if isinstance(adversary, lw.training.AdaptiveAdversary) else {}),
        "loss_first_epoch": history.losses[0],
        "loss_last_epoch": history.losses[-1],
        "seconds_an_epoch": statistics.median(history.seconds),
        "wall_time": history.wall_time,
        "device": device_name(run.device),
    }


def falling(optimizer: torch.optim.Optimizer, settings: Settings) -> torch.optim.lr_scheduler.LRScheduler:
    """Learning rates that fall a little with each epoch, or to a tenth every so many."""
    if settings.drop_every is None:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, settings.decay)
    # JRD's code lowers them at the start of the last epoch of each period, counted from 1.
    every = settings.drop_every
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.1 ** ((epoch + 1) // every))


if __name__ == "__main__":
    main(*from_command_line(Run(), Settings()))
