"""``likewise fewshot``."""

import json
import time
from typing import Annotated

import torch
import typer

import likewise as lw
from likewise.cli import arguments
from likewise.cli.arguments import DistanceName
from likewise.cli.files import check_kind, read_items
from likewise.cli.printing import is_terminal, print_facts
from likewise.evaluation.few_shot import few_shot_accuracy_matrix


def fewshot(
    a: arguments.ItemsA,
    distance: arguments.Named = DistanceName.DTW,
    metric: arguments.MetricFolder = None,
    ways: Annotated[int, typer.Option(help="Classes of an episode.")] = 5,
    shots: Annotated[int, typer.Option(help="Examples of each class.")] = 1,
    queries: Annotated[int, typer.Option(help="Items to classify, of each class.")] = 1,
    episodes: Annotated[int, typer.Option(help="How many episodes.")] = 10_000,
    other_groups: Annotated[
        bool, typer.Option("--other-groups", help="Examples and queries of a class are of different subjects.")
    ] = False,
    band: arguments.Band = None,
    gamma: arguments.Gamma = None,
    reg: arguments.Reg = None,
    ground: arguments.GroundCost = None,
    normalize: arguments.Normalize = None,
    settings: arguments.Settings = None,
    split: arguments.Split = None,
    columns: arguments.Columns = None,
    size: arguments.Size = 96,
    seed: arguments.Seed = 0,
    device: arguments.Device = arguments.DeviceName.AUTO,
    as_json: arguments.Json = False,
) -> None:
    """Classify items from a few examples of each class: mean accuracy of random episodes, with a 95 % interval."""
    data = read_items(a, split, columns, size)
    if data.codes is None:
        raise ValueError(f"{a}: has no classes")
    if other_groups and data.groups is None:
        raise ValueError(f"{a}: has no groups, which --other-groups needs")
    given = {"band": band, "gamma": gamma, "reg": reg, "ground": ground, "normalize": normalize}
    chosen, options = arguments.choose(distance, metric, settings, **given)
    check_kind(data, chosen, a)
    chosen.to(arguments.device_of(device))
    groups = data.groups if other_groups else None
    drawn = lw.Episodes(data.labels, ways, shots, queries, groups=groups, seed=seed).take(episodes)
    start = time.perf_counter()
    with torch.no_grad():
        D = chosen.matrix(arguments.moved(data.items, device), progress=is_terminal())
    score = few_shot_accuracy_matrix(D, *drawn)
    facts = {
        "distance": distance.value if metric is None else str(metric),
        "options": options,
        "ways": ways,
        "shots": shots,
        "episodes": episodes,
        "sequences": len(data),
        "accuracy": score.accuracy,
        "interval": score.interval,
        "seconds": round(time.perf_counter() - start, 6),
    }
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        share = f"{100 * score.accuracy:.2f} % ± {100 * score.interval:.2f} %"
        print_facts({name: value for name, value in facts.items() if name != "interval"} | {"accuracy": share})
