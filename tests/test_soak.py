"""The rule of benchmarks/soak.py: what it calls flat, and what it must call growing."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def soak():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import soak
    finally:
        sys.path.remove(str(BENCHMARKS))
    return soak


def states(soak, rounds=500, **leaks):
    """Rounds of a process that wanders, as real ones do, after a warm-up that grows."""
    draw = np.random.default_rng(0)
    at = np.arange(rounds)
    warm = 30e6 * (1 - np.exp(-at / 15))
    wander = {"resident": 600e6 + warm, "in_use": 200e6 + warm, "objects": 1e6 + 20 * draw.normal(size=rounds)}
    wander["resident"] += 50e3 * draw.normal(size=rounds)
    wander["in_use"] += 20e3 * draw.normal(size=rounds)
    wander |= {"threads": np.full(rounds, 5), "handles": np.full(rounds, 12)}
    return [soak.State(*(wander[n][i] + leaks.get(n, 0) * i for n in soak.State._fields)) for i in range(rounds)]


def test_a_random_walk_is_flat(soak):
    text, row = soak.report(states(soak), 60)
    assert row["flat"], text
    assert row["control_seen"]
    assert "a leak of 10 kB a round would be seen" in text


@pytest.mark.parametrize(
    "leak", [{"resident": 10e3}, {"in_use": 10e3}, {"objects": 100}, {"handles": 0.01}, {"threads": 0.01}]
)
def test_a_leak_is_growth(soak, leak):
    text, row = soak.report(states(soak, **leak), 60)
    assert not row["flat"], text
    assert text.endswith("GROWING")


def test_few_rounds_say_nothing(soak):
    text, row = soak.report(states(soak, rounds=20), 1)
    assert "too few" in text
    assert not row["flat"]


def test_every_distance_takes_part(soak):
    from likewise import distances

    kinds = {type(distance).__name__ for distance in soak.every_distance()}
    base = {"Distance", "Elastic"}
    exported = {
        n
        for n in distances.__all__
        if isinstance(k := getattr(distances, n), type) and issubclass(k, distances.Distance)
    }
    assert kinds == exported - base
