"""The experiments of the papers behind likewise: one folder a paper, with its data, runs, lines and tables."""
