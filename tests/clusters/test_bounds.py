"""Bounds on a distance under one setting, from its values under others."""

import pytest

import likewise as lw
from likewise.clusters.bounds import Interval, interval, lower_factor
from tests.clusters.test_tune import ELASTIC, GRIDS, module, shapes


@pytest.mark.parametrize("name", [name for name in ELASTIC if name != "ERP"])
def test_factors_bound_the_distances(name):
    x, _ = shapes(12)
    settings = module.read_grid(GRIDS[name])
    kind = getattr(lw, name)
    for a in settings:
        for b in settings:
            factor = lower_factor(kind(**a), kind(**b), x.shape[1])
            assert (kind(**b).matrix(x) >= factor * kind(**a).matrix(x) * (1 - 1e-9) - 1e-12).all()


@pytest.mark.parametrize("name", [name for name in ELASTIC if name != "ERP"])
def test_intervals_hold(name):
    x, _ = shapes(12)
    kind = getattr(lw, name)
    settings = module.read_grid(GRIDS[name] if name == "TWE" else {key: v * 2 for key, v in GRIDS[name].items()})
    exact = [kind(**setting).matrix(x).numpy() for setting in settings]
    for wanted in range(len(settings)):
        known = [
            Interval(kind(**setting), D * (1 - 0.01 * (k % 2)), D * (1 + 0.01 * (k % 2)))
            for k, (setting, D) in enumerate(zip(settings, exact, strict=True))
            if setting != settings[wanted]
        ]
        found = interval(kind(**settings[wanted]), known, x.shape[1], 12)
        assert (found.low <= exact[wanted] * (1 + 1e-9) + 1e-12).all()
        assert (found.high >= exact[wanted] * (1 - 1e-9) - 1e-12).all()
