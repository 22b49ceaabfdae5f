"""benchmarks/simulate.py, where the answer is known."""

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("simpy")
EXACT = {"dispatch": 0.0, "slow": 0.0, "spread": 0.0, "between_failures": 1e12}


@pytest.fixture
def simulate(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    for name in ("simulate", "scale"):  # pytest knows this folder as scale, too
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("simulate")


def test_workers_share_cores(simulate):
    costs = [1.0] * 6
    for workers, seconds in ((1, 6.0), (2, 3.0), (3, 3.0), (6, 3.0)):
        found = simulate.simulate_tiles(simulate.Cluster(workers=workers, **EXACT), costs, 0, 0)
        assert found.seconds == pytest.approx(seconds, abs=0.1)  # a speed is constant for a slice of .25 s
        assert found.efficiency == pytest.approx(3 / found.seconds)
    beside = simulate.Cluster(workers=2, shared=0.5, **EXACT)
    assert simulate.simulate_tiles(beside, costs, 0, 0).seconds == pytest.approx(6.0, abs=0.2)


def test_network_disk_and_driver_take_their_time(simulate):
    cluster = simulate.Cluster(machines=2, workers=1, **EXACT)
    assert simulate.simulate_tiles(cluster, [1.0, 1.0], 2 * cluster.network, 0).seconds == pytest.approx(3.0)
    assert simulate.simulate_tiles(cluster, [1.0, 1.0], 0, cluster.disk).seconds == pytest.approx(3.0)  # one disk
    slow = simulate.Cluster(machines=2, workers=1, **{**EXACT, "dispatch": 5.0})
    assert simulate.simulate_tiles(slow, [1.0, 1.0], 0, 0).seconds == pytest.approx(11.0)


def test_tiles_of_machines_that_fail_are_computed_again(simulate):
    cluster = simulate.Cluster(machines=5, **{**EXACT, "between_failures": 300.0})
    found = simulate.simulate_tiles(cluster, [10.0] * 500, 0, 0)
    assert found.again > 0
    assert found.seconds > 500


def test_a_query_waits_for_its_slowest_machine(simulate):
    fan = {"seconds": 0.1, "spread": 0.0, "slow": 0.0, "trip": 0.0, "merge": 0.01}
    found = simulate.simulate_search(simulate.Fan(4, **fan), 20, per_second=1e-3)
    assert found == pytest.approx([0.14] * 20)
    rare = simulate.Fan(1000, **{**fan, "slow": 0.01, "merge": 0.0})
    assert min(simulate.simulate_search(rare, 5, per_second=1e-3)) == pytest.approx(0.5)
