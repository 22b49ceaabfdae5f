"""Rows that were run beside each other, in a file of their own: GDFL and its control, and rows over five seeds.

Which lines of the unseen classes count follows from the lines of the held-out ones: those with the weight, the learning
rate and the number of epochs that are best there.
"""

from collections.abc import Iterator
from functools import cache

from papers.common import bold, read_lines, spread, table
from papers.unseen_classes.lines import ADDITIONS, HERE, LOSSES, UNTRAINED, Best, best_epoch, lines_of, recall_of

RUNS = {
    "five": "backbone that learns", "control": "backbone trained on a CPU", "frozen": "backbone frozen",
}  # fmt: skip
PAIRS = (
    ("pooled", "none"), ("gdfl", "none"), ("gdfl", "pooled"), ("soft_adv", "none"), ("adapt_adv", "none"),
    ("jrd", "none"), ("energy", "none"), ("mrd", "none"), ("jmmd", "none"), ("pooled+soft_adv", "pooled"),
    ("gdfl+soft_adv", "none"), ("gdfl+soft_adv", "gdfl"), ("gdfl+soft_adv", "pooled+soft_adv"),
    ("gdfl+adapt_adv", "gdfl"), ("gdfl+soft_adv+jrd", "gdfl+soft_adv"),
)  # fmt: skip

Choice = tuple[float, float]  # the learning rate, and how many times the papers' weights


def tables_of(runs: str) -> Iterator[str]:
    """The rows beside each other: Recall@1, how much more of it, and what held-out classes choose."""
    tested = {loss: name for loss, name in LOSSES.items() if any(chosen_lines(runs, loss, add) for add in ADDITIONS)}
    if tested:
        yield recall_table(runs, tested)
        yield gains_table(runs, tested)
    losses = {loss: name for loss, name in LOSSES.items() if any(tried_of(runs, loss, add) for add in ADDITIONS)}
    rows = []
    for add, name in ADDITIONS.items():
        words = [choice_in_words(runs, loss, add) for loss in losses]
        if any(words):
            rows.append([name, *words])
    if rows:
        what = "times the weight" if runs == "five" else "learning rate"
        yield table([f"{RUNS[runs]}, held-out classes: Recall@1, {what}, epochs", *losses.values()], rows)


def choice_in_words(runs: str, loss: str, add: str) -> str:
    """What held-out classes choose: a cell of the last table."""
    tried, chosen = tried_of(runs, loss, add), choice_of(runs, loss, add)
    if chosen is None:
        return ""
    if runs == "five":
        weight = f" {chosen[1]:g}," if len(tried) > 1 else ""
        return f"{100 * tried[chosen].recall:.1f},{weight} {tried[chosen].epoch}"
    return "; ".join(f"{100 * best.recall:.1f}, {rate:g}, {best.epoch}" for (rate, _), best in tried.items())


def recall_table(runs: str, losses: dict[str, str]) -> str:
    """Recall@1 in percent of every row, and of untrained features."""
    plain = {line.get("add"): line for line in lines_of("flowers102") if line["loss"] == "untrained"}
    rows = [[name, *[f"{100 * recall_of(plain[add]):.1f}"] * len(losses)] for add, name in UNTRAINED.items()]
    counts = set()
    for add, name in ADDITIONS.items():
        found = [[100 * recall_of(line) for line in chosen_lines(runs, loss, add)] for loss in losses]
        if any(found):
            rows.append([name, *(spread(values, "{:.1f}") for values in found)])
            counts |= {len(values) for values in found if values}
    seeds = "" if len(counts) > 1 else f", {min(counts)} seeds"
    return table([f"{RUNS[runs]}, Recall@1 in %{seeds}", *losses.values()], bold(rows))


def gains_table(runs: str, losses: dict[str, str]) -> str:
    """By how many points one row is above another, seed by seed."""
    rows = []
    for one, other in PAIRS:
        row = [" less ".join(ADDITIONS[add].partition(" (")[0] for add in (one, other))]
        for loss in losses:
            more = chosen_gains(runs, loss, one, other)
            row.append(f"{spread(more, '{:+.1f}')}, {sum(gain > 0 for gain in more)} of {len(more)}" if more else "")
        if any(row[1:]):
            rows.append(row)
    return table([f"{RUNS[runs]}, points more, seeds ahead", *losses.values()], rows)


def chosen_gains(runs: str, loss: str, one: str, other: str) -> list[float]:
    """Points of Recall@1 that one addition has more than another, seed by seed."""
    mine, theirs = ({ln["seed"]: 100 * recall_of(ln) for ln in chosen_lines(runs, loss, add)} for add in (one, other))
    return [mine[seed] - theirs[seed] for seed in mine if seed in theirs]


@cache
def chosen_lines(runs: str, loss: str, add: str) -> list[dict]:
    """The lines of the unseen classes with the settings that were chosen, one for each seed."""
    chosen = choice_of(runs, loss, add)
    if chosen is None:
        return []
    wanted = *chosen, tried_of(runs, loss, add)[chosen].epoch
    lines = [ln for ln in read_lines(HERE / f"{runs}.jsonl") if (ln["loss"], ln["add"]) == (loss, add)]
    same = [ln for ln in lines if not ln["validate"] and (ln["lr"], ln["factor"], ln["epochs"]) == wanted]
    return sorted(same, key=lambda line: line["seed"])


def choice_of(runs: str, loss: str, add: str) -> Choice | None:
    """The learning rate and the weight that are best on the held-out classes of both folds."""
    tried = tried_of(runs, loss, add)
    return max(tried, key=lambda choice: (tried[choice].recall, tried[choice].map_at_r), default=None)


@cache
def tried_of(runs: str, loss: str, add: str) -> dict[Choice, Best]:
    """The best epoch of each learning rate and weight that have lines of both folds."""
    tried: dict[Choice, list[dict]] = {}
    for line in read_lines(HERE / f"{runs}.jsonl"):
        if (line["loss"], line["add"], line["validate"]) == (loss, add, True):
            tried.setdefault((line["lr"], line["factor"]), []).append(line)
    return {choice: best_epoch(same) for choice, same in tried.items() if len(same) == 2}
