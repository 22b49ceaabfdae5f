"""Random problems of search, and their results by brute force.

    python tests/search/problems.py 100000 [FIRST]

draws so many problems, from seed FIRST on, and stops at the first that differs.
"""

import math
import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from likewise import DTW, Batch
from likewise.ops.search import normalize
from likewise.search.found import Found, keep_apart
from likewise.search.whole import WholeSearch
from likewise.search.windows import WindowSearch

BANDS = (0, 1, 2, 3, 5, 0.0, 0.05, 0.1, 0.25, 1.0, None)
Row = list[tuple[float, int, int, int]]


@dataclass(frozen=True)
class Drawn:
    """A problem. length: of the windows; None for whole items."""

    distance: DTW
    items: Batch
    queries: Batch
    k: int | None
    within: float | None
    exclude: float
    skip: Tensor | None
    normalize: bool
    length: int | None
    stretch: tuple[float, float] | None


def series(rng: np.random.Generator, steps: int, channels: int) -> np.ndarray:
    """Random numbers of some kind: with ties, constants, spikes, offsets, or as walks."""
    kind = rng.integers(8)
    x = rng.normal(size=(steps, channels))
    if kind == 0:
        x = rng.integers(-2, 3, size=(steps, channels)).astype(float)
    elif kind == 1:
        x = np.full((steps, channels), float(rng.integers(3)))
    elif kind == 2:
        x = x.cumsum(0)
    elif kind == 3:
        x[rng.integers(steps)] += 10.0 ** rng.integers(1, 6)
    elif kind == 4:
        x = 10.0 ** rng.integers(0, 5) + 0.01 * x
    elif kind == 5:
        x[: steps // 2] = x[0]
    elif kind == 6:
        x = np.sin(np.arange(steps) / rng.uniform(1, 5))[:, None] + 0.05 * x
    return x


def sensors(rng: np.random.Generator, steps: int, channels: int) -> np.ndarray:
    """A few series mixed into many channels, with offsets: most of what varies lies in few directions."""
    mix = np.random.default_rng(channels).normal(size=(3, channels))
    x = np.concatenate([series(rng, steps, 1) for _ in range(3)], 1) @ mix
    return x + rng.normal(size=channels) + 10.0 ** rng.integers(-4, 0) * rng.normal(size=x.shape)


def draw(rng: np.random.Generator, whole: bool) -> Drawn:
    """A random problem."""
    channels = int(rng.choice([1, 1, 1, 2, 3]))
    dtype = torch.float64 if rng.random() < 0.3 else torch.float32
    longest = int(rng.integers(1, 40)) if whole else int(rng.integers(1, 120))
    if whole and rng.random() < 0.3:  # where bounds on means of segments come first
        longest = int(rng.choice([60, 63, 64, 65, 71, 72, 80, 96, 127, 128, 129, 136, 200, 257]))
    count = int(rng.integers(1, 70)) if whole else int(rng.integers(1, 4))
    equal = rng.random() < 0.6
    if whole and rng.random() < 0.04:  # where DTW goes on in stages
        count, longest, equal = int(rng.integers(150, 500)), int(rng.choice([64, 80, 97, 128, 130])), True
    lengths = [longest if equal else int(rng.integers(1, longest + 1)) for _ in range(count)]
    kind = series
    if whole and rng.random() < 0.15:  # where frames are turned
        channels, longest, kind = int(rng.choice([6, 7, 9])), int(rng.choice([64, 67, 80, 128, 131])), sensors
        if rng.random() < 0.3:  # and DTW goes on in stages
            count = int(rng.integers(100, 400))
        dtype, lengths = torch.float32, [longest] * count
        equal = True
    items = [kind(rng, steps, channels) for steps in lengths]
    for _ in range(rng.integers(3)):  # duplicates
        items[rng.integers(count)] = items[rng.integers(count)]
    queries = []
    length = None if whole or rng.random() < 0.5 else int(rng.integers(1, 24))
    for _ in range(rng.integers(1, 5)):
        steps = longest if whole and equal else int(rng.integers(1, longest + 1 if whole else 24))
        if length is not None and rng.random() < 0.8:
            steps = length
        drawn = kind(rng, steps, channels)
        source = items[rng.integers(count)]
        if rng.random() < 0.4 and len(source) >= steps:  # a piece of an item
            first = rng.integers(len(source) - steps + 1)
            drawn = source[first : first + steps] + (0 if rng.random() < 0.5 else 0.1 * drawn)
        queries.append(drawn)
    band = BANDS[rng.integers(len(BANDS))]
    distance = DTW(
        band=band,
        ground="euclidean" if rng.random() < 0.3 else "sqeuclidean",
        normalize="lengths" if rng.random() < 0.2 else None,
    )
    k: int | None = int(rng.choice([1, 1, 2, 3, 5, 100]))
    within = None if rng.random() < 0.7 else float(rng.choice([0.0, 0.5, 3.0, 10.0]))
    if within is not None and rng.random() < 0.5:
        k = None
    skip = torch.from_numpy(rng.integers(-1, count, size=len(queries))) if rng.random() < 0.3 else None
    return Drawn(
        distance,
        Batch.from_list([torch.tensor(item, dtype=dtype) for item in items]),
        Batch.from_list([torch.tensor(query, dtype=dtype) for query in queries]),
        k,
        within,
        float(rng.choice([0.0, 0.5, 0.5, 1.0])),
        skip,
        not whole and rng.random() < 0.6,
        length,
        (0.8, 1.25) if not whole and rng.random() < 0.2 else None,
    )


def found_by(problem: Drawn, whole: bool) -> Found:
    """The result of the searcher."""
    wanted = {"k": problem.k, "within": problem.within, "exclude": problem.exclude, "skip": problem.skip}
    if whole:
        return WholeSearch(problem.distance, problem.items).search(problem.queries, **wanted)
    searcher = WindowSearch(
        problem.distance, problem.items, problem.length, normalize=problem.normalize, stretch=problem.stretch
    )
    return searcher.search(problem.queries, **wanted)


def truth(problem: Drawn, whole: bool) -> list[Row]:
    """Every candidate compared, then sorted: the hits of each query."""
    from likewise.search.normalization import window_lengths

    rows = []
    for q, query in enumerate(problem.queries):
        found: Row = []
        skip = -1 if problem.skip is None else int(problem.skip[q])
        if problem.normalize:
            query = normalize(query[None])[0]
        if whole:
            D = problem.distance.matrix(Batch(query[None]), problem.items)[0].tolist()
            lengths = problem.items.lengths.tolist()
            found = [(d, i, 0, m) for i, (d, m) in enumerate(zip(D, lengths, strict=True)) if i != skip]
        else:
            for i, item in enumerate(problem.items):
                for m in window_lengths(problem.length or len(query), problem.stretch):
                    if m > len(item) or i == skip:
                        continue
                    windows = item.unfold(0, m, 1).mT.contiguous()
                    windows = normalize(windows) if problem.normalize else windows
                    D = problem.distance.matrix(query[None], windows)[0].tolist()
                    found += [(d, i, s, s + m) for s, d in enumerate(D)]
        limit = np.inf if problem.within is None else problem.within
        found = sorted(hit for hit in found if hit[0] <= limit)
        if not whole:
            places = torch.tensor([hit[1:] for hit in found], dtype=torch.int64).reshape(-1, 3)
            kept = keep_apart(*places.T, problem.items.lengths.tolist(), problem.exclude, problem.k)
            found = [found[i] for i in kept]
        rows.append(found[: problem.k])
    return rows


def differs(problem: Drawn, whole: bool) -> str | None:
    """How the searcher's result differs from that of brute force; None if it does not."""
    found, expected = found_by(problem, whole), truth(problem, whole)
    for q, row in enumerate(expected):
        count = int(found.counts[q])
        columns = (found.distances, found.items, found.starts, found.ends)
        got = list(zip(*(column[q, :count].tolist() for column in columns), strict=True))
        if got != row:
            return f"query {q}: {got[:5]} instead of {row[:5]}; {problem}"
        if not all(math.isinf(d) for d in found.distances[q, count:].tolist()) or (found.items[q, count:] != -1).any():
            return f"query {q}: padding"
    if found.stats.compared < 0 or min(found.stats.killed.values(), default=0) < 0:
        return f"counts: {found.stats}"
    return None


def main(count: int, first: int = 0) -> None:
    """Check so many problems."""
    torch.set_num_threads(1)  # they are small
    for seed in range(first, first + count):
        whole = seed % 2 == 0
        wrong = differs(draw(np.random.default_rng(seed), whole), whole)
        if wrong:
            sys.exit(f"seed {seed}: {wrong}")
        if (seed + 1 - first) % 1_000 == 0:
            sys.stdout.write(f"{seed + 1 - first:,} problems from {first:,} on equal brute force\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
