"""Windows of a long stream, searched on a GPU: checked against the CPU, then timed. Needs a CUDA device.

    python benchmarks/search_gpu.py [--rows FILE] [--samples 10000000] [--queries 1000]

1,000 queries of 128 steps in a stream of 10 million samples, band 5 %, z-normalised, for random walks and for an
electrocardiogram that is repeated with noise and drift. Half of the queries are pieces of the stream with noise, half
are new. Four queries are searched on the CPU, too: a search whose hits differ is not timed. "index_ms" are the moments
of all windows and the envelopes of the stream, "ms" is a search; bar: 5 s for both.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import triton

import likewise as lw
from likewise.ops.search import gpu
from likewise.search.device_windows import DeviceWindowSearch
from likewise.search.windows import WindowSearch

LENGTH, BAND, BAR = 128, 0.05, 5.0


def stream_of(kind: str, samples: int) -> torch.Tensor:
    """A stream (T,) float32."""
    drawn = torch.Generator().manual_seed(0)
    if kind == "walk":
        return torch.randn(samples, generator=drawn).cumsum(0)
    values = np.load(Path(os.environ.get("LIKEWISE_DATA", "../shared/data")) / "ecg_360hz.npz")["values"]
    beats = torch.from_numpy(np.resize(values.ravel(), samples)).float()
    drift = torch.randn(samples, generator=drawn).cumsum(0) * 0.005
    return beats + 0.02 * torch.randn(samples, generator=drawn) + drift


def queries_of(kind: str, stream: torch.Tensor, count: int) -> torch.Tensor:
    """Queries (Q, m, 1): pieces of the stream with noise, and new ones."""
    drawn = torch.Generator().manual_seed(1)
    starts = torch.randint(len(stream) - LENGTH, (count // 2,), generator=drawn)
    pieces = stream[starts[:, None] + torch.arange(LENGTH)]
    pieces = pieces + 0.1 * pieces.std(1, keepdim=True) * torch.randn(pieces.shape, generator=drawn)
    other = stream_of(kind, 4 * LENGTH * count).roll(77) * 1.1
    new = other[: LENGTH * (count - count // 2)].reshape(-1, LENGTH)
    new = new + 0.05 * new.std(1, keepdim=True) * torch.randn(new.shape, generator=drawn)
    return torch.cat([pieces, new])[..., None]


def seconds(work: object, repeats: int) -> list[float]:
    """Times of some calls, the device idle before and after."""
    found = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()  # type: ignore[operator]
        torch.cuda.synchronize()
        found.append(time.perf_counter() - begin)
    return found


def equal(found: object, truth: object) -> bool:
    """Whether the hits of the GPU are those of the CPU, but for rounding."""
    near = torch.allclose(found.distances, truth.distances, rtol=1e-5, atol=1e-5)  # type: ignore[attr-defined]
    places = (found.starts == truth.starts).double().mean()  # type: ignore[attr-defined]
    return bool(near) and float(places) > 0.99


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--tiles", action="store_true", help="time other tiles of the bounds' kernel, too")
    options = parser.parse_args()
    distance, rows = lw.DTW(band=BAND), []
    for kind in ("walk", "ecg"):
        stream = stream_of(kind, options.samples)
        queries = lw.Batch(queries_of(kind, stream, options.queries))
        items, on_card = lw.Batch(stream[None, :, None]), lw.Batch(queries.values.cuda())
        card = lw.Batch(items.values.cuda())
        begin = time.perf_counter()
        searcher = DeviceWindowSearch(distance, card, LENGTH, normalize=True)
        torch.cuda.synchronize()
        first_seconds = time.perf_counter() - begin
        index_ms = 1e3 * statistics.median(
            seconds(lambda card=card: DeviceWindowSearch(distance, card, LENGTH, normalize=True), options.repeats)
        )
        few = torch.linspace(0, options.queries - 1, 4).long()
        on_cpu = WindowSearch(distance, items, LENGTH, normalize=True)
        for k in (1, 10):
            wanted = {"k": k, "within": None, "exclude": 0.5}
            found = searcher.search(lw.Batch(on_card.values[few.cuda()]), **wanted)
            truth = on_cpu.search(lw.Batch(queries.values[few]), **wanted)
            correct = equal(found, truth)
            row = {
                "case": f"{kind}: {options.queries:,} queries, {options.samples:,} samples, k {k}",
                "correct": correct,
            }
            if correct:
                torch.cuda.reset_peak_memory_stats()
                times = seconds(lambda: searcher.search(on_card, **wanted), options.repeats)  # noqa: B023
                stats, peak = searcher.search(on_card, **wanted).stats, torch.cuda.max_memory_allocated() / 1e9
                row |= {"ms": 1e3 * statistics.median(times), "slowest_ms": 1e3 * max(times),
                        "index_ms": index_ms, "first_seconds": first_seconds, "bar_ms": 1e3 * BAR, "peak_GB": peak,
                        "stats": str(stats)}  # fmt: skip
            else:
                row |= {"found": str(found.distances[:, :3].tolist()), "truth": str(truth.distances[:, :3].tolist())}
            row |= {"date": time.strftime("%Y-%m-%d"), "commit": os.environ.get("COMMIT", "")}
            row |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
            rows.append(row)
            print(json.dumps(row), flush=True)
        if options.tiles and kind == "walk":
            tiles(searcher, on_card)
    if options.rows:
        with options.rows.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def tiles(searcher: DeviceWindowSearch, queries: lw.Batch) -> None:
    """Times of one pass of bounds over all windows, by the tile of a program."""
    from likewise.search.device_windows import _Group

    for size, lanes in ((8, 256), (8, 128), (8, 512), (16, 128), (16, 256), (4, 512), (4, 256)):
        gpu.QUERIES, gpu.LANES = size, lanes
        group = _Group(searcher, queries.values, 1, None, 0.5, None)
        part = slice(0, 4096)

        def bounds(group: _Group = group, part: slice = part) -> None:
            gpu.block_bounds(group.blocks, part, group.envelopes, root=False)

        try:
            seconds(bounds, 1)
            times = seconds(bounds, 3)
            share = min(4096, len(group.blocks.item)) / len(group.blocks.item)
            print(f"tile {size} x {lanes}: {1e3 * min(times) / share:.0f} ms for all windows", flush=True)
        except Exception as error:
            print(f"tile {size} x {lanes}: {type(error).__name__}: {str(error)[:100]}", flush=True)
    gpu.QUERIES, gpu.LANES = 8, 512


if __name__ == "__main__":
    main()
