import torch

from likewise.models._sequences import unit
from tests.models.problems import made, sequences


def test_gru_equals_torch():
    encoder, item = made("GRU both ways"), sequences()[2]
    states, last = encoder.gru(item[None])
    torch.testing.assert_close(encoder(item[None])[0], unit(torch.cat([states[0, -1, :4], states[0, 0, 4:]])))
    torch.testing.assert_close(encoder(item[None])[0], unit(last[-2:].flatten()))
