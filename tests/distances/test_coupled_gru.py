"""The coupled GRU and its siamese twin, against loops, against torch.nn.GRU, and by hand."""

import copy
import math

import pytest
import torch
from torch import nn

import likewise as lw
from likewise.distances.coupled_gru import CoupledGRU
from likewise.distances.siamese_gru import SiameseGRU
from likewise.regularizers import coupling_norm
from likewise.testing import assert_close, check_distance


def network(channels=3, hidden=(4,), bias=0.0, seed=0):
    """A network whose states differ clearly, in float64."""
    torch.manual_seed(seed)
    found = CoupledGRU(channels, hidden, bias).double()
    with torch.no_grad():
        for cell in found.cells:
            cell.weight_hc.mul_(8)
    return found


def sequences(lengths, channels=3, seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return lw.Batch.from_list([torch.randn(n, channels, dtype=dtype) for n in lengths])


def by_loops(net, x, y):
    """The states of both sides of one pair, one number at a time, (T, H) each."""
    sigmoid = lambda v: 1 / (1 + math.exp(-v))  # noqa: E731
    for cell in net.cells:
        w = {name: value.tolist() for name, value in cell.named_parameters()}
        H = len(w["bias_hc"])
        h, kept = [[0.0] * H, [0.0] * H], ([], [])
        sides = (x, y)

        def dot(row, vector):
            return sum(a * b for a, b in zip(row, vector, strict=True))

        for t in range(max(len(x), len(y))):
            new, keep = [None, None], [None, None]
            for s in (0, 1):
                if t >= len(sides[s]):
                    new[s] = h[s]
                    continue
                gate = [dot(w["weight_ih"][k], sides[s][t]) + w["bias_ih"][k] for k in range(3 * H)]
                back = [dot(w["weight_hh"][k], h[s]) + w["bias_hh"][k] for k in range(3 * H)]
                r = [sigmoid(gate[k] + back[k]) for k in range(H)]
                keep[s] = [sigmoid(gate[H + k] + back[H + k]) for k in range(H)]
                new[s] = [math.tanh(gate[2 * H + k] + r[k] * back[2 * H + k]) for k in range(H)]
            both = [a + b for a, b in zip(*h, strict=True)]
            c = [sigmoid(dot(w["weight_hc"][k], both) + w["bias_hc"][k]) for k in range(H)]
            following = []
            for s in (0, 1):
                if t >= len(sides[s]):
                    following.append(h[s])
                    continue
                mixed = [(1 - c[k]) * new[s][k] + c[k] * new[1 - s][k] for k in range(H)]
                following.append([(1 - keep[s][k]) * mixed[k] + keep[s][k] * h[s][k] for k in range(H)])
            h = following
            for s in (0, 1):
                if t < len(sides[s]):
                    kept[s].append(h[s])
        x, y = kept
    return torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)


@pytest.mark.parametrize("distance", [network(), network(hidden=(5, 3), bias=-1.0), network(hidden=(1,))])
def test_contract(distance):
    check_distance(distance)


@pytest.mark.parametrize("hidden", [(4,), (5, 3)])
def test_contract_of_the_twin(hidden):
    torch.manual_seed(0)
    check_distance(SiameseGRU(3, hidden).double(), aligns=False)


@pytest.mark.parametrize("hidden", [(4,), (3, 5), (2, 2, 2)])
def test_values_and_states_equal_loops(hidden):
    net = network(hidden=hidden)
    x, y = sequences([5, 1, 7, 3]), sequences([5, 4, 2, 1], seed=1)
    alignment = net.align(x, y)
    for b in range(4):
        a, c = by_loops(net, x[b].tolist(), y[b].tolist())
        assert_close(alignment.x_states[b, : len(a)], a, 1e-12, "states of x")
        assert_close(alignment.y_states[b, : len(c)], c, 1e-12, "states of y")
        assert_close(net(x, y)[b], (a[-1] - c[-1]).norm(), 1e-11, "distance")


def test_by_hand():
    # One state, W_h* = W_hc = 0 and biases 0: r = z = c = 1/2, so m = m' = (tanh x + tanh y) / 2, h_t = (m + h_{t-1}) / 2.
    net = CoupledGRU(1, (1,)).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.cells[0].weight_ih[2] = 1.0
    m = [(math.tanh(a) + math.tanh(b)) / 2 for a, b in ((0.3, -1.0), (0.7, 2.0))]
    state = (m[1] + m[0] / 2) / 2
    alignment = net.align([torch.tensor([0.3, 0.7]).double()], [torch.tensor([-1.0, 2.0]).double()])
    assert alignment.x_states[0, -1].item() == pytest.approx(state, abs=1e-7)
    assert alignment.y_states[0, -1].item() == pytest.approx(state, abs=1e-7)
    assert alignment.value.item() == 0  # the update gate does not see the input, so both sides are the same
    assert (alignment.coupling == 0.5).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("layers", [1, 2])
def test_without_coupling_it_is_torch_gru(dtype, tolerance, layers):
    torch.manual_seed(0)
    gru = nn.GRU(3, 7, layers, batch_first=True, dtype=dtype)
    net = CoupledGRU(3, (7,) * layers, coupling_bias=-math.inf).to(dtype).load_gru(gru)
    x, y = (torch.randn(5, 11, 3, dtype=dtype) for _ in range(2))
    (hx, _), (hy, _) = gru(x), gru(y)
    alignment = net.align(x, y)
    assert_close(alignment.x_states, hx, tolerance, "states of x", scale=1.0)
    assert_close(alignment.y_states, hy, tolerance, "states of y", scale=1.0)
    expected = (hx[:, -1] - hy[:, -1]).norm(dim=1)
    assert_close(net(x, y), expected, tolerance, "distances", scale=1.0)
    assert_close(SiameseGRU(3, (7,) * layers).to(dtype).load_gru(gru)(x, y), expected, tolerance, "twin", scale=1.0)
    assert_close(SiameseGRU.of(net)(x, y), expected, tolerance, "twin of it", scale=1.0)
    expected.sum().backward()
    for distances in (net(x, y), net.matrix(x, y).diagonal()):
        net.zero_grad()
        distances.sum().backward()
        for layer, cell in enumerate(net.cells):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                wanted = getattr(gru, f"{name}_l{layer}").grad
                found = getattr(cell, name).grad
                assert_close(found, wanted, 10 * tolerance, f"gradient of {name}", scale=1.0)
            assert (cell.weight_hc.grad == 0).all()


def test_symmetric_and_zero_on_the_diagonal():
    net, x, y = network(hidden=(4, 4)), sequences([5, 1, 7, 3]), sequences([5, 4, 2, 1], seed=1)
    assert torch.equal(net(x, y), net(y, x))
    assert torch.equal(net(x, x), torch.zeros(4, dtype=torch.float64))
    own = net.matrix(x)
    assert torch.equal(own, own.T)
    assert torch.equal(own.diagonal(), torch.zeros(4, dtype=torch.float64))
    forwards, backwards = net.align(x, y), net.align(y, x)
    assert torch.equal(forwards.x_states, backwards.y_states)
    assert torch.equal(forwards.y_states, backwards.x_states)


def test_a_coupling_of_one_half_makes_the_mixed_states_equal():
    # The distance is not zero, since the update gates differ; it is if they do not depend on the input.
    net = network(bias=0.0)
    with torch.no_grad():
        net.cells[0].weight_hc.zero_()
    x, y = sequences([6, 6]), sequences([6, 6], seed=1)
    assert (net(x, y) > 0).all()
    with torch.no_grad():
        net.cells[0].weight_ih[4:8] = 0
    assert_close(net(x, y), torch.zeros(2), 1e-15, "distance", scale=1.0)


def test_the_coupling_sees_states_only():
    net, x, y = network(), sequences([6]), sequences([6], seed=1)
    changed = lw.Batch(x.values.clone())
    changed.values[:, 3] += 1
    before, after = net.align(x, y).coupling, net.align(changed, y).coupling
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4], after[:, 4])


@pytest.mark.parametrize("hidden", [(4,), (3, 5)])
def test_matrix_equals_pairs_with_gradients(hidden):
    net, x, y = network(hidden=hidden), sequences([5, 1, 7, 3]), sequences([4, 2, 1], seed=1)
    for other in (y, x):
        i, j = (k.flatten() for k in torch.meshgrid(torch.arange(4), torch.arange(len(other)), indexing="ij"))
        weights = torch.rand(4, len(other), dtype=torch.float64)
        found = net.matrix(x, other) if other is y else net.matrix(x)
        expected = net(x[i], other[j]).reshape(4, len(other))
        assert_close(found, expected, 1e-12, "matrix")
        for (name, parameter), a, b in zip(
            net.named_parameters(),
            torch.autograd.grad((weights * found).sum(), net.parameters()),
            torch.autograd.grad((weights * expected).sum(), net.parameters()),
            strict=True,
        ):
            assert a.shape == parameter.shape
            assert_close(a, b, 1e-10, f"gradient of {name}")


@pytest.mark.parametrize("hidden", [(4,), (3, 5)])
def test_listed_pairs_are_cells_of_the_matrix(hidden):
    net, x, y = network(hidden=hidden), sequences([5, 1, 7, 3]), sequences([4, 2, 1], seed=1)
    rows, columns = torch.tensor([3, 0, 0, 2, 3]), torch.tensor([0, 2, 2, 1, 1])
    assert_close(net.between(x, y, rows, columns), net.matrix(x, y)[rows, columns], 1e-12, "pairs")
    assert net.between(x, x, rows[:0], columns[:0]).shape == (0,)
    with torch.no_grad():
        assert_close(net.between(x, x, rows, columns), net.matrix(x)[rows, columns], 1e-12, "pairs of one batch")


def test_matrix_in_chunks(monkeypatch):
    net, x, y = network(hidden=(3, 5)), sequences([5, 1, 7, 3]), sequences([4, 2, 1], seed=1)
    whole = net.matrix(x, y)
    monkeypatch.setattr("likewise.distances.coupled_gru.NUMBERS_AT_ONCE", {"cpu": 1000})
    with torch.no_grad():
        assert_close(net.matrix(x, y), whole, 1e-12, "chunks")


def test_gradients_of_weights():
    net, x, y = network(hidden=(3, 2)), sequences([5, 2, 1]), sequences([3, 4, 1], seed=1)
    names = [name for name, _ in net.named_parameters()]
    given = tuple(p.detach().clone().requires_grad_() for p in net.parameters())

    def run(*weights):
        return torch.func.functional_call(net, dict(zip(names, weights, strict=True)), (x, y))

    assert torch.autograd.gradcheck(run, given)


def test_training_brings_a_class_together():
    torch.manual_seed(0)
    net = CoupledGRU(1, (6,))
    x = torch.randn(12, 10, 1) + torch.tensor([0.0, 1.0]).repeat(6)[:, None, None]
    labels = torch.tensor([0, 1]).repeat(6)
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    losses = []
    for _ in range(15):
        loss = lw.losses.Contrastive()(net.matrix(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_alignment():
    net, x, y = network(), sequences([3, 1]), sequences([2, 3], seed=1)
    alignment = net.align(x, y)
    assert alignment.path(0).tolist() == [[0, 0], [1, 1], [2, 1]]
    assert alignment.path(1).tolist() == [[0, 0], [0, 1], [0, 2]]
    assert alignment.x_states.shape == alignment.y_states.shape == alignment.coupling.shape == (2, 3, 4)
    assert torch.equal(alignment.y_states[0, 2], alignment.y_states[0, 1])
    assert_close(alignment.error[:, -1], net(x, y), 1e-14, "last error")
    assert_close(alignment.coupling[:, 0], torch.full((2, 4), 0.5), 1e-14, "coupling of the first step")
    assert repr(alignment) == "CoupledAlignment(2 pairs)"


def test_initialisation():
    torch.manual_seed(0)
    net = CoupledGRU(9, (50, 30), coupling_bias=-4.0)
    for cell, hidden in zip(net.cells, (50, 30), strict=True):
        assert cell.weight_hc.std().item() == pytest.approx(0.1, rel=0.1)
        assert (cell.bias_hc == -4).all()
        assert cell.weight_hh.abs().max().item() <= hidden**-0.5
    x, y = torch.randn(2, 8, 20, 9)
    assert net.align(x, y).coupling.mean().item() == pytest.approx(0.018, abs=0.01)
    assert CoupledGRU(9, coupling_bias=0.0).align(x, y).coupling.mean().item() == pytest.approx(0.5, abs=0.1)


def test_the_twin_embeds_once(monkeypatch):
    torch.manual_seed(0)
    twin, x, y = SiameseGRU(3, (4,)), sequences([5, 1, 7], dtype=torch.float32), sequences([2, 4], dtype=torch.float32)
    monkeypatch.setattr("likewise.distances.siamese_gru.CHUNK", 2)
    embedded = twin.embed(x)
    assert embedded.shape == (3, 4)
    assert not embedded.requires_grad
    assert_close(twin.matrix(x, y), torch.cdist(embedded, twin.embed(y)), 1e-6, "matrix")
    calls = []
    monkeypatch.setattr(SiameseGRU, "all_pairs", lambda *_: calls.append(1))
    lw.evaluate(twin, queries=(y, torch.tensor([0, 1])), references=(x, torch.tensor([0, 1, 1])))
    assert not calls


def test_a_metric_of_it_is_saved(tmp_path):
    metric = lw.Metric(None, network(hidden=(4, 2), bias=-math.inf).float())
    metric.save(tmp_path)
    x = sequences([5, 3], dtype=torch.float32)
    assert torch.equal(lw.Metric.load(tmp_path).matrix(x), metric.matrix(x))


def test_coupling_norm():
    net = lw.Metric(None, network(hidden=(4, 2)))
    weights = [cell.weight_hc for cell in net.distance.cells]
    expected = math.sqrt(sum(w.square().sum().item() for w in weights))
    norm = coupling_norm(net)
    assert norm.item() == pytest.approx(expected)
    (0.01 * norm).backward()
    assert_close(weights[0].grad, 0.01 * weights[0] / expected, 1e-12, "gradient")
    with torch.no_grad():
        for weight in weights:
            weight.zero_()
            weight.grad = None
    coupling_norm(net).backward()
    assert (weights[0].grad == 0).all()
    with pytest.raises(ValueError, match="coupling_norm: GRU has no coupling weights; give it a CoupledGRU"):
        coupling_norm(nn.GRU(1, 1))


@pytest.mark.parametrize("kind", [CoupledGRU, SiameseGRU])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((3, ()), ValueError, "hidden is empty: pass the number of states of each layer"),
        ((3, 20), TypeError, r"expected hidden to have a number for each layer, got 20; write \(20,\)"),
        ((3, (0,)), ValueError, "each of hidden must be a whole number of 1 or more, got 0"),
        ((0,), ValueError, "channels must be a whole number of 1 or more, got 0"),
    ],
)
def test_bad_settings_are_refused(kind, arguments, error, message):
    with pytest.raises(error, match=f"{kind.__name__}: {message}"):
        kind(*arguments)


@pytest.mark.parametrize("bias", [math.nan, math.inf])
def test_a_bad_bias_is_refused(bias):
    with pytest.raises(ValueError, match="CoupledGRU: coupling_bias must be finite or minus infinity"):
        CoupledGRU(3, coupling_bias=bias)


@pytest.mark.parametrize("kind", [CoupledGRU, SiameseGRU])
def test_bad_input_is_refused(kind):
    net, x = kind(3, (4,)), torch.randn(2, 5, 3)
    with pytest.raises(ValueError, match=f"{kind.__name__}: expected x with 3 channels, got 2"):
        net(x[..., :2], x[..., :2])
    with pytest.raises(ValueError, match=f"{kind.__name__}: x has 3 channels and y has 2"):
        net.matrix(x, x[..., :2])
    with pytest.raises(ValueError, match=r"lengths\[1\] is 0; lengths must be between 1 and 5"):
        net(lw.Batch(x, [5, 0]), x)
    for gru, message in (
        (nn.GRU(2, 4), r"expected a GRU with 3 channels and hidden \(4,\), got 2 and \(4,\)"),
        (nn.GRU(3, 4, bidirectional=True), "expected a GRU with one direction"),
    ):
        with pytest.raises(ValueError, match=f"{kind.__name__}: {message}"):
            net.load_gru(gru)
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.GRU, got LSTM"):
        net.load_gru(nn.LSTM(3, 4))


@pytest.mark.parametrize("kind", [CoupledGRU, SiameseGRU])
def test_a_gru_without_biases(kind):
    gru = nn.GRU(3, 4, bias=False, batch_first=True)
    net = kind(3, (4,), *([-math.inf] if kind is CoupledGRU else [])).load_gru(gru)
    x, y = torch.randn(2, 2, 5, 3)
    assert_close(net(x, y), (gru(x)[0] - gru(y)[0])[:, -1].norm(dim=1), 1e-6, "distances")


def test_repr():
    net = CoupledGRU(3, (4, 2), -4)
    assert net.extra_repr() == "channels=3, hidden=(4, 2), coupling_bias=-4.0"
    assert SiameseGRU(3).extra_repr() == "channels=3, hidden=(20,)"
    assert copy.deepcopy(net).hidden == (4, 2)
