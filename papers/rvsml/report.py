"""Print the table of RVSML from its lines, and draw its figure.

python -m papers.rvsml.report
python -m papers.rvsml.report --figures FOLDER
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import likewise as lw
from papers.common import decimals, from_command_line, read_lines, table

SPEAKER = 2  # of whom an utterance is drawn


@dataclass(frozen=True)
class Options:
    """What to draw."""

    figures: Path | None = None  # where the figure goes


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


def draw(folder: Path) -> None:
    """Draw a test utterance of JapaneseVowels, encoded, over the virtual sequences of its nine speakers."""
    from matplotlib.figure import Figure

    from likewise import viz
    from likewise.data.japanese_vowels import load_japanese_vowels
    from likewise.sklearn import RVSML

    train, test = load_japanese_vowels()
    learner = RVSML().fit(train.items, train.codes)
    own = test[[int((test.codes == SPEAKER).nonzero()[0])]]
    encoded, virtual = learner.transform(own.items), learner.virtual_[own.codes]
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    ax = figure.subplots()
    names = [f"speaker {name}" for name in train.classes]
    viz.plot_virtual_alignment(encoded, virtual, lw.DTW().align(encoded, virtual), names=names, ax=ax)
    ax.set_title(f"JapaneseVowels, a test utterance of {names[SPEAKER]}")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "virtual_sequences.png", dpi=120)


def main(options: Options) -> None:
    """Print the table, and draw the figure if asked to."""
    print(*tables(), sep="\n\n")
    if options.figures is not None:
        draw(options.figures)


if __name__ == "__main__":
    main(*from_command_line(Options()))
