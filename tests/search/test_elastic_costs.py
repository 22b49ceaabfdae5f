"""Costs by step of elastic distances: the costs of the moves of a path sum to the distance."""

import pytest
import torch

import likewise as lw
from likewise.search.elastic_costs import elastic_costs

DISTANCES = [
    lw.MSM(cost=0.7),
    lw.MSM(cost=0.1, independent=False),
    lw.MSM(band=2),
    lw.TWE(),
    lw.ERP(),
    lw.ERP(band=0.4),
    lw.ADTW(0.5),
    lw.ADTW(0.5, subsequence=True),
    lw.WDTW(0.2),
    lw.EDR(),
    lw.LCSS(),
    lw.DDTW(),
    lw.ShapeDTW(),
    lw.ShapeDTW(reach=2),
]


@pytest.mark.parametrize("distance", DISTANCES, ids=repr)
@pytest.mark.parametrize("seed", range(6))
def test_costs_sum_to_the_distance(distance, seed):
    drawn = torch.Generator().manual_seed(seed)
    n, m = torch.randint(3, 14, (2,), generator=drawn).tolist()
    channels = 1 + seed % 2
    x, y = (torch.randn(steps, channels, generator=drawn).cumsum(0) for steps in (n, m))
    if seed == 5:  # ties everywhere
        x, y = x.round(), y.round()
    if distance.rules.open_end and n > m:
        x, y = y, x
    value = float(distance(x[None], y[None])[0])
    first, second = elastic_costs(distance, x, y)
    offset = 1.0 if isinstance(distance, lw.LCSS) else 0.0
    assert float(first.sum()) + offset == pytest.approx(value, rel=1e-5, abs=1e-5)
    assert float(second.sum()) + offset == pytest.approx(value, rel=1e-5, abs=1e-5)
    assert first.shape == (len(x), channels if distance.separate else 1)
    assert second.shape == (len(y), channels if distance.separate else 1)


def test_a_step_that_is_left_out_bears_its_cost():
    x, y = [[0.0], [1.0], [-9.0], [2.0]], [[0.0], [1.0], [2.0]]
    first, _ = elastic_costs(lw.ERP(), torch.tensor(x), torch.tensor(y))
    assert first[:, 0].tolist() == [0.0, 0.0, 9.0, 0.0]


@pytest.mark.parametrize("distance", [lw.MSM(), lw.SBD()], ids=repr)
def test_channels_with_alignments_of_their_own_are_explained(distance):
    x = torch.randn(4, 12, 2, generator=torch.Generator().manual_seed(0)).cumsum(1)
    why = lw.Index(distance, x[1:]).search(x[:1], k=1).explain()
    assert why.alignment is None
    assert why.segments == []
    assert str(why).startswith(distance.name)
    if isinstance(distance, lw.MSM):
        assert why.cost.shape == (12, 2)
        assert float(why.cost.sum()) == pytest.approx(why.value, rel=1e-5)
