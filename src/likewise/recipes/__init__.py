"""Experiments: one readable file each, settings on top, one JSON line of results at the end."""
