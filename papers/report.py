"""Print every table of every paper from its lines: python -m papers.report. With --write, put them into the READMEs."""

import re
import sys
from importlib import import_module
from pathlib import Path

PAPERS = ("coupled_gru", "decdtw", "tap", "rvsml", "unseen_classes")
HERE = Path(__file__).parent


def main(write: bool = False) -> None:
    """Print the tables, one paper after the other, or write them where tables of the same headings are."""
    for paper in PAPERS:
        found = list(import_module(f"papers.{paper}.report").tables())
        if write:
            path = HERE / paper / "README.md"
            path.write_text(replaced(path.read_text(), found))
        else:
            print(f"# {paper}", *found, sep="\n\n", end="\n\n")


def replaced(text: str, tables: list[str]) -> str:
    r"""A README with each table in the place of the one that has the same headings.

    Example:
        >>> replaced("| a |\n|---|\n| 1 |\n", ["| a |\n|---|\n| 2 |"])
        '| a |\n|---|\n| 2 |\n'
    """
    for table in tables:
        heading = re.escape(table.splitlines()[0])
        block = re.compile(rf"^{heading}\n(\|.*(\n|$))+", re.MULTILINE)
        if not block.search(text):
            print(f"no table of these headings: {table.splitlines()[0]}", file=sys.stderr)
        text = block.sub(lambda match, table=table: table + "\n", text, count=1)
    return text


if __name__ == "__main__":
    main(write="--write" in sys.argv[1:])
