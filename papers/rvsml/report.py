"""Print the table of RVSML from its lines: python -m papers.rvsml.report."""

from collections.abc import Iterator
from pathlib import Path

from papers.common import decimals, read_lines, table


def tables() -> Iterator[str]:
    """The table of README.md: every line, those of fewer sequences too."""
    rows = [
        [
            f"{line['aligner'].upper()}{', standardised' if line['standardize'] else ''}",
            f"{line['train']:,}",
            f"{line['test']:,} x {line['references']:,}",
            *(decimals([line[score]]) for score in ("accuracy", "f1", "map")),
            f"{line['wall_time']:.0f}",
            f"{line['pairs_a_second']:,.0f}",
        ]
        for line in read_lines(Path(__file__).parent / "har.jsonl")
    ]
    headings = ["aligner", "training", "pairs", "accuracy", "macro-F1", "MAP", "s to learn", "pairs/s"]
    yield table(headings, rows)


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
