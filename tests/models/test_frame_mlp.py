import torch
from torch import nn

from likewise.models.frame_mlp import FrameMLP
from tests.models.problems import made, sequences


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
