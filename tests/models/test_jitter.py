import pytest
import torch
from torch import nn

from likewise.models.jitter import Jitter


def test_jitter_draws_once_for_a_sequence_and_once_for_a_frame():
    x = torch.ones(4000, 5, 2, dtype=torch.float64)
    shifted = Jitter(nn.Identity(), offset=0.5)(x)
    assert (shifted.values == shifted.values[:, :1]).all()  # the same for all frames
    assert abs(float((shifted.values - 1).std()) - 0.5) < 0.02
    scaled = Jitter(nn.Identity(), scale=0.2)(2 * x)
    assert abs(float((scaled.values / 2 - 1).std()) - 0.2) < 0.01
    noisy = Jitter(nn.Identity(), noise=0.3)(x)
    assert abs(float((noisy.values - 1).std()) - 0.3) < 0.01
    assert not (noisy.values == noisy.values[:, :1]).all()
    assert (x == 1).all()
    with pytest.raises(TypeError, match="Jitter: expected encoder to be a module, got int"):
        Jitter(3)  # type: ignore[arg-type]
