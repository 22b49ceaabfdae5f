import pytest
import torch

from likewise.models import ClassHead


def test_layers_and_scores():
    head = ClassHead(6, 4).eval()
    assert [type(layer).__name__ for layer in head.layers] == ["Linear", "ReLU", "Dropout", "Linear"]
    x = torch.randn(3, 6)
    hidden = (x @ head.layers[0].weight.T + head.layers[0].bias).relu()
    torch.testing.assert_close(head(x), hidden @ head.layers[3].weight.T + head.layers[3].bias)
    assert len(ClassHead(6, 4, hidden=0).layers) == 2
    assert ClassHead(6, 4, hidden=9).layers[0].out_features == 9


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="ClassHead: classes must be a whole number of 1 or more, got 0"):
        ClassHead(6, 0)
    with pytest.raises(ValueError, match="ClassHead: dropout"):
        ClassHead(6, 2, dropout=1.5)
