"""Every op under torch.utils.checkpoint: saved tensors may be read only once in the backward pass."""

import math
import os

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import likewise as lw
from likewise import GDTW
from likewise.ops import additive_attention, dispatch, joint_gaussians
from likewise.ops.coupled_gru import Cell, coupled_gru, coupled_gru_states
from likewise.ops.dtw import dtw, dtw_cost, dtw_matrix
from likewise.ops.ground import cosine, euclidean, sqeuclidean
from likewise.ops.pair_convolution import Cells, convolve
from likewise.ops.rules import Rules
from likewise.ops.soft_dtw import soft_dtw, soft_dtw_cost, soft_dtw_matrix, soft_dtw_plan
from likewise.ops.tap import frame_distances, tap, tap_matrix
from likewise.ops.transport import Settings, transport_cost, transport_plan

ON_GPU = torch.cuda.is_available() and os.environ["TRITON_INTERPRET"] == "0"
DEVICE = "cuda" if ON_GPU else "cpu"
LENGTHS = torch.tensor([5, 3, 4]), torch.tensor([2, 4, 4])


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def slopes(work, inputs, through):
    """The result of ``work``, and the gradients of its inputs."""
    given = [t.detach().to(DEVICE).requires_grad_() for t in inputs]
    found = through(work, *given)
    found = [t for t in (found if isinstance(found, tuple) else (found,)) if t.requires_grad]
    total = sum((t * draw(*t.shape).to(t)).sum() for t in found)
    return *found, *torch.autograd.grad(total, given)


def assert_same(work, *inputs):
    expected = slopes(work, inputs, lambda work, *given: work(*given))
    found = slopes(work, inputs, lambda work, *given: checkpoint(work, *given, use_reentrant=False))
    assert len(found) == len(expected) > len(inputs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0 if a.device.type == "cpu" else 1e-5)  # a GPU adds in any order


def minus(x, y, D, time, inside):
    """The scores of a TAP whose network gives zero."""
    return -D


SEQUENCES = {
    "dtw": lambda x, y: dtw(x, y, *LENGTHS),
    "dtw_matrix": lambda x, y: dtw_matrix(x, y, *LENGTHS),
    "soft_dtw": lambda x, y: soft_dtw(x, y, *LENGTHS, gamma=0.5),
    "soft_dtw, whole": lambda x, y: soft_dtw(x, y),
    "soft_dtw_matrix": lambda x, y: soft_dtw_matrix(x, y, *LENGTHS),
    "transport": lambda x, y: transport_plan(x, y, *LENGTHS, settings=Settings(reg=0.5)).plan,
    "gdtw": lambda x, y: GDTW(reg=0.1)(x, y),
    "frame_distances": frame_distances,
    "tap": lambda x, y: tap(x, y, *LENGTHS, minus),
    "tap_matrix": lambda x, y: tap_matrix(x, y, *LENGTHS, minus),
    "sqeuclidean": sqeuclidean,
    "euclidean": euclidean,
    "cosine": cosine,
}
CONVOLUTIONS = draw(10, 2), draw(3, 2, 3, 3), draw(1, 3, 3, 3), draw(3), draw(1)
ATTENTION = draw(2, 5), draw(2, 3, 4), draw(5, 3), draw(1, 5), draw(2, 2, 6), draw(5, 2), draw(1, 5)
COSTS = {
    "dtw_cost": lambda cost: dtw_cost(cost, *LENGTHS),
    "soft_dtw_cost": lambda cost: soft_dtw_cost(cost, *LENGTHS),
    "soft_dtw_plan": lambda cost: soft_dtw_plan(cost, *LENGTHS),
    "transport_cost": lambda cost: transport_cost(cost, *LENGTHS, settings=Settings(reg=0.5)).value,
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_of_sequences(name):
    assert_same(SEQUENCES[name], draw(3, 5, 2), draw(3, 4, 2))


@pytest.mark.parametrize("name", COSTS)
def test_of_costs(name):
    assert_same(COSTS[name], draw(3, 5, 4).abs())


@pytest.mark.parametrize("op", [coupled_gru, coupled_gru_states])
@pytest.mark.parametrize("sets", [1, 2])
def test_coupled_gru(op, sets):
    lengths, rows = torch.tensor([5, 3, 4]), torch.tensor([0, 1, 2, 2])

    def work(weight_hh, weight_hc, gx, gy=None):
        layers = [
            Cell(draw(6, channels).to(gx), weight_hh, draw(6).to(gx), draw(6).to(gx), weight_hc, draw(2).to(gx))
            for channels in (3, 2)
        ]
        return op(gx, gy, layers, lengths, None if gy is None else lengths, rows, rows.flip(0))

    assert_same(work, draw(6, 2), draw(2, 2), *(draw(3, 5, 6) for _ in range(sets)))


def test_convolve():
    packed = Cells.of(*(torch.tensor(sizes, device=DEVICE) for sizes in ([3, 1], [2, 4])))
    assert_same(lambda h, w, v, a, b: convolve(h, [w, v], [a, b], packed), *CONVOLUTIONS)


def test_joint_gaussians():
    mixtures = [joint_gaussians.Mixture((0.5, 1.0)), joint_gaussians.Mixture((1.0,))]
    weights = torch.ones(5, 5, device=DEVICE)
    assert_same(lambda x, y: joint_gaussians.joint_gaussians([x, y], mixtures, weights), draw(5, 3), draw(5, 2))


def attend(u, values, inward, outward, other, into, out):
    mask = torch.tensor([[True] * 4, [True, True, False, False]], device=DEVICE)
    layers = [
        additive_attention.Layer(values, mask, inward, None, outward),
        additive_attention.Layer(other, None, into, None, out),
    ]
    features, _ = additive_attention.additive_attention(u, layers)
    return features


def test_additive_attention():
    assert_same(attend, *ATTENTION)


@pytest.fixture
def fused(monkeypatch):
    """The Triton kernels of both, in the interpreter."""
    pytest.importorskip("triton")
    ran = []

    def run_triton(kernel, device, *arguments):
        ran.append(kernel)
        return dispatch.triton_function(kernel)(*arguments)

    for module in (additive_attention, joint_gaussians):
        monkeypatch.setattr(module, "are_plain", lambda tensors: True)
        monkeypatch.setattr(module, "run_triton", run_triton)
    monkeypatch.setattr(additive_attention, "_is_fused", lambda u, layers: True)
    return ran


@pytest.mark.skipif(ON_GPU, reason="the tests above run the same on a GPU")
def test_joint_gaussians_in_triton(fused):
    test_joint_gaussians()
    assert fused.count("joint_gaussians.gradients") == 2


@pytest.mark.skipif(ON_GPU, reason="the tests above run the same on a GPU")
def test_additive_attention_in_triton(fused):
    test_additive_attention()
    assert fused.count("additive_attention.gradients") == 2


@pytest.mark.skipif(ON_GPU, reason="the tests above run the same on a GPU")
def test_convolve_in_triton(monkeypatch):
    gpu = pytest.importorskip("likewise.ops.pair_convolution.gpu")
    monkeypatch.setattr(gpu, "PARTS", 1)  # the interpreter runs one program after another
    packed = Cells.of(torch.tensor([3, 1]), torch.tensor([2, 4]))
    assert_same(lambda h, w, v, a, b: gpu.convolve(h, [w, v], [a, b], packed), *CONVOLUTIONS)


@pytest.mark.skipif(ON_GPU, reason="the tests above run the same on a GPU")
def test_soft_dtw_in_triton(monkeypatch):
    gpu = pytest.importorskip("likewise.ops.soft_dtw.gpu")
    settings = (0.5, False, *Rules().plain())
    assert_same(lambda x, y: gpu.apply(x, y, None, None, settings, None), draw(2, 4, 2), draw(2, 3, 2))


@pytest.mark.skipif(not ON_GPU, reason="the kernels that are compiled and checkpointed need a GPU")
@pytest.mark.parametrize("distance", [lw.TAP, lw.SoftDTW, lw.OTAM])
def test_training_of_long_sequences_on_a_gpu(distance):
    """Batches of 64 with 200 steps: TAP then computes its tiles again in the backward pass."""
    torch.manual_seed(0)
    x, y = torch.randn(128, 200, 4, device="cuda").cumsum(1), torch.arange(128) % 4
    metric = lw.Metric(lw.FrameMLP(4, hidden=8, out=4), distance()).to("cuda")
    loss = lw.losses.BinomialDeviance()
    history = lw.fit(metric, (x, y), loss, epochs=2, batch_size=64, val=None, verbose=False, accelerator="cuda")
    assert all(math.isfinite(value) for value in history.losses)


def test_training_with_tiles_computed_again(monkeypatch):
    """The same on the CPU, with a limit so low that checkpointing sets in: the gradients are those without it."""
    torch.manual_seed(0)
    metric = lw.Metric(lw.FrameMLP(4, hidden=8, out=4, standardize=False), lw.TAP(4))
    x = lw.Batch(torch.randn(6, 20, 4), [20, 3, 7, 20, 1, 12])

    def gradients():
        metric.zero_grad()
        metric.matrix(x).square().sum().backward()
        return [parameter.grad.clone() for parameter in metric.parameters()]

    expected = gradients()
    monkeypatch.setattr("likewise.ops.tap.KEPT_CELLS", {"cpu": 1, "cuda": 1})
    for a, b in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
