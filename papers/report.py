"""Print every table of every paper from its lines: python -m papers.report."""

from importlib import import_module

PAPERS = ("coupled_gru", "decdtw", "tap", "rvsml", "unseen_classes")


def main() -> None:
    """Print the tables, one paper after the other."""
    for paper in PAPERS:
        print(f"# {paper}", *import_module(f"papers.{paper}.report").tables(), sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
