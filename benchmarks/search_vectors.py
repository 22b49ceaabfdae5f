"""Search among 100,000 learned embeddings: vectors, and sequences of them re-ranked by TAP.

    python benchmarks/search_vectors.py [--queries 8] [--no-rows]

Items are sequences of four frames of 64 numbers, of 2,000 classes: a class is a sequence of directions, and its items
scatter around it. TAP is as it is initialised. The candidates are the nearest means over time; TAP ranks 1,000 of them
for each query. Exhaustive search compares the query with all items. Each query is searched both ways in turn, and
medians are taken over the queries. Distances of what is found must be those of exhaustive search, and its share of the
ten nearest is the recall. Vectors are the means: exact search by products must equal exhaustive search before it is
timed; the graph (HNSW) gets a recall. One thread, because the other core may be busy. Building is timed apart.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import RESULTS, WrongResult, machine

import likewise as lw

ITEMS, FRAMES, CHANNELS, CLASSES, KEEP, K = 100_000, 4, 64, 2_000, 1_000, 10


def data(queries: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Items (N, 4, 64) and queries (Q, 4, 64): unit frames around the directions of their classes."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, 1, CHANNELS, generator=generator)
    centres = centres + 0.5 * torch.randn(CLASSES, FRAMES, CHANNELS, generator=generator)
    kind = torch.randint(CLASSES, (ITEMS + queries,), generator=generator)
    values = centres[kind] + 0.4 * torch.randn(ITEMS + queries, FRAMES, CHANNELS, generator=generator)
    values = torch.nn.functional.normalize(values, dim=2)
    return values[:ITEMS], values[ITEMS:]


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = run()
    return time.perf_counter() - begin, found


def compare(name: str, ours: lw.Index, truth: lw.Index, queries: torch.Tensor, *, exact: bool) -> dict[str, Any]:
    """Search each query both ways, in turn; refuse distances that are not those of exhaustive search."""
    building, _ = timed(lambda: ours.search(queries[:1], k=K))
    truth.search(queries[:1, ...], k=1)
    mine, theirs, right = [], [], 0
    for q in range(len(queries)):
        seconds, found = timed(lambda: ours.search(queries[q : q + 1], k=K))  # noqa: B023
        mine.append(seconds)
        seconds, all_of_them = timed(lambda: truth.search(queries[q : q + 1], k=K))  # noqa: B023
        theirs.append(seconds)
        same = torch.isin(found.items, all_of_them.items)
        right += int(same.sum())
        expected = dict(zip(all_of_them.items[0].tolist(), all_of_them.distances[0].tolist(), strict=True))
        for item, distance in zip(found.items[0].tolist(), found.distances[0].tolist(), strict=True):
            if item in expected and abs(distance - expected[item]) > 1e-5 * abs(expected[item]):
                raise WrongResult(f"{name}: {distance} instead of {expected[item]}")
    recall = right / (K * len(queries))
    if exact and recall < 1:
        raise WrongResult(f"{name}: recall {recall}, but it says that it is exact")
    row = {
        "case": name,
        "ms": 1e3 * statistics.median(mine),
        "exhaustive_ms": 1e3 * statistics.median(theirs),
        "times_faster": statistics.median(theirs) / statistics.median(mine),
        "recall": recall,
        "queries": len(queries),
        "first_search_ms": 1e3 * building,
        "stats": str(found.stats),
        **machine(),
    }
    print(f"{name}: {row['ms']:.1f} ms, exhaustive {row['exhaustive_ms']:.1f} ms, {row['times_faster']:.1f} times")
    print(f"  recall@{K} {recall:.4f}; first search, with building, {row['first_search_ms']:.0f} ms; {row['stats']}")
    return row


class EveryPair(lw.Euclidean):
    """Euclidean, which no rule of the index knows: searched exhaustively."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--no-rows", action="store_true", help="print only; keep no rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    items, queries = data(options.queries)
    means, asked = items.mean(1), queries.mean(1)
    rows = []
    exhaustive = lw.Index(EveryPair(), means)
    exact = lw.Index(lw.Euclidean(), means)
    rows.append(compare("100,000 vectors of 64, exact", exact, exhaustive, asked, exact=True))
    graph = lw.Index(lw.Euclidean(), means, approximate=True)
    rows.append(compare("100,000 vectors of 64, HNSW", graph, exhaustive, asked, exact=False))
    torch.manual_seed(0)
    tap = lw.TAP().eval()
    quick = lw.Index(tap, items, candidates=lw.evaluation.Candidates(lw.MeanFrames(), keep=KEEP))
    rows.append(compare("100,000 sequences, TAP re-ranks 1,000", quick, lw.Index(tap, items), queries, exact=False))
    if not options.no_rows:
        with (RESULTS / "search_vectors.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
