"""Su & Wu (2020): Learning distance for sequences by learning a ground metric, with virtual sequences (RVSML)."""
