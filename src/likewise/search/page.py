"""One self-contained HTML page about a query and its hits: text, tables and inline SVG, no script, nothing loaded."""

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from likewise.search.explanation import Explanation

if TYPE_CHECKING:
    from likewise.search.hits import Hits

WIDTH, HEIGHT = 860.0, 70.0  # of a drawing, and of each series in it
GAP, STRIP = 54.0, 46.0  # between two series, of the costs
LEFT, RIGHT = 46.0, 8.0  # margins
MOST_POINTS = 1200  # of a line
MOST_CHANNELS = 8  # that are drawn
MOST_SEGMENTS = 12  # in a table
PALE = ("#fbb4ae", "#b3cde3", "#ccebc5", "#decbe4", "#fed9a6", "#ffffb3", "#e5d8bd", "#fddaec")

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --dim: #6b7078; --line: #d9dce1; --paper: #fff; --query: #0072b2;
  --match: #d55e00; --bar: #9aa0a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #9aa1ab; --line: #3a3f47; --paper: #16181c;
  --query: #56b4e9; --match: #f0883e; --bar: #6b7280; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 900px; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .3rem; }
.dim { color: var(--dim); } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; margin: .6rem 0; }
th, td { text-align: right; padding: .18rem .9rem .18rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 500; } .name { text-align: left; }
a { color: var(--query); text-decoration: none; } a:hover { text-decoration: underline; }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .small { font-size: 11px; } svg .faint { fill: var(--dim); }
.query { stroke: var(--query); } .match { stroke: var(--match); } .other { stroke: var(--ink); }
.ribbon { fill-opacity: .55; } @media (prefers-color-scheme: dark) { .ribbon { fill-opacity: .28; } }
details { margin: .3rem 0; } summary { cursor: pointer; color: var(--dim); }
"""


def write_page(hits: "Hits", q: int, *, k: int, title: str | None) -> str:
    """The page of query q with its first k hits."""
    count = min(k, int(hits.counts[q]))
    heading = f"Query {q}: {int(hits.counts[q])} hit{'s' * (int(hits.counts[q]) != 1)}" if title is None else title
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        # Whatever an id or a label holds, the page can load and run nothing.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(heading)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(heading)}</h1>",
        f'<p class="dim">{escape(str(hits.stats))}</p>',
        _overview(hits, q, count),
    ]
    parts += [_hit(hits, q, i) for i in range(count)]
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _overview(hits: "Hits", q: int, count: int) -> str:
    labelled = hits.labels is not None
    heads = ["rank", "item", *(["label"] if labelled else []), "distance", "steps"]
    names = {"item", "label"}
    rows = []
    for i in range(count):
        cells = [f'<td>{i}</td><td class="name"><a href="#hit-{i}">{escape(str(hits.ids[q, i]))}</a></td>']
        if hits.labels is not None:
            cells.append(f'<td class="name">{escape(str(hits.labels[q, i]))}</td>')
        cells.append(f"<td>{_number(float(hits.distances[q, i]))}</td>")
        cells.append(f"<td>{int(hits.starts[q, i])}..{int(hits.ends[q, i]) - 1}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th{_name_class(name in names)}>{name}</th>" for name in heads)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _hit(hits: "Hits", q: int, i: int) -> str:
    why = hits.explain(q, i)
    parts = [f'<h2 id="hit-{i}">{i}. {escape(why.name)} <span class="dim">at {_number(why.value)}</span></h2>']
    if why.query.ndim == 2:
        parts.append(_drawing(why))
    parts.append(_channels(why))
    if why.segments:
        parts.append(_segments(why))
    other = why.counterfactual
    if other is not None:
        parts.append(f"<p>{escape(str(other)[0].upper() + str(other)[1:])}.</p>")
    return "\n".join(part for part in parts if part)


def _drawing(why: Explanation) -> str:
    """The query above its match, joined by segments, and the cost of each step of the query."""
    query, match = _array(why.query), _array(why.match)
    steps = max(len(query), len(match))
    costs = None if why.by_step is None else _array(why.by_step)
    below = HEIGHT + GAP
    total = 2 * HEIGHT + GAP + (STRIP + 26 if costs is not None else 6) + 8
    parts = [f'<svg viewBox="0 0 {WIDTH:g} {total:g}" role="img" aria-label="query above match, joined by segments">']
    parts += _ribbons(why, steps)
    low, high = min(query.min(), match.min()), max(query.max(), match.max())
    parts += _lines(query, steps, 4, low, high, "query") + _lines(match, steps, below + 4, low, high, "match")
    parts.append('<text x="0" y="12" class="small faint">query</text>')
    parts.append(f'<text x="0" y="{below + 12:g}" class="small faint">match</text>')
    if costs is not None:
        parts += _bars(why, costs, steps, 2 * HEIGHT + GAP + 12)
    return "\n".join([*parts, "</svg>"])


def _ribbons(why: Explanation, steps: int) -> list[str]:
    top, bottom = HEIGHT + 8, HEIGHT + GAP - 2
    parts = []
    for place, segment in enumerate(why.segments):
        ends = (segment.start - 0.5, segment.end - 0.5, segment.match_end - 0.5, segment.match_start - 0.5)
        a, b, c, d = (_across(end, steps) for end in ends)
        fill = PALE[place % len(PALE)]
        parts.append(
            f'<polygon class="ribbon" fill="{fill}" points="{a:.1f},{top:g} {b:.1f},{top:g} {c:.1f},{bottom:g} '
            f'{d:.1f},{bottom:g}"><title>{escape(str(segment))}</title></polygon>'
        )
        width = (b - a + c - d) / 2
        if width > 34:
            shift = f"{round(segment.shift):+d}" if round(segment.shift) else "0"
            text = f"shift {shift}" if width > 64 else shift
            stretch = f", stretch {segment.stretch:.2f}" if width > 140 and abs(segment.stretch - 1) >= 0.05 else ""
            middle = (a + b + c + d) / 4
            parts.append(
                f'<text class="small" x="{middle:.1f}" y="{(top + bottom) / 2 + 4:g}" text-anchor="middle">'
                f"{text}{stretch}</text>"
            )
    return parts


def _bars(why: Explanation, costs: np.ndarray, steps: int, top: float) -> list[str]:
    other = why.counterfactual
    there = None if other is None or other.explanation.by_step is None else _array(other.explanation.by_step)
    low = min(0.0, float(costs.min()))
    most = max(float(costs.max()), 0.0 if there is None else float(there.max()), low + 1e-300)
    scale = STRIP / (most - low)
    width = (WIDTH - LEFT - RIGHT) / steps
    base = top + STRIP + low * scale
    parts = []
    for t in range(len(costs)):
        height = float(costs[t]) * scale
        x, y = _across(t - 0.5, steps), base - max(height, 0.0)
        parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width * 0.92:.2f}" height="{abs(height):.2f}" '
            f'fill="var(--bar)"><title>step {t}: {_number(float(costs[t]))}</title></rect>'
        )
    if there is not None:
        points = " ".join(f"{_across(t, steps):.1f},{base - float(v) * scale:.1f}" for t, v in enumerate(there))
        parts.append(f'<polyline class="other" fill="none" stroke-dasharray="2 3" points="{points}"/>')
    text = "cost of each step of the query"
    if there is not None and other is not None:
        text += f"; dotted: to {escape(other.explanation.name)}, of another class"
    parts.append(f'<text class="small faint" x="{LEFT:g}" y="{top + STRIP + 16:g}">{text}</text>')
    return parts


def _lines(values: np.ndarray, steps: int, top: float, low: float, high: float, kind: str) -> list[str]:
    scale = HEIGHT / (high - low) if high > low else 0.0
    kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).round().astype(int))
    drawn = min(values.shape[1], MOST_CHANNELS)
    parts = []
    for c in range(drawn):
        at = [(_across(t, steps), top + (high - values[t, c]) * scale) for t in kept.tolist()]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        width, opacity = (1.6, 1.0) if drawn == 1 else (1.1, 0.6)
        parts.append(
            f'<polyline class="{kind}" fill="none" stroke-width="{width}" opacity="{opacity}" points="{points}"/>'
        )
    return parts


def _segments(why: Explanation) -> str:
    shown = sorted(sorted(why.segments, key=lambda s: -s.cost)[:MOST_SEGMENTS], key=lambda s: s.start)
    rows = [
        f"<td>{s.start}..{s.end - 1}</td><td>{s.match_start}..{s.match_end - 1}</td><td>{s.shift:+.1f}</td>"
        f"<td>{s.stretch:.2f}</td><td>{s.amplitude:.2f}</td><td>{_number(s.level)}</td><td>{_number(s.cost)}</td>"
        for s in shown
    ]
    heads = ("query", "match", "shift", "stretch", "amplitude", "level", "cost")
    left = len(why.segments) - len(shown)
    note = f' <span class="dim">(the {len(shown)} that cost most)</span>' if left else ""
    return (
        f"<details><summary>{len(why.segments)} segment{'s' * (len(why.segments) != 1)}</summary>{note}"
        f'<div class="wide">{_table(heads, rows)}</div></details>'
    )


def _channels(why: Explanation) -> str:
    parts = why.by_channel
    if parts is None or len(parts) < 2:
        return ""
    order = parts.argsort(descending=True)[:MOST_CHANNELS].tolist()
    shown = ", ".join(f"channel {c} {_percent(float(parts[c]), why.value)}" for c in order)
    return f'<p class="dim">Of the distance: {shown}.</p>'


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _name_class(text: bool) -> str:
    return ' class="name"' if text else ""


def _across(step: float, steps: int) -> float:
    """The horizontal position of a step; all steps are equally wide."""
    return LEFT + (step + 0.5) * (WIDTH - LEFT - RIGHT) / steps


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _array(values: Tensor | Any) -> np.ndarray:
    return values.detach().double().cpu().numpy()
