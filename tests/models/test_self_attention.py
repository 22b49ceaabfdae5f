import math

import pytest
import torch

from likewise import Batch
from likewise.models.frame_mlp import FrameMLP
from likewise.models.self_attention import SelfAttention, positions


def made(**options):
    torch.manual_seed(0)
    attention = SelfAttention(6, **options).double()
    with torch.no_grad():
        attention.values.weight.normal_()  # starts at zero, where the attention would not show
    return attention


def batch(fill=0.0, more=0):
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(4, 9, 6, generator=generator, dtype=torch.float64)
    values = torch.nn.functional.pad(values, (0, 0, 0, more), value=fill)
    given = Batch(values, [9, 1, 4, 2])
    return Batch(given.values.masked_fill(~given.mask[..., None], fill), given.lengths)


def by_loops(attention, frames):
    """One sequence (T, C), as the paper writes it."""
    steps, channels = frames.shape
    p = torch.zeros(steps, channels, dtype=frames.dtype)
    for t in range(steps):
        for c in range(channels):
            angle = t / 10_000 ** ((c - c % 2) / channels)
            p[t, c] = math.cos(angle) if c % 2 else math.sin(angle)
    xp = frames + 0.1 * p
    q, k, v = (xp @ part.weight.T for part in (attention.queries, attention.keys, attention.values))
    out = []
    for t in range(steps):
        weights = torch.stack([q[t] @ k[u] / math.sqrt(channels) for u in range(steps)]).softmax(0)
        mixed = sum(w * v[u] for u, w in enumerate(weights)) + xp[t]
        out.append((mixed - mixed.mean()) / (mixed.var(unbiased=False) + 1e-5).sqrt())
    return torch.stack(out)


def test_it_is_what_the_paper_writes():
    attention, given = made(), batch(fill=torch.nan)
    encoded = attention(given)
    assert torch.equal(encoded.lengths, given.lengths)
    for found, item in zip(encoded, given, strict=True):
        torch.testing.assert_close(found, by_loops(attention, item), rtol=1e-5, atol=1e-6)


def test_padding_changes_nothing():
    results = []
    for fill, more in ((0.0, 0), (torch.nan, 0), (torch.inf, 5)):
        attention, given = made(normalize=True), batch(fill, more)
        values = given.values.requires_grad_()
        total = sum((frame * frame.sin()).sum() for frame in attention(Batch(values, given.lengths)))
        total.backward()
        assert (values.grad[~given.mask] == 0).all()
        weights = torch.cat([p.grad.flatten() for p in attention.parameters()])
        results.append((total.detach(), weights, values.grad[:, :9]))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_frames_are_unit_vectors_if_asked():
    for frames in made(normalize=True)(batch()):
        torch.testing.assert_close(frames.norm(dim=1), torch.ones(len(frames), dtype=torch.float64))


def test_an_encoder_comes_first():
    encoder = FrameMLP(3, hidden=8, out=6).double()
    attention = made(encoder=encoder)
    given = Batch(torch.randn(2, 5, 3, dtype=torch.float64), [5, 2])
    alone = made()
    alone.load_state_dict({k: v for k, v in attention.state_dict().items() if not k.startswith("encoder")})
    assert attention(given) == alone(encoder(given))


def test_it_starts_as_a_normalisation():
    attention, x = SelfAttention(4, position=0.0), torch.randn(2, 5, 4)
    torch.testing.assert_close(attention(x).values, torch.nn.functional.layer_norm(x, (4,)))


def test_odd_channels_empty_batches_and_wrong_ones():
    assert positions(torch.zeros(1, 3, 5)).shape == (3, 5)
    assert len(SelfAttention(5)(Batch(torch.empty(0, 4, 5)))) == 0
    with pytest.raises(ValueError, match="SelfAttention: expected x with 6 channels, got 2"):
        SelfAttention(6)(torch.zeros(1, 3, 2))
