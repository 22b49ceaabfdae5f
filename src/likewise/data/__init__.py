"""Batches of sequences and the readers that fill them."""
