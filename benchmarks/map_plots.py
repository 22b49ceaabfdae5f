"""The heat maps of map.py."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure


def draw(rows: list[dict[str, Any]], to: Path) -> None:
    """Shares of the limit, and times faster than the fastest peer where there is one: a row for each size."""
    measures = {"share of the limit": lambda row: row["share"]}
    if any(row.get("peer") for row in rows):
        measures["times faster than the fastest peer"] = lambda row: (
            row["peer_ms"] / row.get("beside_ms", row["ms"]) if row.get("peer") else np.nan
        )
    sizes = list(dict.fromkeys(map(_size, rows)))
    channels = sorted({row["channels"] for row in rows})
    figure = Figure(figsize=(1.2 + 4.6 * len(measures), 1.2 + 0.3 * len(sizes)), layout="constrained")
    for ax, (title, read) in zip(figure.subplots(1, len(measures), squeeze=False)[0], measures.items(), strict=True):
        table = np.full((len(sizes), len(channels)), np.nan)
        for row in rows:
            table[sizes.index(_size(row)), channels.index(row["channels"])] = read(row)
        shared = title.startswith("share")
        image = ax.imshow(table, aspect="auto", cmap="RdYlGn", norm=LogNorm(0.05, 1) if shared else LogNorm(1, 100))
        for (i, j), value in np.ndenumerate(table):
            if np.isfinite(value):
                ax.text(j, i, f"{value:.0%}" if shared else f"{value:.1f}", ha="center", va="center", fontsize=7)
        ax.set_xticks(range(len(channels)), [str(c) for c in channels])
        ax.set_yticks(range(len(sizes)), sizes, fontsize=7)
        ax.set(title=title, xlabel="channels")
        figure.colorbar(image, ax=ax, shrink=0.6)
    figure.suptitle(f"{rows[0]['op']}, {rows[0]['cpu']}, {rows[0]['threads']} threads")
    figure.savefig(to, dpi=110)


def _size(row: dict[str, Any]) -> str:
    more = [row["lengths"]] if row["lengths"] != "equal" else []
    more += [f"band {row['band']}"] if row["band"] else []
    return ", ".join([f"{row['pairing']} {row['count']}", f"T {row['steps']}", *more])
