"""Place recognition by sequences: the second experiment of the paper, on Nordland.

    python -m papers.decdtw.run_places --method decdtw --seeds 5 6 7 --folder bases --out lines.jsonl
    python -m papers.decdtw.run_places --method dilate --gamma 0.1 --seeds 5 6 7 --folder bases --out lines.jsonl

A query is ten frames of a train ride in winter, at a speed that varies, and is aligned with 25 frames of the same track
in summer that contain it. An encoder of single images is trained with a triplet loss first; --folder keeps it for the
other methods. base_dtw and base_gdtw align its features as they are, retrieval takes the nearest frame for each by
itself, and monotone the nearest frames in order, passing over as many as it likes; the others tune it through an
alignment, for query and reference alike: otam lowers soft-DTW with free ends, along_gt GDTW's cost of the true warp,
dilate the expected alignment's squared error (these three are aligned with DTW, as base_dtw is), decdtw the mean error
of GDTW's warp.

Scores are shares of the test queries whose maximum error over their frames is below 1, 2, 3, 5 and 10 frames. The track
is split in stretches with gaps between them. Everything is chosen on the validation stretches: the triplet loss's epoch
by how often a winter frame's nearest summer frame is at most two frames off; by the mean maximum error GDTW's
regularisation with the base features, where in the tuning to stop, looked at five times an epoch, and the
regularisation once more with the tuned features. Tuning runs at half the regularisation of the base features.

The base encoder aligns the training stretches almost without error, so tuning soon fits them alone. Against that every
method tunes the last layer only, draws new queries at each step, keeps the triplet loss as a second term, and takes a
moving average of the weights.

Departures from the paper: it has 22,000 pairs of Oxford RobotCar and VGG-16 with NetVLAD; these are Nordland's frames,
ten seconds apart, and a small network. Frames so far apart look different, so a position between two frames means
little, and DTW, which must match the frames that a query passes over, is at a disadvantage. decdtw lowers the mean
error where the paper lowers the squared maximum (--loss squared_max), which depends on the few queries that are far
off.
"""

import copy
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import likewise as lw
from likewise.training import AlignedPairs
from likewise.training.path_step import path_value, warp_of
from papers.common import Run, accelerator, check_choice, device_name, emit, find_line, from_command_line
from papers.decdtw.data_places import Places, draw_query, read_places
from papers.decdtw.place_encoder import FRAMES, PlaceEncoder, best_encoder, encode, mirrored, recall, triplet_loss
from papers.decdtw.run import CONTINUOUS, draw_warps, dtw_warp

THRESHOLDS = (1, 2, 3, 5, 10)  # frames
REGS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True)
class Settings:
    """One row of the table; the numbers are the paper's where it has them."""

    method: str = "decdtw"
    loss: str = "mean"  # of decdtw: mean, or squared_max as in the paper
    reg: float = 0.0  # of GDTW; 0 to choose it on the validation pairs
    relax: float = 0.5  # share of a chosen regularisation that is left while tuning
    grid: int = 49  # GDTW's nodes for each knot, the paper's 50 made to fit the 25 frames
    gamma: float = 1.0  # of soft-DTW
    widths: tuple[int, ...] = (16, 32, 64)
    features: int = 64
    base_epochs: int = 30
    base_lr: float = 1e-3
    triplet: float = 2.0  # weight of the triplet loss while tuning
    average: float = 0.97  # share that the averaged weights keep at a step
    epochs: int = 10
    checks: int = 5  # validations of an epoch
    patience: int = 10  # of them in a row without a better one, after which no more follow
    batch_size: int = 8
    lr: float = 1e-4
    clip: float = 1.0  # longest gradient of a step: a few warps have very long ones
    validate: bool = False  # score on the validation pairs, not on the test pairs


@dataclass(frozen=True)
class Rides(Run):
    """Where data come from and results go."""

    seeds: tuple[int, ...] = (5, 6, 7)
    plot: Path | None = None  # draw the query that gains most from tuning


def main(run: Rides, settings: Settings) -> None:
    """Find where winter's frames were taken, by features of single images or by tuned ones."""
    check_choice("--method", settings.method, METHODS)
    check_choice("--loss", settings.loss, WARP_LOSSES)
    parts = read_places(run.data_dir)
    train, val = parts["train"].thinned(run.items).to(run.device), parts["val"].to(run.device)
    test = val if settings.validate else parts["test"].to(run.device)
    for seed in run.seeds:
        about = {"recipe": "place_recognition", **asdict(settings), "seed": seed, "train": len(train)}
        if find_line(about, run.out) is None:
            base, found = base_encoder(run, settings, seed, train, val)
            emit(about | found | experiment(run, settings, seed, base, train, val, test), run.out)


def base_encoder(
    run: Rides, settings: Settings, seed: int, train: Places, val: Places
) -> tuple[PlaceEncoder, dict[str, float]]:
    """The encoder that a triplet loss trains, or the one of an earlier run, and how good it is."""
    torch.manual_seed(seed)
    height, width = train.summer.shape[2:]
    encoder = PlaceEncoder(height, width, settings.features, widths=settings.widths).to(run.device)
    kept = run.kept("base", f"seed {seed}.safetensors")
    if kept is not None and kept.is_file():
        encoder.load_state_dict(load_file(kept, device=run.device))
        return encoder, {"base_val_recall": recall(encoder, val)}
    start = time.perf_counter()
    found = best_encoder(encoder, train, val, epochs=settings.base_epochs, lr=settings.base_lr, seed=seed)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        save_file(encoder.state_dict(), kept)
    return encoder, {"base_val_recall": found, "base_seconds": time.perf_counter() - start}


def experiment(
    run: Rides, settings: Settings, seed: int, base: PlaceEncoder, train: Places, val: Places, test: Places
) -> dict:
    """Tune the base encoder, unless the method tunes nothing, and score it; returns the contents of the line."""
    start, line = time.perf_counter(), {"test": len(test), "pace": train.pace}
    chosen = not settings.reg and settings.method in CONTINUOUS
    if chosen:
        settings = replace(settings, reg=best_reg(settings, base, val))
        line["reg_base"] = settings.reg
    encoder, before = base, settings
    if settings.method in LOSSES:
        encoder = copy.deepcopy(base)
        relaxed = replace(settings, reg=settings.reg * (settings.relax if chosen else 1))
        line |= learn(encoder, relaxed, seed, train, val)
        if chosen:
            settings = replace(settings, reg=best_reg(settings, encoder, val))
            line |= {"reg_chosen": settings.reg, "val_max_error_chosen": validation(settings, encoder, val)}
        if run.plot is not None and settings.method == "decdtw" and seed == run.seeds[0]:
            draw(run.plot, (before, settings), (base, encoder), test)
    found = found_and_true(settings, encoder, test)
    errors, rooted = lw.evaluation.position_error(*found), lw.evaluation.trajectory_error(*found)
    return line | {
        "below": {str(threshold): share for threshold, share in lw.evaluation.share_below(errors, THRESHOLDS).items()},
        "max_error": float(errors.mean()),
        "max_error_median": float(errors.median()),
        "trajectory_error": float(rooted.mean()),
        "wall_time": time.perf_counter() - start,
        "device": device_name(run.device),
    }


def learn(encoder: PlaceEncoder, settings: Settings, seed: int, train: Places, val: Places) -> dict[str, object]:
    """Tune the last layer, and leave it as it was after the check that was best on the validation pairs."""
    encoder.blocks.requires_grad_(False)
    history = lw.fit(
        lw.Metric(encoder, lw.GDTW()),
        torch.zeros(len(train), 1, 1),  # the step makes the pairs
        step=lambda step: tuning_loss(settings, encoder, train, step),
        val=lw.training.Validation(
            lambda _: validation(settings, encoder, val),
            every=1 / settings.checks,
            patience=settings.patience,
            lowest=True,
            before=True,
        ),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        optimizer=lw.training.Optimization(weight_decay=0.0, clip=settings.clip),
        average=settings.average,
        seed=seed,
        verbose=False,
        accelerator=accelerator(next(encoder.parameters()).device),
    )
    curve = [score["score"] for score in history.scores]
    return {
        "best_epoch": round(history.best.epoch, 2),
        "val_max_error": min(curve),
        "val_curve": [round(value, 3) for value in curve],
        "losses": [float(f"{value:.5g}") for value in history.losses],
        "seconds_an_epoch": statistics.median(history.seconds),
    }


def tuning_loss(settings: Settings, encoder: PlaceEncoder, train: Places, step: lw.training.Step) -> Tensor:
    """The method's loss of new queries, and the triplet loss of other places, which keeps what it had taught."""
    loss = LOSSES[settings.method](settings, features_of(encoder, train, step.index, step.generator))
    frames = torch.randperm(len(train.summer), generator=step.generator)[:FRAMES]
    return loss + settings.triplet * triplet_loss(encoder, train, frames, step.generator)


def features_of(
    encoder: PlaceEncoder, places: Places, index: Tensor, generator: torch.Generator | None = None
) -> AlignedPairs:
    """Features of some pairs; with a generator, of new queries and of images that may be mirrored."""
    index = index.to(places.references.device)
    references, queries = places.references[index], places.queries[index]  # (B, R) and (B, Q)
    if generator is not None:
        drawn = torch.stack([draw_query(generator) for _ in range(len(index))])
        queries = references[:, :1] + drawn.to(index.device)
    images = torch.cat([places.summer[references.flatten()], places.winter[queries.flatten()]])
    features = encoder(images if generator is None else mirrored(images, generator))
    reference, query = features.split([references.numel(), queries.numel()])
    truth = (queries - references[:, :1]).float()
    return aligned(reference.unflatten(0, references.shape), query.unflatten(0, queries.shape), truth, places.pace)


def aligned(reference: Tensor, query: Tensor, truth: Tensor, pace: float) -> AlignedPairs:
    """Queries x (B, Q, C) at the usual pace, references y (B, R, C), whose times are their frames' numbers."""
    x_times, y_times = (torch.arange(z.shape[1], device=z.device).float() for z in (query, reference))
    return AlignedPairs(query, reference, truth, x_times=pace * x_times, y_times=y_times)


LOSSES = {
    "otam": lambda settings, pairs: path_value(lw.losses.SoftSubsequenceDTW(settings.gamma), lw.DTW(), pairs),
    "along_gt": lambda settings, pairs: path_value(lw.losses.AlongWarp(), lw.DTW(), pairs),
    "dilate": lambda settings, pairs: path_value(
        lw.losses.Dilate(0), lw.SoftDTW(settings.gamma, subsequence=True), pairs
    ),
    "decdtw": lambda settings, pairs: path_value(WARP_LOSSES[settings.loss](), gdtw(settings), pairs),
}
WARP_LOSSES = {"mean": lambda: lw.losses.WarpError(power=1), "squared_max": lw.losses.MaxPositionError}
METHODS = ("retrieval", "monotone", "base_dtw", "base_gdtw", *LOSSES)


def gdtw(settings: Settings) -> lw.GDTW:
    """GDTW that matches all of the query to a stretch of the reference."""
    return lw.GDTW(settings.reg, subsequence=True, grid=settings.grid)


@torch.no_grad()
def found_and_true(settings: Settings, encoder: PlaceEncoder, places: Places) -> tuple[Tensor, Tensor]:
    """Where the method puts the queries' frames, and where they are, (P, Q) each, in frames of the reference."""
    summer, winter = encode(encoder, places.summer), encode(encoder, places.winter)
    pairs = aligned(summer[places.references], winter[places.queries], places.truth, places.pace)
    if settings.method in FRAMEWISE:
        cost = torch.cdist(pairs.x.values, pairs.y.values).square()  # (P, Q, R)
        return FRAMEWISE[settings.method](cost).float().cpu(), places.truth.cpu()
    warp = warp_of(gdtw(settings), pairs) if settings.method in CONTINUOUS else dtw_warp(pairs)
    return warp.values.cpu(), places.truth.cpu()


def in_order(cost: Tensor) -> Tensor:
    """Positions (P, Q) that never go back and whose costs (P, Q, R) have the least sum; frames may be passed over."""
    total, came = cost[:, 0], []
    for frame in range(1, cost.shape[1]):
        least, place = total.cummin(1)
        came.append(place)
        total = least + cost[:, frame]
    found = [total.argmin(1)]
    for place in reversed(came):
        found.append(place.gather(1, found[-1][:, None])[:, 0])
    return torch.stack(found[::-1], 1)


FRAMEWISE = {"retrieval": lambda cost: cost.argmin(2), "monotone": in_order}


def validation(settings: Settings, encoder: PlaceEncoder, val: Places) -> float:
    """Mean maximum error of the validation pairs, in frames."""
    return float(lw.evaluation.position_error(*found_and_true(settings, encoder, val)).mean())


def best_reg(settings: Settings, encoder: PlaceEncoder, val: Places) -> float:
    """GDTW's regularisation with the least mean maximum error on the validation pairs."""
    rows = [replace(settings, method="base_gdtw", reg=reg) for reg in REGS]
    return min(rows, key=lambda row: validation(row, encoder, val)).reg


def draw(
    path: Path, settings: tuple[Settings, Settings], encoders: tuple[PlaceEncoder, PlaceEncoder], test: Places
) -> None:
    """Draw the warp of the query that gains most, before and after tuning, with the settings of each."""
    found = [found_and_true(given, encoder, test) for given, encoder in zip(settings, encoders, strict=True)]
    errors = [lw.evaluation.position_error(*each) for each in found]
    item = int((errors[0] - errors[1]).argmax())
    frames = torch.arange(test.queries.shape[1]).float()[None]
    before, after, truth = (
        lw.distances.Warp(frames, values[item : item + 1]) for values in (found[0][0], found[1][0], found[0][1])
    )
    titles = [
        f"{how}: at most {error[item]:.1f} frames off"
        for how, error in zip(("Triplet loss", "Tuned by DecDTW"), errors, strict=True)
    ]
    labels = ("frame of the query, in winter", "frame of the reference, in summer")
    draw_warps(path, [before, after], titles, truth, labels)


if __name__ == "__main__":
    main(*from_command_line(Rides(), Settings()))
