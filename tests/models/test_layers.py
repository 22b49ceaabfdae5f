import pytest
import torch
from torch import nn

import likewise as lw
from likewise.data.batch import Batch
from likewise.models.attended_features import AttendedFeatures
from likewise.models.layers import as_map, captured
from tests.models.problems import Residual


def test_an_unknown_layer_is_refused_with_those_near_it():
    with pytest.raises(ValueError, match=r"SmallCNN has no layer 'norm.1'; similar names are norms.1, .*norms"):
        AttendedFeatures(lw.models.SmallCNN(1), ["norm.1"])
    with pytest.raises(ValueError, match=r"has no layer 'zzz'; similar names are stem"):
        AttendedFeatures(Residual(), ["zzz"])
    with pytest.raises(TypeError, match="expected the name of a layer, got 3"):
        AttendedFeatures(Residual(), [3])


def test_a_map_that_does_not_go_with_the_lengths():
    with pytest.raises(ValueError, match="x returned 3 steps, which does not match lengths up to 5"):
        as_map("op", "x", torch.zeros(2, 3, 4), torch.tensor([5, 1]))
    with pytest.raises(ValueError, match=r"x returned \(2,\); expected \(B, C, H, W\), \(B, T, C\) or \(B, C\)"):
        as_map("op", "x", torch.zeros(2))
    with pytest.raises(ValueError, match="x returned str"):
        as_map("op", "x", "nothing")


def test_pooling():
    found = as_map("op", "x", Batch(torch.tensor([[[1.0], [3.0]], [[-5.0], [torch.nan]]]), [2, 1]))
    assert found.mean().tolist() == [[2], [-5]]
    assert found.max().tolist() == [[3], [-5]]
    images = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(as_map("op", "x", images).max(), images.amax((2, 3)))


def test_hooks_are_gone_after_an_error():
    network = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RuntimeError), captured("op", network, ["0"]):
        raise RuntimeError
    assert not network[0]._forward_hooks
