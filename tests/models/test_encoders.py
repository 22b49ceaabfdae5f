import pytest
import torch
from torch import nn

from likewise import Batch
from likewise.models.frame_mlp import FrameMLP
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.jitter import Jitter
from likewise.models.small_cnn import SmallCNN
from likewise.models.tcn import TCN
from tests.models.problems import ENCODERS, made, sequences

each_encoder = pytest.mark.parametrize("name", ENCODERS)


def rows(encoded):
    return encoded.to_list() if isinstance(encoded, Batch) else list(encoded)


@each_encoder
def test_a_batch_gives_what_its_sequences_give_alone(name):
    encoder, batch = made(name), sequences(fill=torch.nan)
    for found, item in zip(rows(encoder(batch)), batch, strict=True):
        torch.testing.assert_close(found, rows(encoder(item[None]))[0], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found, rows(encoder([item]))[0], rtol=1e-10, atol=1e-12)


@each_encoder
def test_padding_never_leaks_into_values_or_gradients(name):
    encoder = made(name)
    gradients = []
    for fill, more in ((0.0, 0), (torch.nan, 0), (torch.inf, 4)):
        batch = sequences(fill=fill)
        values = nn.functional.pad(batch.values, (0, 0, 0, more), value=fill).requires_grad_()
        encoded = encoder(Batch(values, batch.lengths))
        total = sum((row * row.sin()).sum() for row in rows(encoded))
        encoder.zero_grad()
        total.backward()
        weights = torch.cat([p.grad.flatten() for p in encoder.parameters()])
        assert weights.isfinite().all()
        assert values.grad.isfinite().all()
        beyond = torch.arange(values.shape[1]) >= batch.lengths[:, None]
        assert (values.grad[beyond] == 0).all()
        gradients.append((total.detach(), weights, values.grad[:, :9]))
    for other in gradients[1:]:
        for a, b in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@each_encoder
def test_an_empty_batch(name):
    encoded = made(name)(Batch(torch.empty(0, 4, 3, dtype=torch.float64)))
    assert len(encoded) == len(made(name)([])) == 0
    full = made(name)(sequences())
    assert (encoded.channels if isinstance(encoded, Batch) else encoded.shape[1]) == (
        full.channels if isinstance(full, Batch) else full.shape[1]
    )


@each_encoder
def test_other_channels_are_refused(name):
    encoder = made(name)
    with pytest.raises(ValueError, match="expected x with 3 channels, got 2"):
        encoder(torch.zeros(1, 4, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"add a channel with x\[\.\.\., None\]"):
        encoder(torch.zeros(4, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FrameMLP(0), "FrameMLP: channels must be a whole number of 1 or more, got 0"),
        (lambda: FrameMLP(2.5), "FrameMLP: channels must be a whole number of 1 or more, got 2.5"),
        (lambda: FrameMLP(2, hidden=-1), "FrameMLP: hidden must be"),
        (lambda: FrameMLP(2, depth=-1), "FrameMLP: depth must be a whole number from 0 to 64, got -1"),
        (lambda: FrameMLP(2, dropout=1), "FrameMLP: dropout must be at least 0 and less than 1, got 1"),
        (lambda: Jitter(FrameMLP(2), noise=-1), "Jitter: noise must be 0 or more, got -1"),
        (lambda: GRUEncoder(2, layers=100), "GRUEncoder: layers must be a whole number from 1 to 64, got 100"),
        (lambda: GRUEncoder(2, dropout=0.5), "GRUEncoder: dropout acts between layers"),
        (lambda: GRUEncoder(2, layers=2, dropout=1), "GRUEncoder: dropout must be at least 0 and less than 1, got 1"),
        (lambda: TCN(2, kernel=2), "TCN: kernel must be odd unless causal, got 2"),
        (lambda: TCN(2, layers=25), "TCN: layers must be a whole number from 1 to 24, got 25"),
        (lambda: SmallCNN(widths=[]), "SmallCNN: widths must be a list of 1 to 16"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_text_is_not_a_number():
    with pytest.raises(TypeError, match="FrameMLP: expected channels to be a number, got str"):
        FrameMLP("13")  # type: ignore[arg-type]
