"""Exact search under DTW on the CPU, against brute force and against dtaidistance, aeon and tslearn in the same run.

    python benchmarks/search.py [--repeats 5] [--only walks]

Hits are first checked against brute force. A peer computes all distances, on as many threads as it can; those that take
seconds do a part of the work, a tenth or an eighth of it, and their time is scaled: it is proportional to the number of
pairs. LIKEWISE_DATA names the folder of the real data.
"""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aeon.distances
import dtaidistance.dtw
import numpy as np
import torch
import tslearn.metrics
from measure import Benchmark, WrongResult, check, interleave, machine

import likewise as lw
from likewise.ops.search import normalize
from likewise.search.exhaustive import Exhaustive
from likewise.search.found import Found
from likewise.search.whole import WholeSearch
from likewise.search.windows import WindowSearch

THREADS = torch.get_num_threads()
DATA = Path(os.environ.get("LIKEWISE_DATA", "../shared/data"))


def record(
    benchmark: Benchmark,
    name: str,
    ours: Callable[[], Any],
    others: dict[str, Callable[[], Any]],
    bars: dict[str, float],
    scale: dict[str, float] | None = None,
    **more: Any,
) -> None:
    """Time ours and the others in turn; ``bars``: how many times faster than each kind of other we want to be."""
    if benchmark.options.only not in name:
        return
    times = interleave({"likewise": ours, **others}, benchmark.options.repeats)
    mine = times.pop("likewise")
    times = {other: seconds * (scale or {}).get(other, 1) for other, seconds in times.items()}
    for kind, bar in bars.items():
        named = {other: s for other, s in times.items() if (other == "brute force") == (kind == "brute force")}
        best = min(named, key=lambda other: named[other])
        row = {
            "case": f"{name} ({kind})",
            "ms": 1e3 * mine,
            "best_peer": best,
            "times_faster": named[best] / mine,
            "bar": bar,
            "peers_ms": {other: 1e3 * seconds for other, seconds in named.items()},
            **more,
            **machine(),
        }
        benchmark.rows.append(row)
        benchmark.console.print(
            f"{row['case']}: {1e3 * mine:.2f} ms, {best} {1e3 * named[best]:.1f} ms", highlight=False
        )


def same(found: Found, D: torch.Tensor) -> None:
    """Refuse hits that are not the first least of each row."""
    if not torch.equal(found.distances[:, 0], D.min(1).values) or not torch.equal(found.items[:, 0], D.argmin(1)):
        raise WrongResult("search differs from brute force")


def walks(benchmark: Benchmark) -> None:
    torch.manual_seed(0)
    items, queries = (torch.randn(n, 256, 1).cumsum(1) for n in (5_000, 20))
    distance, batch = lw.DTW(band=25), lw.Batch(queries)
    D = distance.matrix(queries, items)
    same(WholeSearch(distance, lw.Batch(items)).search(batch, k=1, within=None), D)
    part, few = items.double(), queries[:2].double()
    both = torch.cat([few, part])[..., 0].numpy()
    peers = {
        "dtaidistance": lambda: dtaidistance.dtw.distance_matrix_fast(
            both, window=26, block=((0, 2), (2, len(both))), parallel=True
        )[:2, 2:] ** 2,
        "aeon": lambda: aeon.distances.dtw_pairwise_distance(
            few.mT.numpy(), part.mT.numpy(), window=25 / 256, n_jobs=THREADS
        ),
        "tslearn": lambda: tslearn.metrics.cdist_dtw(
            few.numpy(), part.numpy(), sakoe_chiba_radius=25, n_jobs=THREADS
        ) ** 2,
    }  # fmt: skip
    if benchmark.options.only in "walks: 20 queries x 5,000":
        for peer, run in peers.items():
            check(peer, run(), D[:2], 1e-3)
    searcher = WholeSearch(distance, lw.Batch(items))
    stats = str(searcher.search(batch, k=1, within=None).stats)
    record(
        benchmark,
        "walks: 20 queries x 5,000, length 256, band 25, k 1, index built before",
        lambda: searcher.search(batch, k=1, within=None),
        {"brute force": lambda: distance.matrix(queries, items).min(1), **peers},
        {"peers": 100, "brute force": 5},
        dict.fromkeys(peers, 10),
        stats=stats,
    )
    record(
        benchmark,
        "walks: the same with building the index",
        lambda: WholeSearch(distance, lw.Batch(items)).search(batch, k=1, within=None),
        {"brute force": lambda: distance.matrix(queries, items).min(1)},
        {"brute force": 5},
    )


def ecg(benchmark: Benchmark) -> None:
    if benchmark.options.only not in "ecg":
        return
    values = torch.from_numpy(np.load(DATA / "ecg_360hz.npz")["values"])
    query, series, m = values[None, 1000:1128], values[None, 3000:], 128
    distance, batch = lw.DTW(band=6), lw.Batch(query)

    def ours() -> Found:
        return WindowSearch(distance, lw.Batch(series), m, normalize=True).search(batch, k=1, within=None, exclude=0.5)

    def laid_out(count: int) -> torch.Tensor:
        return normalize(series[0].unfold(0, m, 1).mT[:count].contiguous())

    def brute() -> torch.Tensor:
        return distance.matrix(normalize(query), laid_out(series.shape[1])).min(1)

    found, D = ours(), brute()
    if found.distances[0, 0] != D.values[0] or found.starts[0, 0] != D.indices[0]:
        raise WrongResult("search differs from brute force")
    count = (series.shape[1] - m + 1) // 8
    q = normalize(query).double()

    def windows() -> np.ndarray:  # as a user of NumPy would normalise them
        view = np.lib.stride_tricks.sliding_window_view(series[0, :, 0].double().numpy(), m)[:count]
        return (view - view.mean(1, keepdims=True)) / view.std(1, keepdims=True)

    def dtai() -> np.ndarray:
        both = np.concatenate([q[0].mT.numpy(), windows()])
        return (
            dtaidistance.dtw.distance_matrix_fast(both, window=7, block=((0, 1), (1, len(both))), parallel=True)[0, 1:]
            ** 2
        )

    def aeon_() -> np.ndarray:
        return aeon.distances.dtw_pairwise_distance(q.mT.numpy(), windows()[:, None], window=6 / m, n_jobs=THREADS)[0]

    expected = distance.matrix(normalize(query), laid_out(count))[0]
    for peer in (dtai, aeon_):
        check(peer.__name__, peer(), expected, 1e-3)
    record(
        benchmark,
        f"ecg: {len(laid_out(series.shape[1])):,} windows of 128, band 6, z-normalised, all included",
        ours,
        {"brute force": brute, "dtaidistance": dtai, "aeon": aeon_},
        {"peers": 60, "brute force": 1},
        {"dtaidistance": 8, "aeon": 8},
        stats=str(found.stats),
    )


def million(benchmark: Benchmark) -> None:
    torch.manual_seed(1)
    series, query, m = torch.randn(1, 1_000_000, 1).cumsum(1), torch.randn(1, 1024, 1).cumsum(1), 1024
    for band, bar in ((0.05, 1.1), (0.1, 2.5)):
        name = f"million: a walk of 1,000,000, windows of 1024, band {band:.0%}, z-normalised, all included"
        if benchmark.options.only not in name:
            continue
        distance = lw.DTW(band=band)

        def ours(distance: lw.DTW = distance) -> Found:
            return WindowSearch(distance, lw.Batch(series), m, normalize=True).search(
                lw.Batch(query), k=1, within=None, exclude=0.5
            )

        found = ours()
        # Brute force takes minutes: some thousand windows, and those near the hit.
        best = int(found.starts[0, 0])
        near = torch.arange(max(0, best - 2000), min(series.shape[1] - m + 1, best + 2000))
        starts = torch.cat([near, torch.randint(series.shape[1] - m + 1, (8_000,))])
        windows = series[0, starts[:, None] + torch.arange(m)]
        D = distance.matrix(normalize(query), normalize(windows))[0]
        if D.min() != found.distances[0, 0] or int(starts[D.argmin()]) != best:
            raise WrongResult("search differs from brute force")
        times = [_timed(ours) for _ in range(benchmark.options.repeats)]
        mine = float(np.median(times))
        benchmark.rows.append({
            "case": name, "ms": 1e3 * mine, "best_peer": "the bar", "times_faster": bar / mine, "bar": 1,
            "peers_ms": {"the bar": 1e3 * bar}, "stats": str(found.stats), **machine(),
        })  # fmt: skip
        benchmark.console.print(f"{name}: {mine:.3f} s, the bar {bar} s; {found.stats}", highlight=False)


def har(benchmark: Benchmark) -> None:
    if benchmark.options.only not in "har":
        return
    with np.load(DATA / "uci_har.npz") as data:
        items, queries = torch.from_numpy(data["X_train"]), torch.from_numpy(data["X_test"])[::12].contiguous()
    distance, batch = lw.DTW(band=0.1), lw.Batch(queries)
    searcher = WholeSearch(distance, lw.Batch(items))
    found = searcher.search(batch, k=1, within=None)
    same(found, distance.matrix(queries, items))
    record(
        benchmark,
        f"har: 1-NN of {len(queries)} of 2,947 in 7,352, 9 channels, band 10 %",
        lambda: searcher.search(batch, k=1, within=None),
        {"brute force": lambda: distance.matrix(queries, items).min(1)},
        {"brute force": 10},
        stats=str(found.stats),
    )


def sizes(benchmark: Benchmark) -> None:
    """The map of sizes, a row per cell: of noise, where bounds rule out nothing, and of walks."""
    shapes = itertools.product((10, 24, 100, 1000), (16, 64, 256), (1, 3, 8), (1, 50), (0.02, 0.1))
    for kind, (n, t, c, q, band) in itertools.product(("noise", "walks"), shapes):
        name = f"map: {kind}, N {n}, T {t}, C {c}, Q {q}, band {band:.0%}, k 1, index built before"
        if benchmark.options.only not in name:
            continue
        torch.manual_seed(0)
        items, queries = torch.randn(n, t, c), torch.randn(q, t, c)
        if kind == "walks":
            items, queries = items.cumsum(1), queries.cumsum(1)
        distance, batch = lw.DTW(band=band), lw.Batch(queries)
        quick, slow = WholeSearch(distance, lw.Batch(items)), Exhaustive(distance, lw.Batch(items))
        same(quick.search(batch, k=1, within=None), distance.matrix(queries, items))
        times = interleave(
            {
                "quick": lambda quick=quick, batch=batch: quick.search(batch, k=1, within=None),
                "slow": lambda slow=slow, batch=batch: slow.search(batch, k=1, within=None),
            },
            benchmark.options.repeats,
            turn=0.01,
        )
        ratio = times["slow"] / times["quick"]
        benchmark.rows.append({
            "case": name, "ms": 1e3 * times["quick"], "best_peer": "exhaustive search", "times_faster": ratio,
            "bar": 0.9, "peers_ms": {"exhaustive search": 1e3 * times["slow"]}, **machine(),
        })  # fmt: skip
        if ratio < 1.1:
            benchmark.console.print(f"{name}: {ratio:.2f}", highlight=False)


def leave_one_out(benchmark: Benchmark) -> None:
    name = "leave one out: 10 bands of 1 to 10 %, 300 items of 256 steps, all included"
    if benchmark.options.only not in name:
        return
    torch.manual_seed(3)
    items = lw.Batch(torch.randn(300, 256, 1).cumsum(1))
    own = torch.arange(300)

    def ours() -> list[torch.Tensor]:
        return [
            WholeSearch(lw.DTW(band=percent / 100), items).search(items, k=1, within=None, skip=own).items
            for percent in range(1, 11)
        ]

    def brute() -> list[torch.Tensor]:
        return [
            lw.DTW(band=percent / 100).matrix(items).fill_diagonal_(torch.inf).argmin(1) for percent in range(1, 11)
        ]

    if not all(torch.equal(a[:, 0], b) for a, b in zip(ours(), brute(), strict=True)):
        raise WrongResult("search differs from brute force")
    times = interleave({"ours": ours, "brute": brute}, benchmark.options.repeats)
    benchmark.rows.append({
        "case": name, "ms": 1e3 * times["ours"], "best_peer": "the bar", "times_faster": 3 / times["ours"], "bar": 1,
        "peers_ms": {"the bar": 3000.0, "brute force": 1e3 * times["brute"]}, **machine(),
    })  # fmt: skip
    benchmark.console.print(f"{name}: {times['ours']:.3f} s, brute force {times['brute']:.3f} s", highlight=False)


def _timed(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main() -> None:
    benchmark = Benchmark("search", __doc__)
    for cases in (walks, ecg, million, har, sizes, leave_one_out):
        cases(benchmark)
    benchmark.close()


if __name__ == "__main__":
    main()
