import copy

import pytest
import torch

import likewise as lw
from likewise.data.standardization import Standardization, watching


def learned(x, lengths=None, channels=3):
    scaling = Standardization(channels)
    with watching([scaling]):
        scaling(x, lengths)
    return scaling


def test_channels_get_mean_0_and_deviation_1_and_padding_is_ignored():
    torch.manual_seed(0)
    x, lengths = 5 + 100 * torch.randn(8, 20, 3), torch.arange(3, 11)
    real = torch.arange(20) < lengths[:, None]
    scaling = learned(x.masked_fill(~real[..., None], 1e6), lengths)
    frames = scaling(x)[real]
    torch.testing.assert_close(frames.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(frames.std(0, correction=0), torch.ones(3))
    assert scaling.frames == real.sum()


def test_it_is_the_identity_until_it_has_learnt():
    x = torch.randn(2, 4, 3)
    assert Standardization(3)(x) is x
    scaling = learned(x)
    before = scaling.mean.clone()
    with watching([scaling]):
        scaling(x + 1)
    assert torch.equal(scaling.mean, before), "only once"


@pytest.mark.parametrize("level", [0.0, 0.1, -1e8])
def test_a_constant_channel_is_centred(level):
    x = torch.randn(2, 4, 3)
    x[..., 1] = level
    assert (learned(x)(x)[..., 1].abs() <= 1e-6 * max(1, abs(level))).all()
    assert learned(x).deviation[1] == 1


def test_frames_that_are_not_finite_teach_nothing():
    x = torch.randn(2, 4, 3)
    x[0, 0, 0] = torch.nan
    assert not learned(x).known
    assert not learned(x[:0]).known


def test_a_state_and_a_copy_keep_it():
    x = torch.randn(2, 4, 3)
    scaling, fresh = learned(x), Standardization(3)
    fresh.load_state_dict(scaling.state_dict())
    assert torch.equal(fresh(x), scaling(x))
    assert torch.equal(copy.deepcopy(scaling)(x), scaling(x))
    fresh.load_state_dict(Standardization(3).state_dict())
    assert fresh(x) is x
    assert scaling.double()(x.double()).dtype == torch.float64


PARTS = {
    "FrameMLP": lambda **k: lw.Metric(lw.FrameMLP(3, 8, **k), lw.DTW()),
    "TCN": lambda **k: lw.Metric(lw.TCN(3, 8, **k), lw.DTW()),
    "GRUEncoder": lambda **k: lw.Metric(lw.GRUEncoder(3, 8, **k), lw.Euclidean()),
    "Embedder": lambda **k: lw.Metric(lw.Embedder(lw.TCN(3, 8, **k), 4), lw.Euclidean()),
    "CoupledGRU": lambda **k: lw.Metric(None, lw.CoupledGRU(3, (4,), **k)),
    "SiameseGRU": lambda **k: lw.Metric(None, lw.SiameseGRU(3, (4,), **k)),
}


@pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)
def test_a_metric_sees_what_it_would_see_of_standardised_items(make, tmp_path):
    torch.manual_seed(0)
    x = lw.Batch(torch.tensor([10.0, 0.1, 1e3]) * (1 + torch.randn(6, 9, 3)), [9, 4, 7, 9, 5, 2])
    metric, plain = make(), make(standardize=False)
    plain.load_state_dict(metric.state_dict(), strict=False)
    torch.testing.assert_close(metric.matrix(x), plain.matrix(x))
    assert (len(metric.unprepared), len(plain.unprepared)) == (1, 0)
    metric.prepare(x)
    assert not metric.unprepared
    frames = x.values[x.mask]
    scaled = lw.Batch((x.values - frames.mean(0)) / frames.std(0, correction=0), x.lengths)
    torch.testing.assert_close(metric.matrix(x), plain.matrix(scaled), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        metric(x, x[[1, 0, 2, 3, 4, 5]]), plain(scaled, scaled[[1, 0, 2, 3, 4, 5]]), atol=1e-4, rtol=1e-4
    )
    metric.save(tmp_path)
    assert torch.equal(lw.Metric.load(tmp_path).matrix(x), metric.matrix(x))


def test_a_chain_of_parts_and_a_distance_behind_an_encoder_learn_in_one_pass():
    x = 7 + 3 * torch.randn(12, 9, 2)
    metric = lw.Metric(lw.FrameMLP(2, 8, out=4), lw.CoupledGRU(4, (3,)))
    metric.prepare(x)
    inner = metric.encoder(x).values.flatten(0, 1)
    torch.testing.assert_close(metric.distance.scaling.mean, inner.mean(0), atol=1e-5, rtol=1e-4)


def test_the_twin_standardises_alike():
    x = 7 + 3 * torch.randn(12, 9, 2)
    coupled = lw.CoupledGRU(2, (4,), coupling_bias=-torch.inf)
    lw.Metric(None, coupled).prepare(x)
    torch.testing.assert_close(lw.SiameseGRU.of(coupled).matrix(x), coupled.matrix(x), atol=1e-5, rtol=1e-4)
