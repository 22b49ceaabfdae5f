"""The figure of RVSML."""

from papers.rvsml import report


def test_its_figure_is_drawn(tmp_path):
    report.draw(tmp_path)
    assert (tmp_path / "virtual_sequences.png").stat().st_size > 10_000
