import pytest
import torch
from pytorch_metric_learning import losses as pml

import likewise as lw
from likewise.losses import ProxyNCA
from tests.losses.problems import unit, vectors


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_proxy_nca_against_loops(smoothing):
    x, labels = vectors()
    loss = ProxyNCA(4, 5, smoothing=smoothing, scale=2.0, proxy_scale=1.5).double()
    total = 0.0
    for vector, label in zip(x, labels.tolist(), strict=True):
        D = [(2 * unit(vector) - 1.5 * unit(proxy)).square().sum() for proxy in loss.proxies]
        bottom = sum(torch.exp(-d) for d in D)
        targets = [1 - smoothing if k == label else smoothing / 3 for k in range(4)]
        assert sum(targets) == pytest.approx(1)
        total -= sum(t * torch.log(torch.exp(-d) / bottom) for t, d in zip(targets, D, strict=True))
        row = loss.distances(vector[None])[0]
        torch.testing.assert_close(row, torch.stack(D))
    torch.testing.assert_close(loss(x, labels), total / len(x))


def test_proxy_nca_is_that_of_pytorch_metric_learning():
    x, labels = vectors()
    ours = ProxyNCA(4, 5, smoothing=0, scale=3, proxy_scale=2).double()
    theirs = pml.ProxyNCALoss(4, 5, softmax_scale=6).double()
    theirs.proxies.data = ours.proxies.data.clone()
    torch.testing.assert_close(ours(x, labels), theirs(x, labels))


def test_proxies_are_columns():
    x, labels = vectors()
    loss = ProxyNCA(4, 5, smoothing=0).double()
    columns = lw.losses.SoftNearestNeighbor(temperature=1.0)(loss.distances(x), labels, torch.arange(4))
    torch.testing.assert_close(columns, loss(x, labels))


def test_repr():
    assert repr(ProxyNCA(4, 5)) == "ProxyNCA(4, 5, smoothing=0.1, scale=3.0, proxy_scale=3.0)"
