import math

import pytest
import torch
from pytorch_metric_learning import losses as pml

from likewise.losses import Angular
from tests.losses.problems import unit, vectors


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 2, 2]])
def test_angular_against_loops(labels):
    x, _ = vectors(6)
    x = torch.stack([unit(v) for v in x])
    t = math.tan(math.radians(40)) ** 2
    losses = []
    for a in range(6):
        for p in range(6):
            if a == p or labels[a] != labels[p]:
                continue
            s = [
                math.exp(4 * t * ((x[a] + x[p]) @ x[n]).item() - 2 * (1 + t) * (x[a] @ x[p]).item())
                for n in range(6)
                if labels[n] != labels[a]
            ]
            losses.append(math.log(1 + sum(s)))
    expected = sum(losses) / len(losses)
    assert Angular(40)(x, labels).item() == pytest.approx(expected)
    assert Angular(40)(3 * x, labels).item() == pytest.approx(expected)
    assert Angular(40, scale_free=False)(3 * x, labels).item() != pytest.approx(expected)
    theirs = pml.AngularLoss(alpha=40)(x.float(), torch.tensor(labels))
    assert theirs.item() == pytest.approx(expected, rel=1e-4)


def test_angular_of_singletons_and_of_one_class_is_zero():
    x, labels = vectors(4)
    assert Angular()(x, labels) == 0
    assert Angular()(x, torch.zeros(4, dtype=torch.int64)) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="less than 90 degrees"):
        Angular(90)


def test_repr():
    assert repr(Angular()) == "Angular(angle=45.0, scale_free=True)"
