import copy
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.distances import distance as module
from likewise.testing import assert_close, check_distance

DISTANCES = [
    lw.DTW(),
    lw.DTW(normalize="lengths"),
    lw.DTW(normalize="steps", band=0.5),
    lw.SoftDTW(),
    lw.SoftDTWDivergence(),
    lw.Euclidean(),
    lw.Cosine(),
]
every_distance = pytest.mark.parametrize("distance", DISTANCES, ids=repr)


class Difference(lw.Distance):
    """The sum of x minus the sum of y: the minimum that a subclass must implement."""

    def paired(self, x, y, x_lengths, y_lengths):
        return x.sum((1, 2)) - y.sum((1, 2))


class Gap(Difference):
    """The same without its sign, and symmetric."""

    symmetric = True

    def paired(self, x, y, x_lengths, y_lengths):
        return super().paired(x, y, x_lengths, y_lengths).abs()


def noise(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


class PlainLoops(lw.Distance):
    """DTW from pairs only: the base class computes its matrix."""

    symmetric = True

    def paired(self, x, y, x_lengths, y_lengths):
        return lw.DTW().paired(x, y, x_lengths, y_lengths)


def test_a_subclass_that_writes_pairs_only_keeps_the_contract():
    check_distance(PlainLoops(), aligns=False)


@pytest.mark.parametrize("numbers", [1, 7, 40, 1 << 24])
def test_chunks_do_not_change_the_matrix(numbers, monkeypatch):
    monkeypatch.setattr(module, "PAIRED_NUMBERS", numbers)
    x, y = noise(5, 3, 2), noise(4, 2, 2, seed=1)
    expected = x.sum((1, 2))[:, None] - y.sum((1, 2))
    assert torch.equal(Difference().matrix(x, y), expected)
    own = x.sum((1, 2))[:, None] - x.sum((1, 2))
    assert torch.equal(Difference().matrix(x), own)
    assert torch.equal(Gap().matrix(x), own.abs())
    assert Gap().matrix(x[:0]).shape == (0, 0)
    assert Gap().matrix(x, y[:0]).shape == (5, 0)


@pytest.mark.parametrize("shape", [(110, 128, 1), (110, 1, 4096), (110, 7, 30), (3, 5000, 2)], ids=str)
def test_a_chunk_holds_a_bounded_number_of_frames_and_costs(shape):
    pairs, held = [], []

    class Spy(lw.Distance):
        symmetric = True

        def paired(self, x, y, x_lengths, y_lengths):
            pairs.append(len(x))
            held.append(max(len(x) * x.shape[1] * y.shape[1], x.numel() + y.numel()))
            return x.new_zeros(len(x))

    Spy().matrix(torch.zeros(1, *shape[1:]).expand(shape))
    assert sum(pairs) == shape[0] * (shape[0] + 1) / 2
    assert max(held) <= module.PAIRED_NUMBERS or max(pairs) == 1
    assert len(pairs) > 1 or shape == (110, 7, 30)


def test_a_symmetric_matrix_takes_each_pair_once():
    seen = []

    class Spy(Gap):
        def paired(self, x, y, x_lengths, y_lengths):
            seen.append(len(x))
            return super().paired(x, y, x_lengths, y_lengths)

    Spy().matrix(noise(6, 2, 1))
    assert sum(seen) == 6 * 7 / 2


@every_distance
def test_the_same_values_with_other_lengths_are_other_sequences(distance):
    values = noise(3, 5, 2)
    x, y = lw.Batch(values, [5, 4, 2]), lw.Batch(values, [1, 2, 3])
    apart = distance.matrix(x, lw.Batch(values.clone(), [1, 2, 3]))
    assert torch.equal(distance.matrix(x, y), apart)
    assert torch.equal(distance.matrix(x, y, progress=True), apart)
    whole = distance.matrix(values, lw.Batch(values.clone(), [1, 2, 3]))
    assert torch.equal(distance.matrix(values, y), whole)


@every_distance
def test_a_matrix_with_itself_is_symmetric_to_the_bit(distance):
    x = lw.Batch(noise(9, 6, 2), [6, 5, 1, 3, 6, 2, 4, 6, 6])
    found = distance.matrix(x)
    assert torch.equal(found, found.T)
    assert torch.equal(distance.matrix(x, x), found)


def test_a_ground_cost_that_is_not_symmetric_is_not_mirrored():
    def above(x, y):
        return (x - y.mT).relu()

    x = noise(5, 4, 1, dtype=torch.float64)
    for distance in (lw.DTW(ground=above), lw.SoftDTW(ground=above), lw.SoftDTWDivergence(ground=above)):
        assert not distance.symmetric
        single = torch.stack([torch.cat([distance(a[None], b[None]) for b in x]) for a in x])
        assert_close(distance.matrix(x), single, 1e-10, "matrix of x with itself")
        assert not torch.allclose(single, single.T)


@every_distance
def test_gradients_reach_both_sides_of_the_matrix(distance):
    x = noise(3, 5, 2, dtype=torch.float64).requires_grad_()
    (alone,) = torch.autograd.grad(distance.matrix(x).sin().sum(), x)
    (given,) = torch.autograd.grad(distance.matrix(x, x * 1.0).sin().sum(), x)
    (bar,) = torch.autograd.grad(distance.matrix(x, progress=True).sin().sum(), x)
    assert_close(alone, given, 1e-8, "gradient of x with itself")
    assert_close(bar, given, 1e-8, "gradient with a progress bar")


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts KiB on Linux only")
def test_a_matrix_never_holds_the_costs_of_all_pairs():
    program = """
        import resource, torch
        import likewise as lw
        x = torch.randn(1000, 128, 1, generator=torch.Generator().manual_seed(0))
        distances = [(lw.DTW(), 1000), (lw.SoftDTW(), 300)]  # costs of 64 GB and of 6 GB
        for distance, count in distances:
            distance.matrix(x[:20])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for distance, count in distances:
            assert distance.matrix(x[:count]).isfinite().all()
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100, f"{done.stdout.strip()} MiB"


def test_progress_prints_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(module, "CELLS_A_STEP", 100)
    lw.DTW().matrix(noise(3, 4, 1), noise(5, 4, 1), progress=True)
    printed = capsys.readouterr()
    assert "DTW: 3 x 5" in printed.err
    assert "100%" in printed.err
    assert printed.out == ""
    lw.DTW().matrix(noise(3, 4, 1))
    assert capsys.readouterr().err == ""


@every_distance
def test_steps_of_the_bar_do_not_change_the_matrix(distance, monkeypatch):
    monkeypatch.setattr(module, "CELLS_A_STEP", 100)  # a row or two a step
    x, y = lw.Batch(noise(7, 4, 2), [4, 3, 2, 1, 4, 4, 2]), noise(5, 3, 2, seed=1)
    for given in ((x, y), (x,), (x[:0], y), (x, y[:0])):
        assert_close(distance.matrix(*given, progress=True), distance.matrix(*given), 1e-6, "with a progress bar")


@every_distance
def test_compiles_without_a_graph_break(distance):
    x, y = noise(4, 9, 2), noise(4, 7, 2, seed=1)
    compiled = torch.compile(distance, fullgraph=True, backend="aot_eager")
    try:
        assert_close(compiled(x, y), distance(x, y), 1e-6, "compiled")
        batch = lw.Batch(x, [9, 1, 5, 2])
        assert_close(compiled(batch, y), distance(batch, y), 1e-6, "compiled, with lengths")
        x.requires_grad_()
        found, expected = (torch.autograd.grad(call(x, y).sum(), x)[0] for call in (compiled, distance))
        assert_close(found, expected, 1e-5, "gradient, compiled")
    finally:
        torch.compiler.reset()


def test_compiles_to_machine_code():
    x, y = noise(4, 9, 2), noise(4, 7, 2, seed=1)
    distance = lw.SoftDTW(0.5)
    try:
        assert_close(torch.compile(distance, fullgraph=True)(x, y), distance(x, y), 1e-6, "compiled")
    finally:
        torch.compiler.reset()


@every_distance
def test_modules_copy_pickle_and_have_no_state(distance):
    x, y = noise(2, 5, 1), noise(2, 4, 1, seed=1)
    assert distance.state_dict() == {}
    assert list(distance.parameters()) == []
    distance.load_state_dict({})
    for other in (copy.deepcopy(distance), pickle.loads(pickle.dumps(distance)), copy.deepcopy(distance).double()):
        assert repr(other) == repr(distance)
        assert torch.equal(other(x, y), distance(x, y))
    assert distance.eval().training is False
    distance.train()


def test_a_ground_cost_may_learn():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x, y):
            return self.scale * (x - y.mT).square()

    distance = lw.DTW(ground=Scaled())
    assert [name for name, _ in distance.named_parameters()] == ["ground.scale"]
    x, y = noise(2, 5, 1), noise(2, 4, 1, seed=1)
    value = distance(x, y)
    assert_close(value, 2 * lw.DTW()(x, y), 1e-6, "scaled")
    value.sum().backward()
    assert_close(distance.ground.scale.grad, lw.DTW()(x, y).sum(), 1e-5, "gradient of the scale")
    assert "Scaled" in repr(distance)
    assert copy.deepcopy(distance).double().ground.scale.dtype == torch.float64


@every_distance
def test_nothing_is_drawn_from_the_global_generator(distance):
    state = torch.get_rng_state()
    distance.matrix(noise(2, 3, 1))
    assert torch.equal(torch.get_rng_state(), state)


@every_distance
def test_forms_of_the_same_input_agree(distance):
    items = [[0.0, 1.0, 2.0], [3.0, 1.0]]
    other = torch.tensor([[[1.0], [2.0]], [[0.0], [0.5]]])
    expected = distance(lw.Batch.from_list(items), other)
    for x in (items, tuple(items), [torch.tensor(item) for item in items], [np.float32(item) for item in items]):
        assert torch.equal(distance(x, other), expected)
    assert torch.equal(distance(other.numpy(), other), distance(other, other))
    assert expected.shape == (2,)


@every_distance
def test_labels_are_left_out(distance):
    labels, items = ["a", "b"], [[0.0, 1.0, 2.0], [3.0, 1.0]]
    other = torch.tensor([[[1.0], [2.0]], [[0.0], [0.5]]])
    for x, y in (((items, labels), (other, [0, 1])), (lw.Dataset(items, labels), lw.Dataset(other, labels))):
        assert torch.equal(distance(x, y), distance(items, other))
        assert torch.equal(distance.matrix(x, y), distance.matrix(items, other))
        assert torch.equal(distance.matrix(x), distance.matrix(items))
        assert torch.equal(lw.Metric(None, distance).matrix(x, y), distance.matrix(items, other))


def test_labelled_vectors():
    x = noise(4, 3)
    assert torch.equal(lw.Euclidean().matrix((x, [0, 1, 0, 1])), lw.Euclidean().matrix(x))


NAN = torch.zeros(4, 6, 2)
NAN[2, 4, 1] = torch.nan
INFINITE = torch.zeros(4, 6, 2)
INFINITE[3, 0, 1] = -torch.inf
ZEROS = torch.zeros(4, 6, 2)


@every_distance
@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (NAN, ZEROS, ValueError, r": x\[2\] holds nan at step 4, channel 1"),
        (ZEROS, INFINITE, ValueError, r": y\[3\] holds -inf at step 0, channel 1"),
        (
            ZEROS[0, 0],
            ZEROS,
            ValueError,
            r"expected x of shape \(B, T, C\), got \(2,\); add a batch and a channel with x",
        ),
        (ZEROS, ZEROS[None], ValueError, r"expected y of shape \(B, T, C\), got \(1, 4, 6, 2\)"),
        (ZEROS, ZEROS[:3], ValueError, "x has 4 sequences and y has 3; for all pairs, use .matrix"),
        (ZEROS, ZEROS[..., :1], ValueError, "x has 2 channels and y has 1"),
        (ZEROS, ZEROS.double(), TypeError, "x is torch.float32 and y is torch.float64; convert one with .to"),
        (ZEROS, ZEROS.to("meta"), ValueError, "x is on cpu and y is on meta; move one with .to"),
        (
            ZEROS.long(),
            ZEROS,
            TypeError,
            r"expected x to be floating point, got torch.int64; convert it with x.float\(\)",
        ),
        (ZEROS[:, :0], ZEROS, ValueError, r"expected x with at least one step and one channel, got \(4, 0, 2\)"),
        ([[1.0], []], [[1.0], [2.0]], ValueError, r"x\[1\] is empty: its shape is \(0, 1\)"),
        ([[1.0]], [[[1.0, 2.0]]], ValueError, "x has 1 channels and y has 2"),
        ("x", ZEROS, TypeError, r"expected x to be a Batch, a tensor \(B, T, C\) or a list of sequences, got str"),
    ],
)
def test_bad_input_is_refused(distance, x, y, error, message):
    with pytest.raises(error, match=message):
        distance(x, y)
    if "sequences and" not in message:  # a matrix takes batches of different size
        with pytest.raises(error, match=message):
            distance.matrix(x, y)


@pytest.mark.parametrize("distance", [lw.DTW(), lw.SoftDTW(), lw.SoftDTWDivergence()], ids=repr)
def test_a_tensor_without_channels_is_refused_with_the_fix(distance):
    message = rf"{distance.name}: expected x of shape \(B, T, C\), got \(32, 128\); add a channel with x\[..., None\]"
    with pytest.raises(ValueError, match=message):
        distance(torch.zeros(32, 128), torch.zeros(32, 128))
    with pytest.raises(ValueError, match=message):
        distance.matrix(torch.zeros(32, 128))
    with pytest.raises(ValueError, match=message):
        distance.align(torch.zeros(32, 128), torch.zeros(32, 128))


def test_lengths_are_refused_where_the_batch_is_made():
    for lengths, message in (([0, 6, 6, 6], r"lengths\[0\] is 0"), ([6, 7, 6, 6], r"lengths\[1\] is 7")):
        with pytest.raises(ValueError, match=message + "; lengths must be between 1 and 6"):
            lw.DTW()(lw.Batch(ZEROS, lengths), ZEROS)


def test_nan_in_the_padding_is_not_refused():
    x = lw.Batch(NAN, [6, 6, 4, 6])
    for distance in DISTANCES:
        assert distance(x, ZEROS).isfinite().all()
        assert distance.matrix(x).isfinite().all()


def test_what_a_subclass_leaves_out_says_so():
    with pytest.raises(NotImplementedError, match="Difference does not align sequences"):
        Difference().align(ZEROS, ZEROS)
    with pytest.raises(NotImplementedError, match=r"Distance.paired"):
        lw.Distance()(ZEROS, ZEROS)
