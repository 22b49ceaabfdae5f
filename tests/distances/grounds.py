"""A ground cost that is a function, and names of tests that do not show its address."""

from likewise.distances.distance import describe


def manhattan(x, y):
    return (x[:, :, None] - y[:, None]).abs().sum(-1)


def named(options):
    return describe(**options) or "default"
