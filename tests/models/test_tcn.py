import torch

from likewise.models.tcn import TCN
from tests.models.problems import made, sequences


def test_causal_convolutions_do_not_see_the_future():
    encoder, x = made("TCN causal"), sequences()[2:3].values
    changed = x.clone()
    changed[:, 5] += 1
    before, after = encoder(x).values, encoder(changed).values
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])


def test_centred_convolutions_see_both_sides_as_far_as_documented():
    torch.manual_seed(0)
    encoder = TCN(1, 4, layers=2).double()  # sees 1 + 2 * (4 - 1) = 7 frames, 3 on each side
    x = torch.randn(1, 21, 1, dtype=torch.float64, requires_grad=True)
    encoder(x).values[0, 10].square().sum().backward()
    assert x.grad[0, :, 0].nonzero()[:, 0].tolist() == list(range(7, 14))
