import pytest
import torch

from likewise.distances.emd import EMD
from likewise.distances.sinkhorn import Sinkhorn
from likewise.models import config
from likewise.testing import assert_close, check_distance
from tests.distances.grounds import manhattan, named


def frames(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    "options",
    [{"reg": 0.5}, {"ground": "cosine"}, {"reg": 0.3, "ground": "euclidean"}, {"ground": manhattan}],
    ids=named,
)
def test_contract(options):
    check_distance(Sinkhorn(**options))


def test_contract_of_an_early_stop():
    distance = Sinkhorn(0.5, n_iter=5)
    assert not distance.symmetric
    check_distance(distance)


def test_it_is_pots():
    ot = pytest.importorskip("ot")
    x, y = frames(2, 12, 2), frames(2, 9, 2, seed=1)
    for reg in (1.0, 0.4):
        found = Sinkhorn(reg).align(x, y)
        for b in range(2):
            cost = torch.cdist(x[b], y[b]).square().numpy()
            plan = ot.sinkhorn([], [], cost, reg, method="sinkhorn_log", stopThr=1e-13, numItermax=100_000)
            assert found.value[b].item() == pytest.approx((plan * cost).sum(), rel=1e-6)
            assert_close(found.plan[b], torch.from_numpy(plan), 1e-6, "plan")


def test_two_by_two_by_hand():
    # Costs [[0, 1], [1, 0]]: T = [[s, 1 - s], [1 - s, s]] / 2 with (s / (1 - s))^2 = exp(2 / reg).
    share = torch.tensor(1 / 0.7).sigmoid()
    assert Sinkhorn(0.7)([[0.0, 1.0]], [[0.0, 1.0]]).item() == pytest.approx(1 - share.item(), rel=1e-5)


def test_a_small_reg_gives_emd():
    x, y = frames(3, 10, 2), frames(3, 8, 2, seed=1)
    assert_close(Sinkhorn(1e-3)(x, y), EMD()(x, y), 1e-3, "value")
    assert_close(Sinkhorn(1e-5)(x, y), EMD()(x, y), 1e-5, "value")


def test_order_does_not_matter():
    x, y = frames(2, 6, 2), frames(2, 5, 2, seed=1)
    assert_close(Sinkhorn()(x.flip(1), y), Sinkhorn()(x, y), 1e-10, "value")


def test_it_can_be_written_down():
    distance = Sinkhorn(0.2, ground="euclidean", n_iter=3)
    again = config.build("here", config.describe(distance))
    assert repr(again) == repr(distance) == "Sinkhorn(reg=0.2, ground='euclidean', n_iter=3)"


def test_bad_settings():
    with pytest.raises(ValueError, match="Sinkhorn: reg must be positive and finite, got 0"):
        Sinkhorn(0)
