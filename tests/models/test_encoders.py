import pytest
import torch
from torch import nn

from likewise import Batch
from likewise.models._sequences import unit
from likewise.models.frame_mlp import FrameMLP
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.jitter import Jitter
from likewise.models.small_cnn import SmallCNN
from likewise.models.tcn import TCN

ENCODERS = {
    "FrameMLP": lambda: FrameMLP(3, hidden=8),
    "FrameMLP plain": lambda: FrameMLP(3, hidden=8, out=5, normalize=False),
    "FrameMLP deep": lambda: FrameMLP(3, hidden=8, out=5, depth=3, batch_norm=True).eval(),
    "FrameMLP linear": lambda: FrameMLP(3, out=5, depth=0, normalize=False),
    "FrameMLP that drops": lambda: FrameMLP(3, hidden=8, dropout=0.5).eval(),
    "Jitter": lambda: Jitter(FrameMLP(3, hidden=8), offset=1, scale=1, noise=1).eval(),
    "GRU": lambda: GRUEncoder(3, 4, layers=2),
    "GRU both ways": lambda: GRUEncoder(3, 4, bidirectional=True, normalize=True),
    "GRU steps": lambda: GRUEncoder(3, 4, bidirectional=True, steps=True, normalize=True),
    "TCN": lambda: TCN(3, 6, layers=3, out=4),
    "TCN causal": lambda: TCN(3, 6, layers=3, kernel=4, causal=True, normalize=True),
    "TCN mean": lambda: TCN(3, 6, layers=2, steps=False, normalize=True),
}
each_encoder = pytest.mark.parametrize("name", ENCODERS)


def made(name):
    torch.manual_seed(0)
    return ENCODERS[name]().double()


def sequences(lengths=(5, 1, 9, 2), fill=0.0):
    generator = torch.Generator().manual_seed(1)
    items = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in lengths]
    batch = Batch.from_list(items)
    return Batch(batch.values.masked_fill(~batch.mask[..., None], fill), batch.lengths)


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


def test_frame_mlp_by_hand():
    encoder, batch = made("FrameMLP"), sequences()
    for found, item in zip(encoder(batch), batch, strict=True):
        for t, frame in enumerate(item):
            w = [encoder.layers[i] for i in (0, 2, 4)]
            hidden = torch.relu(w[1].weight @ torch.relu(w[0].weight @ frame + w[0].bias) + w[1].bias)
            out = w[2].weight @ hidden + w[2].bias
            torch.testing.assert_close(found[t], out / out.norm())


def test_frame_mlp_has_the_layers_of_the_paper():
    encoder = FrameMLP(13, out=13)
    assert [tuple(p.shape) for p in encoder.parameters()] == [
        (1024, 13),
        (1024,),
        (1024, 1024),
        (1024,),
        (13, 1024),
        (13,),
    ]


def test_batch_norm_stands_before_each_layer_and_counts_real_frames_only():
    encoder, batch = FrameMLP(3, hidden=8, depth=3, batch_norm=True).double(), sequences(fill=torch.nan)
    kinds = [type(layer).__name__ for layer in encoder.layers]
    assert kinds == ["BatchNorm1d", "Linear", "ReLU"] * 3 + ["BatchNorm1d", "Linear"]
    encoder(batch)
    frames = torch.cat(batch.to_list())
    torch.testing.assert_close(encoder.layers[0].running_mean, 0.1 * frames.mean(0))
    full = torch.randn(4, 6, 3, dtype=torch.float64)
    encoder.eval()
    torch.testing.assert_close(encoder(full)[1], encoder(full[1:2])[0])


def test_without_hidden_layers_it_is_a_linear_map():
    encoder, batch = made("FrameMLP linear"), sequences()
    weight, bias = encoder.layers[0].weight, encoder.layers[0].bias
    for found, item in zip(encoder(batch), batch, strict=True):
        torch.testing.assert_close(found, item @ weight.T + bias)


def test_frames_of_zeros_stay_zero_and_have_finite_gradients():
    encoder = FrameMLP(2, hidden=4)
    for parameter in encoder.parameters():
        nn.init.zeros_(parameter)
    x = torch.randn(2, 3, 2, requires_grad=True)
    out = encoder(x).values
    assert (out == 0).all()
    out.sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_unit_vectors_of_any_scale(scale):
    torch.testing.assert_close(unit(torch.tensor([3.0, 4.0]) * scale), torch.tensor([0.6, 0.8]))


def test_unit_gradient_and_nan():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(unit, x)
    assert unit(torch.tensor([torch.nan, 1.0])).isnan().any(), "NaN must not turn into zeros"


def test_gru_equals_torch():
    encoder, item = made("GRU both ways"), sequences()[2]
    states, last = encoder.gru(item[None])
    torch.testing.assert_close(encoder(item[None])[0], unit(torch.cat([states[0, -1, :4], states[0, 0, 4:]])))
    torch.testing.assert_close(encoder(item[None])[0], unit(last[-2:].flatten()))


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


def test_small_cnn():
    torch.manual_seed(0)
    encoder = SmallCNN(2, 5, widths=(4, 6))
    images = torch.randn(3, 2, 9, 7)
    vectors = encoder(images)
    assert vectors.shape == (3, 5)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(encoder(images[1:2])[0], vectors[1])
    assert encoder(torch.zeros(1, 2, 1, 1)).isfinite().all()
    assert encoder(images[:0]).shape == (0, 5)
    with pytest.raises(ValueError, match=r"SmallCNN: expected images of shape \(B, 2, H, W\), got \(3, 9, 7, 2\)"):
        encoder(images.permute(0, 2, 3, 1))


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


def test_text_is_no_number():
    with pytest.raises(TypeError, match="FrameMLP: expected channels to be a number, got str"):
        FrameMLP("13")  # type: ignore[arg-type]


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
