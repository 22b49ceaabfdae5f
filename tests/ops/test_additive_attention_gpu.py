"""Additive attention's Triton kernels against loops: in Triton's interpreter, or on a GPU with TRITON_INTERPRET=0.

The reference in plain torch is tested in tests/models/test_attended_features.py.
"""

import os

import pytest
import torch

from likewise.ops.additive_attention import Layer, additive_attention
from likewise.testing import TOLERANCE, assert_close

pytest.importorskip("triton")
from likewise.ops.additive_attention import gpu

DEVICE = "cuda" if torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0" else "cpu"
VALUE, GRADIENT = TOLERANCE[torch.float32].value, TOLERANCE[torch.float32].gradient
PROBLEMS = {  # items, channels, positions, width, rows, masked
    "one position": (2, 3, 1, 4, 5, False),
    "u as it is": (3, 5, 9, 7, None, True),
    "odd": (3, 17, 33, 5, 3, True),
    "tiles": (2, 70, 130, 20, 18, True),
    "full": (2, 4, 70, 4, 2, False),
    "wide": (1, 200, 20, 3, 2, True),
    "more": (3, 4, 70, 5, None, False),
    "most": (3, 20, 5, 5, 18, True),
}


def problem(*sizes, dtype=torch.float64):
    """u and layers; all share the items and the width."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    items, _, _, width, _, _ = sizes[0]
    u, layers = draw(items, width), []
    for _, channels, positions, _, rows, masked in sizes:
        mask = None
        if masked:
            lengths = torch.randint(1, positions + 1, (items,), generator=generator)
            mask = torch.arange(positions) < lengths[:, None]
        across = None if rows is None else draw(rows, width)
        rows = rows or width
        inward, outward = draw(rows, channels) / channels**0.5, draw(1, rows) / rows**0.5  # not all weight on one
        layers.append(Layer(draw(items, channels, positions), mask, inward, across, outward))
    return u, layers


def loops(u, layers):
    features, all_weights = [], []
    for values, mask, inward, across, outward in layers:
        summaries, weights = [], []
        for b, item in enumerate(values):
            length = item.shape[1] if mask is None else int(mask[b].sum())
            wanted = u[b] if across is None else across @ u[b]
            scores = torch.stack([(outward[0] * (inward @ item[:, j] + wanted).tanh()).sum() for j in range(length)])
            a = scores.softmax(0)
            summaries.append(item[:, :length] @ a)
            weights.append(torch.cat([a, a.new_zeros(item.shape[1] - length)]))
        features.append(torch.stack(summaries))
        all_weights.append(torch.stack(weights)[:, None])
    return torch.cat(features, 1), all_weights


def moved(u, layers):
    """The same in float32 on the device, without gradients."""

    def there(x):
        x = None if x is None else x.detach().to(DEVICE)
        return x.float() if x is not None and x.is_floating_point() else x

    return there(u), [Layer(*map(there, layer)) for layer in layers]


def tensors(u, layers):
    """All tensors with derivatives."""
    return [x for x in (u, *(x for layer in layers for x in layer)) if x is not None and x.is_floating_point()]


@pytest.mark.parametrize("names", [*((name,) for name in PROBLEMS), ("odd", "more", "most")], ids=" ".join)
def test_values_and_gradients(names):
    given = problem(*(PROBLEMS[name] for name in names))
    inputs = [x.requires_grad_() for x in tensors(*given)]
    features, weights = loops(*given)
    by_features = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    slopes = torch.autograd.grad((features * by_features).sum(), inputs)
    there = moved(*given)
    found = gpu.attend(*there)
    assert_close(found[0], features, VALUE, "features")
    for a, b in zip(found[1:], weights, strict=True):
        assert_close(a, b, VALUE, "weights")
    grads = gpu.gradients(by_features.float().to(DEVICE), *there, *found[1:])
    assert len(grads) == 1 + 5 * len(names)
    for a, b in zip([x for x in grads if x is not None], slopes, strict=True):
        assert_close(a, b, GRADIENT, "gradient")


@pytest.mark.parametrize("spoil", [torch.nan, torch.inf, -1e30])
def test_padding_may_hold_anything(spoil):
    u, (layer,) = moved(*problem(PROBLEMS["odd"]))
    spoilt = layer._replace(values=torch.where(layer.mask[:, None], layer.values, spoil))
    found = gpu.attend(u, [layer])
    by_features = torch.ones_like(found[0])
    expected = gpu.gradients(by_features, u, [layer], *found[1:])
    for a, b in zip(gpu.attend(u, [spoilt]), found, strict=True):
        assert torch.equal(a, b)
    for a, b in zip(gpu.gradients(by_features, u, [spoilt], *found[1:]), expected, strict=True):
        assert a is None or torch.equal(a, b)
    assert (expected[1].mT[~layer.mask] == 0).all()


def test_many_items_of_few_programs(monkeypatch):
    there = moved(*problem((5, 3, 4, 2, 3, True), (5, 2, 7, 2, 4, True)))
    found = gpu.attend(*there)
    by_features = torch.randn(5, 5, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    results = []
    for count in (1, 8):
        monkeypatch.setattr(gpu, "processors", lambda x, count=count: count)
        results.append(gpu.gradients(by_features, *there, *found[1:]))
    for a, b in zip(*results, strict=True):
        assert a is None or torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_any_strides():
    u, (layer,) = moved(*problem(PROBLEMS["odd"]))
    expected = gpu.attend(u, [layer])
    by_features = torch.ones_like(expected[0])
    slopes = gpu.gradients(by_features, u, [layer], *expected[1:])
    turned = layer.values.mT.contiguous().mT
    gapped = torch.stack([layer.values, layer.values], -1)[..., 0]
    for other in (turned, gapped):
        given = layer._replace(values=other, inward=layer.inward.T.contiguous().T)
        found = gpu.attend(u, [given])
        assert torch.equal(found[0], expected[0])
        for a, b in zip(gpu.gradients(by_features, u, [given], *found[1:]), slopes, strict=True):
            assert a is None or torch.equal(a, b)


def test_scores_of_any_size():
    u, (layer,) = moved(*problem(PROBLEMS["odd"]))
    for scale in (1e4, 1e30):
        large = layer._replace(values=scale * layer.values, outward=scale * layer.outward)
        features, weights = gpu.attend(u, [large])
        assert features.isfinite().all()
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("names", [*((name,) for name in PROBLEMS), ("odd", "more", "most")], ids=" ".join)
def test_on_a_device_the_kernels_run(names):
    here = problem(*(PROBLEMS[name] for name in names))
    there = moved(*here)
    results = []
    for given in (here, there):
        inputs = [x.requires_grad_() for x in tensors(*given)]
        features, weights = additive_attention(*given)
        assert features.grad_fn.fused == (given is there)
        value, more = features.sin().sum(), sum((each**2).sum() for each in weights)
        first = torch.autograd.grad(value, inputs, create_graph=True)
        results.append(
            [
                torch.autograd.grad(value, inputs, retain_graph=True),
                torch.autograd.grad(value + more, inputs, retain_graph=True),
                torch.autograd.grad(more, inputs, retain_graph=True),
                torch.autograd.grad(sum(x.square().sum() for x in first), inputs),
            ]
        )
    for expected, found, what in zip(*results, ("alone", "with weights", "weights", "second"), strict=True):
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b, 10 * GRADIENT if what == "second" else GRADIENT, what)
