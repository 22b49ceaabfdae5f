import pytest
from torch import nn

from likewise._modes import evaluating


def test_every_part_gets_its_own_mode_back():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout().eval(), nn.Sequential(nn.BatchNorm1d(2)))
    other = nn.Linear(1, 1).eval()
    before = [part.training for part in module.modules()]
    with evaluating(module, other, "no module"):
        assert not any(part.training for part in module.modules())
    assert [part.training for part in module.modules()] == before
    assert not other.training


def test_an_error_ends_it_too():
    module = nn.Linear(1, 1)

    def fail():
        with evaluating(module):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert module.training
