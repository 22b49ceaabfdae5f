"""Place recognition by sequences: the second experiment of "Deep declarative dynamic time warping" (Xu et al., 2023).

    python -m likewise.recipes.place_recognition --first-seed 5 --out results/place_recognition.jsonl
    python -m likewise.recipes.place_recognition --methods base_gdtw,decdtw --items 600 --plot query.png
    python -m likewise.recipes.place_recognition --report one.jsonl --report other.jsonl      # a table of earlier runs

A query is ten frames of a train ride in winter, at a speed that varies, and is aligned with 25 frames of the same track
in summer that contain it. An encoder of single images is trained with a triplet loss first. base_dtw and base_gdtw
align its features as they are; the others tune it through an alignment, for query and reference alike: otam lowers
soft-DTW with free ends, along_gt GDTW's cost of the true warp, dilate the expected alignment's squared error (these
three are aligned with DTW, as base_dtw is), decdtw the mean error of GDTW's warp.

Scores are shares of the test queries whose maximum error over their frames is below 1, 2, 3, 5 and 10 frames. The track
is split in stretches with gaps between them. Everything is chosen on the validation stretches: the triplet loss's epoch
by how often a winter frame's nearest summer frame is at most two frames off; by the mean maximum error GDTW's
regularisation with the base features, where in the tuning to stop, looked at five times an epoch, and the
regularisation once more with the tuned features. Tuning ends when two epochs brought nothing better. It runs at half
the regularisation of the base features, which better features can do without.

The base encoder aligns the training stretches almost without error, so tuning soon fits them alone. Against that every
method tunes the last layer only, draws new queries at each step, keeps the triplet loss as a second term, and takes a
moving average of the weights. These settings were compared with seeds 11 and 12: where to stop and the regularisation
were chosen on one validation stretch, and scored on the other. That was after test scores of seeds 0 to 4 with earlier
settings had been seen: seeds 5 to 10 are to be used, and the test stretches are not quite new. --validate scores
on the validation stretches, and leaves the test alone. Each seed prints a JSON line, the end a table; seeds are
independent, and may be processes of their own with one --out.

Departures: the paper has 22,000 pairs of Oxford RobotCar and VGG-16 with NetVLAD; these are Nordland's frames, ten
seconds apart (nordland_sw_64x32.npz under --data-dir or $LIKEWISE_DATA), and a small network. Gradients have at most
unit length. Frames so far apart look different, so a position between two frames means little, and DTW, which must
match the frames that a query passes over, is at a disadvantage. decdtw lowers the mean error where the paper lowers the
squared maximum: that hangs on the few queries that are far off.
"""

import copy
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

import likewise as lw
from likewise.losses.otam import OTAM
from likewise.recipes.audio_score import BASE, CONTINUOUS, named, read_lines
from likewise.recipes.common import emit, spread
from likewise.recipes.place_encoder import FRAMES, PlaceEncoder, best_encoder, encode, mirrored, triplet_loss
from likewise.recipes.place_sequences import Places, draw_query, read_places
from likewise.recipes.tuning import keep_module, read_module, tune

LEARNED = ("otam", "along_gt", "dilate", "decdtw")
THRESHOLDS = (1, 2, 3, 5, 10)  # frames
REGS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


@dataclass(frozen=True)
class Settings:
    """One row of the table; the numbers are the paper's where it has them."""

    method: str = "decdtw"
    reg: float = 0.1  # of GDTW
    choose_reg: bool = True  # once more, for the tuned features
    relax: float = 0.5  # share of the regularisation that is left while tuning, if it is chosen again
    grid: int = 49  # GDTW's nodes for each knot, the paper's 50 made to fit the 25 frames
    pace: float = 1.7  # frames of the reference that a frame of the query is taken to last: the training queries' mean
    gamma: float = 1.0  # of soft-DTW
    widths: tuple[int, ...] = (16, 32, 64)
    out: int = 64
    base_epochs: int = 30
    base_lr: float = 1e-3
    redraw: bool = True  # draw new queries at each step of tuning
    last: bool = True  # tune the last layer alone
    triplet: float = 2.0  # weight of the triplet loss while tuning
    average: float = 0.97  # share that the averaged weights keep at a step
    epochs: int = 10
    checks: int = 5  # validations of an epoch
    patience: int = 10  # of them in a row without a better one, after which no more follow
    batch_size: int = 8
    lr: float = 1e-4
    clip: float = 1.0  # longest gradient of a step


# Where the methods differ from those numbers.
OF_METHOD = {"dilate": {"gamma": 0.1}}


@dataclass(frozen=True)
class Sequences:
    """Features of B pairs: reference (B, R, C) and query (B, Q, C); truth (B, Q), where its frames are in the other."""

    reference: Tensor
    query: Tensor
    truth: Tensor


def main(
    methods: Annotated[str, typer.Option(help=", ".join(BASE + LEARNED))] = ",".join(BASE + LEARNED),
    reg: Annotated[float | None, typer.Option(help="GDTW's; else chosen on the validation pairs.")] = None,
    seeds: Annotated[int, typer.Option(help="How many runs.")] = 3,
    first_seed: Annotated[int, typer.Option(help="Where the seeds begin.")] = 0,
    epochs: Annotated[int, typer.Option(help="Of tuning, at most.")] = 10,
    base_epochs: Annotated[int, typer.Option(help="Of the triplet loss, before it.")] = 30,
    batch_size: Annotated[int, typer.Option(help="Pairs of sequences in a step of tuning.")] = 8,
    lr: Annotated[float, typer.Option(help="Of tuning.")] = 1e-4,
    redraw: Annotated[bool, typer.Option(help="Draw new queries at each step of tuning.")] = True,
    last: Annotated[bool, typer.Option(help="Tune the last layer alone, or all.")] = True,
    triplet: Annotated[float, typer.Option(help="Weight of the triplet loss while tuning.")] = 2.0,
    average: Annotated[float, typer.Option(help="Of the weights while tuning; 0 is none.")] = 0.97,
    items: Annotated[int | None, typer.Option(help="Tune on every n-th pair only, so that about so many do.")] = None,
    validate: Annotated[bool, typer.Option(help="Score on the validation pairs, not on the test pairs.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where the .npz file is; else $LIKEWISE_DATA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Append the JSON lines to this file.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the state of each run here, and go on from it.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw one query before and after DecDTW.")] = None,
    device: Annotated[str | None, typer.Option(help="By default cuda if there is one.")] = None,
    report: Annotated[list[Path] | None, typer.Option(help="Learn nothing: print the table of these lines.")] = None,
) -> None:
    """Find where winter's frames were taken, by features of single images and by tuned ones."""
    if report:
        print_table(read_lines(report, ("method", "seed", "validate")))
        return
    chosen = named("method", methods, BASE + LEARNED)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    parts = read_places(data_dir or Path(os.environ.get("LIKEWISE_DATA", ".")))
    train, val = parts["train"].thinned(items).to(device), parts["val"].to(device)
    test = val if validate else parts["test"].to(device)
    settings = Settings(
        base_epochs=base_epochs, epochs=epochs, batch_size=batch_size, lr=lr, redraw=redraw, last=last,
        triplet=triplet, average=average, pace=float(train.truth.diff(dim=1).mean()),
    )  # fmt: skip
    lines: list[dict] = []
    for seed in range(first_seed, first_seed + seeds):
        kept = None if folder is None else folder / f"base, seed {seed}.safetensors"
        base, about = base_encoder(settings, seed, train, val, kept)
        if reg is not None:
            settings = replace(settings, reg=reg, choose_reg=False)
        elif set(chosen) & set(CONTINUOUS):
            settings = replace(settings, reg=best_reg(settings, base, val))
        for method in chosen:
            row = replace(settings, method=method, **OF_METHOD.get(method, {}))  # type: ignore[arg-type]
            kept = None if folder is None else folder / f"{method}, seed {seed}.safetensors"
            encoder, line = run(row, seed, base, (train, val, test), kept)
            lines.append(line | about | {"validate": validate})
            emit(lines[-1], out)
            if plot is not None and method == "decdtw" and seed == first_seed:
                draw(plot, (row, replace(row, reg=line.get("reg_chosen", row.reg))), (base, encoder), test)
    print_table(lines)


def base_encoder(
    settings: Settings, seed: int, train: Places, val: Places, state: Path | None
) -> tuple[PlaceEncoder, dict[str, float]]:
    """The encoder that a triplet loss trains, or the one of an earlier run; what is to be said of it."""
    torch.manual_seed(seed)
    height, width = train.summer.shape[2:]
    encoder = PlaceEncoder(height, width, settings.out, widths=settings.widths).to(train.summer.device)
    if state is not None and state.is_file():
        return encoder, read_module(state, encoder)
    start = time.perf_counter()
    recall = best_encoder(encoder, train, val, epochs=settings.base_epochs, lr=settings.base_lr, seed=seed)
    about = {"base_val_recall": recall, "base_seconds": time.perf_counter() - start}
    if state is not None:
        keep_module(state, encoder, about)
    return encoder, about


def run(
    settings: Settings, seed: int, base: PlaceEncoder, parts: tuple[Places, Places, Places], state: Path | None
) -> tuple[PlaceEncoder, dict]:
    """Tune the base encoder by one method, unless it tunes nothing, and score it; the line goes to JSON."""
    train, val, test = parts
    start = time.perf_counter()
    line = {"recipe": "place_recognition", **asdict(settings), "seed": seed, "train": len(train), "test": len(test)}
    encoder = base
    if settings.method in LEARNED:
        encoder = copy.deepcopy(base)
        relaxed = replace(settings, reg=settings.reg * (settings.relax if settings.choose_reg else 1))
        line |= learn(encoder, relaxed, seed, train, val, state)
        if settings.method in CONTINUOUS and settings.choose_reg:
            settings = replace(settings, reg=best_reg(settings, encoder, val))
            line |= {"reg_chosen": settings.reg, "val_max_error_chosen": validation(settings, encoder, val)}
    found = found_and_true(settings, encoder, test)
    errors, rooted = lw.position_error(*found), lw.trajectory_error(*found)
    line |= {
        "below": {str(threshold): share for threshold, share in lw.share_below(errors, THRESHOLDS).items()},
        "max_error": float(errors.mean()),
        "max_error_median": float(errors.median()),
        "trajectory_error": float(rooted.mean()),
        "wall_time": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if test.summer.is_cuda else "cpu",
    }
    return encoder, line


def learn(
    encoder: PlaceEncoder, settings: Settings, seed: int, train: Places, val: Places, state: Path | None
) -> dict[str, object]:
    """Tune the encoder, and leave it as it was after the round that was best on the validation pairs."""
    encoder.blocks.requires_grad_(not settings.last)
    curves = tune(
        encoder,
        lambda index, generator: tuning_loss(settings, encoder, train, index, generator),
        lambda: validation(settings, encoder, val),
        items=len(train),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.lr,
        seed=seed,
        clip=settings.clip,  # a few warps have very long gradients
        checks=settings.checks,
        patience=settings.patience,
        average=settings.average,
        state=state,
    )
    return {
        "best_epoch": curves.best_round / settings.checks,
        "val_max_error": min(curves.validation),
        "val_curve": [round(value, 3) for value in curves.validation],
        "losses": [float(f"{value:.5g}") for value in curves.losses],
        "seconds_an_epoch": settings.checks * statistics.median(curves.seconds) if curves.seconds else 0.0,
    }


def tuning_loss(
    settings: Settings, encoder: PlaceEncoder, train: Places, index: Tensor, generator: torch.Generator
) -> Tensor:
    """The method's loss of some pairs, and the triplet loss of other places, so that what it taught is not lost."""
    loss = LOSSES[settings.method](settings, sequences(encoder, train, index, generator, redraw=settings.redraw))
    if not settings.triplet:
        return loss
    frames = torch.randperm(len(train.summer), generator=generator)[:FRAMES]
    return loss + settings.triplet * triplet_loss(encoder, train, frames, generator)


def sequences(
    encoder: PlaceEncoder,
    places: Places,
    index: Tensor,
    generator: torch.Generator | None = None,
    *,
    redraw: bool = False,
) -> Sequences:
    """Features of some pairs; with a generator, of images that may be mirrored, and if asked of new queries."""
    index = index.to(places.references.device)
    references, queries = places.references[index], places.queries[index]  # (B, R) and (B, Q)
    if generator is not None and redraw:
        drawn = torch.stack([draw_query(generator) for _ in range(len(index))])
        queries = references[:, :1] + drawn.to(index.device)
    images = torch.cat([places.summer[references.flatten()], places.winter[queries.flatten()]])
    features = encoder(images if generator is None else mirrored(images, generator))
    reference, query = features.split([references.numel(), queries.numel()])
    truth = (queries - references[:, :1]).float()
    return Sequences(reference.unflatten(0, references.shape), query.unflatten(0, queries.shape), truth)


def otam_loss(settings: Settings, pairs: Sequences) -> Tensor:
    """Soft-DTW with free ends, which looks at no truth."""
    cost = torch.cdist(pairs.reference, pairs.query, compute_mode="donot_use_mm_for_euclid_dist").square()
    return OTAM(settings.gamma)(cost)


def along_gt_loss(settings: Settings, pairs: Sequences) -> Tensor:
    """GDTW's cost of the true warp."""
    at, times = times_of(settings, pairs)
    truth = lw.Warp(times.expand_as(pairs.truth), pairs.truth)
    return lw.losses.AlongWarp()(truth.apply(pairs.reference, at.expand(len(pairs.truth), -1)), pairs.query, times)


def dilate_loss(settings: Settings, pairs: Sequences) -> Tensor:
    """DILATE without its shape: how far, in squared frames, the expected alignment is from the truth."""
    plan = lw.SoftDTW(settings.gamma, subsequence=True).align(pairs.query, pairs.reference).plan  # (B, Q, R)
    return lw.losses.Dilate(0)(None, plan, (pairs.truth[:, :, None] - times_of(settings, pairs)[0]).square())


def dec_dtw_loss(settings: Settings, pairs: Sequences) -> Tensor:
    """The mean error of GDTW's warp."""
    return lw.losses.WarpError(power=1)(gdtw_warp(settings, pairs).values, pairs.truth)


LOSSES: dict[str, Callable[[Settings, Sequences], Tensor]] = {
    "otam": otam_loss,
    "along_gt": along_gt_loss,
    "dilate": dilate_loss,
    "decdtw": dec_dtw_loss,
}


def times_of(settings: Settings, pairs: Sequences) -> tuple[Tensor, Tensor]:
    """Times (R,) of the reference's frames, which are numbers of frames, and (Q,) of the query's at the usual pace."""
    at, times = (torch.arange(z.shape[1], device=z.device).float() for z in (pairs.reference, pairs.query))
    return at, settings.pace * times


def gdtw_warp(settings: Settings, pairs: Sequences) -> lw.Warp:
    """GDTW's warps from the query's time to the reference's."""
    gdtw = lw.GDTW(settings.reg, subsequence=True, grid=settings.grid)
    return gdtw.warp(pairs.reference, pairs.query, *times_of(settings, pairs))


def dtw_warp(settings: Settings, pairs: Sequences) -> lw.Warp:
    """DTW's warps: each frame of the query goes to the last frame of the reference that it is matched with."""
    frames = lw.DTW(subsequence=True).align(pairs.query, pairs.reference).warp  # (B, Q)
    return lw.Warp(times_of(settings, pairs)[1].expand(len(frames), -1), frames.float())


@torch.no_grad()
def found_and_true(settings: Settings, encoder: PlaceEncoder, places: Places) -> tuple[Tensor, Tensor]:
    """Where the method puts the queries' frames, and where they are, (P, Q) each, in frames of the reference."""
    summer, winter = encode(encoder, places.summer), encode(encoder, places.winter)
    pairs = Sequences(summer[places.references], winter[places.queries], places.truth)
    warp = (gdtw_warp if settings.method in CONTINUOUS else dtw_warp)(settings, pairs)
    return warp.values.cpu(), places.truth.cpu()


def validation(settings: Settings, encoder: PlaceEncoder, val: Places) -> float:
    """Mean maximum error of the validation pairs, in frames."""
    return float(lw.position_error(*found_and_true(settings, encoder, val)).mean())


def best_reg(settings: Settings, encoder: PlaceEncoder, val: Places) -> float:
    """GDTW's regularisation with the least mean maximum error on the validation pairs."""
    rows = [replace(settings, method="base_gdtw", reg=reg) for reg in REGS]
    return min(rows, key=lambda row: validation(row, encoder, val)).reg


def draw(
    path: Path, settings: tuple[Settings, Settings], encoders: tuple[PlaceEncoder, PlaceEncoder], test: Places
) -> None:
    """Draw the warp of the query that gains most, before and after tuning, with the settings of each."""
    from matplotlib.figure import Figure

    from likewise import viz

    found = [found_and_true(given, encoder, test) for given, encoder in zip(settings, encoders, strict=True)]
    before, after = (lw.position_error(*each) for each in found)
    item = int((before - after).argmax())
    frames = torch.arange(test.queries.shape[1]).float()[None]
    truth = lw.Warp(frames, found[0][1][item : item + 1])
    figure = Figure(figsize=(8.4, 4.0), layout="constrained")
    for ax, title, (values, _), error in zip(
        figure.subplots(1, 2, sharey=True), ("Triplet loss", "Tuned by DecDTW"), found, (before, after), strict=True
    ):
        viz.plot_warp(lw.Warp(frames, values[item : item + 1]), truth=truth, ax=ax)
        ax.set_title(f"{title}: at most {error[item]:.1f} frames off")
        ax.set_xlabel("frame of the query, in winter")
        ax.set_ylabel("frame of the reference, in summer")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def print_table(lines: list[dict]) -> None:
    """Print shares of queries with a maximum error below each threshold, means of the seeds."""
    where = "validation" if lines and lines[0]["validate"] else "test"
    table = Table(title=f"Place recognition: % of {where} queries with a maximum error below so many frames")
    for heading in ("method", "seeds", *(f"< {threshold}" for threshold in THRESHOLDS), "mean max. error"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for method in dict.fromkeys(line["method"] for line in lines):
        same = [line for line in lines if line["method"] == method]
        shares = [spread([100 * line["below"][str(t)] for line in same], "{:.1f}") for t in THRESHOLDS]
        table.add_row(method, str(len(same)), *shares, spread([line["max_error"] for line in same], "{:.2f}"))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    typer.run(main)
