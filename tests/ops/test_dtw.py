import multiprocessing
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from likewise import _native
from likewise.ops import cpu
from likewise.ops.dtw import cpu as kernels
from likewise.ops.dtw import dtw, dtw_cost, dtw_cost_path, dtw_matrix, dtw_path, dtw_steps, reference
from likewise.ops.rules import Rules
from likewise.testing import TOLERANCE, assert_close, check_op
from tests.ops.problems import random_problem


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request, monkeypatch):
    monkeypatch.setattr(cpu, "INSTRUCTION_SET", request.param)
    return request.param


@pytest.fixture
def ran(monkeypatch):
    """Names of the kernels that were called."""
    names = []
    for name in ("dtw_blocks", "dtw_tile", "dtw_values", "dtw_shared_values", "dtw_paths"):
        kernel = getattr(_native, name)

        def spy(*arguments, kernel=kernel, name=name):
            names.append(name)
            return kernel(*arguments)

        monkeypatch.setattr(cpu.native, name, spy)
    return names


def random_walks(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(16))
def test_values_equal_the_reference(seed, dtype, instruction_set, ran):
    p = random_problem(seed, batch=17, dtype=dtype)  # fills the lanes of two threads
    expected = torch.stack([reference.value(p.cost(b), p.rules) for b in range(len(p.x))])
    tolerance = TOLERANCE[dtype].value
    options = {"ground": p.ground, "rules": p.rules}
    assert_close(dtw(p.x, p.y, *p.lengths, **options), expected, tolerance, "lanes of pairs")
    few = torch.cat(
        [dtw(p.x[b : b + 1], p.y[b : b + 1], *(k[b : b + 1] for k in p.lengths), **options) for b in range(3)]
    )
    assert_close(few, expected[:3], tolerance, "one pair at a time")
    given = torch.zeros(len(p.x), p.x.shape[1], p.y.shape[1], dtype=dtype)
    for b, (n, m) in enumerate(zip(*p.lengths, strict=True)):
        given[b, :n, :m] = p.cost(b)
    assert_close(dtw_cost(given, *p.lengths, rules=p.rules), expected, tolerance, "given costs")
    assert set(ran) == {"dtw_blocks", "dtw_values"}


@pytest.mark.parametrize("seed", range(0, 16, 3))
def test_matrices_equal_the_reference(seed, instruction_set, ran):
    p = random_problem(seed, batch=10, longest=12)
    expected = torch.stack([reference.value(p.cost(i, j), p.rules) for i in range(7) for j in range(10)]).reshape(7, 10)
    options = {"ground": p.ground, "rules": p.rules}
    tolerance = TOLERANCE[torch.float64].value
    found = dtw_matrix(p.x[:7], p.y, p.x_lengths[:7], p.y_lengths, **options)
    assert_close(found, expected, tolerance, "tiles")
    assert set(ran) == {"dtw_tile"}
    column = dtw_matrix(p.x, p.y[:1], p.x_lengths, p.y_lengths[:1], **options)
    assert_close(column[:7], expected[:, :1], tolerance, "a single column")
    assert "dtw_blocks" in ran or cpu.INSTRUCTION_SET == "baseline"
    steps = dtw_steps(p.x[:7], p.y, p.x_lengths[:7], p.y_lengths, **options)
    assert steps[2, 3] == len(reference.path(p.cost(2, 3), p.rules))


@pytest.mark.parametrize("rules", [Rules(), Rules.of("test", band=0.1), Rules(open_begin=True, open_end=True)])
@pytest.mark.parametrize("channels", [1, 3])
def test_threads_that_share_pairs_agree_with_one(channels, rules, instruction_set, ran, monkeypatch):
    x = random_walks(4, 700, channels, dtype=torch.float64)
    lengths = torch.tensor([700, 97, 96, 333])
    monkeypatch.setattr(kernels, "LONG_WORK", 0)
    monkeypatch.setattr(kernels, "SHARED_WORK", 0)
    monkeypatch.setattr(kernels, "_prefers_pairs", lambda *_: True)
    found = []
    for threads in (10, 4, 1):  # all 9 pairs are shared, one of them, none
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(dtw_matrix(x[:3], x[1:], lengths[:3], lengths[1:], rules=rules))
    assert {"dtw_shared_values", "dtw_values"} <= set(ran)
    assert found[0].equal(found[2])
    assert found[1].equal(found[2])
    single = [
        dtw(x[i : i + 1], x[j : j + 1], lengths[i : i + 1], lengths[j : j + 1], rules=rules)
        for i in range(3)
        for j in range(1, 4)
    ]
    assert found[1].flatten().equal(torch.cat(single))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("root", [False, True])
def test_many_channels_agree_with_given_costs(root, dtype, instruction_set):
    x, y = random_walks(3, 210, 37, dtype=dtype), random_walks(3, 99, 37, dtype=dtype, seed=1)
    ground = "euclidean" if root else "sqeuclidean"
    costs = (x.double()[:, :, None] - y.double()[:, None]).square().sum(-1)
    expected = dtw_cost(costs.sqrt() if root else costs)
    assert_close(dtw(x, y, ground=ground), expected, TOLERANCE[dtype].value, "values")
    assert dtw_matrix(x, ground=ground).diagonal().eq(0).all()


@pytest.mark.parametrize("seed", range(16))
def test_paths_equal_the_reference(seed, instruction_set):
    p = random_problem(seed)
    paths, steps = dtw_path(p.x, p.y, *p.lengths, ground=p.ground, rules=p.rules)
    for b in range(len(p.x)):
        assert paths[b, : steps[b]].tolist() == [list(cell) for cell in reference.path(p.cost(b), p.rules)]
        assert (paths[b, steps[b] :] == -1).all()


def test_ties_prefer_the_diagonal_then_the_row_above(instruction_set):
    cost = torch.zeros(1, 4, 6)
    path, steps = dtw_cost_path(cost)
    assert path[0, : steps[0]].tolist() == [[0, 0], [0, 1], [0, 2], [1, 3], [2, 4], [3, 5]]
    whole = torch.randint(0, 3, (30, 9, 7), generator=torch.Generator().manual_seed(0)).double()  # full of ties
    paths, steps = dtw_cost_path(whole)
    for b in range(len(whole)):
        assert paths[b, : steps[b]].tolist() == [list(cell) for cell in reference.path(whole[b])]


@pytest.mark.parametrize("rules", [Rules(), Rules.of("dtw", band=40), Rules.of("dtw", subsequence=True)])
def test_ties_are_broken_alike_along_a_path_that_is_computed_in_parts(rules):
    # Whole numbers, so that every sum is exact; more rows and columns than a group of lanes holds and a mark is apart.
    x, y = (torch.randint(0, 4, (1, n, 1), generator=torch.Generator().manual_seed(n)).double() for n in (130, 170))
    cost = (x - y.mT).square()
    expected = [list(cell) for cell in reference.path(cost[0], rules)]
    for isa in _native.instruction_sets():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu, "INSTRUCTION_SET", isa)
            for dtype in (torch.float32, torch.float64):
                for paths, steps in (
                    dtw_path(x.to(dtype), y.to(dtype), rules=rules),
                    dtw_cost_path(cost.to(dtype), rules=rules),
                ):
                    assert paths[0, : steps[0]].tolist() == expected, f"{isa}, {dtype}"


def test_a_symmetric_matrix_is_computed_once_and_mirrored(instruction_set):
    x = random_walks(37, 20, 2)
    lengths = torch.randint(1, 21, (37,), generator=torch.Generator().manual_seed(1))
    for rules in (Rules(), Rules.of("dtw", band=2)):
        own = dtw_matrix(x, None, lengths, rules=rules)
        assert torch.equal(own, own.T)
        apart = dtw_matrix(x, x.clone(), lengths, lengths, rules=rules)
        assert_close(own, apart, TOLERANCE[torch.float32].value, "x with itself")
        assert (own.diagonal() == 0).all()


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 65])
def test_odd_sizes(steps, instruction_set):
    x, y = random_walks(3, steps, 2, dtype=torch.float64), random_walks(3, steps + 1, 2, dtype=torch.float64, seed=1)
    expected = torch.stack([reference.value(torch.cdist(x[b], y[b]) ** 2) for b in range(3)])
    assert_close(dtw(x, y), expected, 1e-10, "values")
    assert_close(dtw_matrix(x, y).diagonal(), expected, 1e-10, "matrix")


def test_values_equal_the_peers():
    aeon = pytest.importorskip("aeon.distances")
    tslearn = pytest.importorskip("tslearn.metrics")
    dtai = pytest.importorskip("dtaidistance.dtw_ndim")
    x = random_walks(4, 40, 3, dtype=torch.float64)
    y = random_walks(4, 33, 3, dtype=torch.float64, seed=1)
    for dtype in (torch.float32, torch.float64):
        tolerance = TOLERANCE[dtype].value
        found = dtw_matrix(x.to(dtype), y.to(dtype))
        for b in range(4):
            a, c = x[b].numpy(), y[b].numpy()
            for name, value in (
                ("aeon", aeon.dtw_distance(a.T, c.T)),
                ("tslearn", tslearn.dtw(a, c) ** 2),
                ("dtaidistance", dtai.distance(a, c) ** 2),
            ):
                assert_close(found[b, b], torch.tensor(value, dtype=torch.float64), tolerance, name)
        for band in (0.1, 0.4):  # aeon's window, for equal lengths
            banded = dtw_matrix(x.to(dtype), rules=Rules.of("dtw", band=band))
            expected = aeon.dtw_pairwise_distance(x.numpy().transpose(0, 2, 1), window=band)
            assert_close(banded, torch.from_numpy(expected), tolerance, "aeon with a window")
        radius = Rules.of("dtw", band=3)
        expected = [
            tslearn.dtw(a, c, global_constraint="sakoe_chiba", sakoe_chiba_radius=3) ** 2
            for a, c in zip(x, y, strict=True)
        ]
        assert_close(
            dtw(x.to(dtype), y.to(dtype), rules=radius),
            torch.tensor(expected, dtype=torch.float64),
            tolerance,
            "tslearn's radius",
        )
        expected = [tslearn.dtw(a, a * 2, global_constraint="itakura", itakura_max_slope=2.0) ** 2 for a in x]
        slope = Rules.of("dtw", itakura=2.0)
        assert_close(
            dtw(x.to(dtype), 2 * x.to(dtype), rules=slope),
            torch.tensor(expected, dtype=torch.float64),
            tolerance,
            "Itakura",
        )


def test_paths_equal_the_peers():
    aeon = pytest.importorskip("aeon.distances")
    tslearn = pytest.importorskip("tslearn.metrics")
    x, y = random_walks(1, 90, 2, dtype=torch.float64), random_walks(1, 70, 2, dtype=torch.float64, seed=1)
    path, steps = dtw_path(x, y)
    found = [tuple(cell) for cell in path[0, : steps[0]].tolist()]
    assert found == aeon.dtw_alignment_path(x[0].numpy().T, y[0].numpy().T)[0]
    assert found == [tuple(map(int, cell)) for cell in tslearn.dtw_path(x[0].numpy(), y[0].numpy())[0]]
    inside, value = tslearn.dtw_subsequence_path(x[0, :20].numpy(), y[0].numpy())
    rules = Rules.of("dtw", subsequence=True)
    path, steps = dtw_path(x[:, :20], y, rules=rules)
    assert path[0, : steps[0]].tolist() == [list(map(int, cell)) for cell in inside]
    assert_close(
        dtw(x[:, :20], y, rules=rules), torch.tensor([float(value) ** 2], dtype=torch.float64), 1e-10, "subsequence"
    )


@pytest.mark.parametrize("ground", ["sqeuclidean", "euclidean", "cosine"])
def test_gradients(ground):
    p = random_problem(7, batch=3, longest=8)
    p.ground = ground
    x, y = (t.nan_to_num(0).requires_grad_() for t in (p.x, p.y))
    options = {"ground": ground, "rules": p.rules}
    assert torch.autograd.gradcheck(lambda a, b: dtw(a, b, *p.lengths, **options), (x, y))
    assert torch.autograd.gradcheck(lambda a, b: dtw_matrix(a, b, *p.lengths, **options), (x, y))
    assert torch.autograd.gradcheck(lambda a: dtw_matrix(a, None, p.x_lengths, ground=ground), (x,))


def test_the_derivative_with_respect_to_the_cost_is_the_path(instruction_set):
    cost = torch.rand(5, 9, 7, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, -2.0, 0.0, 0.5, 3.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((dtw_cost(cost) * weights).sum(), cost)
    for b in range(5):
        expected = torch.zeros(9, 7, dtype=torch.float64)
        for i, j in reference.path(cost[b].detach()):
            expected[i, j] = weights[b]
        assert torch.equal(gradient[b], expected)


def test_equal_frames_have_a_zero_euclidean_gradient():
    x = torch.ones(1, 4, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(dtw(x, torch.ones(1, 3, 2), ground="euclidean").sum(), x)
    assert torch.equal(gradient, torch.zeros_like(x))


@pytest.mark.parametrize("call", [lambda x: dtw(x, 2 * x), lambda x: dtw_matrix(x), lambda x: dtw_cost(x @ x.mT)])
def test_a_second_derivative_is_refused(call):
    x = torch.randn(2, 5, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="dtw: the second derivative is not implemented"):
        torch.autograd.grad(gradient.sum(), x)


def test_operators_keep_the_contract():
    p = random_problem(3, batch=2, longest=6)
    x, y = p.x.clone().requires_grad_(), p.y.clone().requires_grad_()
    rules = p.rules.plain()
    ops = torch.ops.likewise
    check_op(ops.dtw.default, (x, y, *p.lengths, False, *rules))
    check_op(
        ops.dtw.default, (torch.rand(2, 4, 5, dtype=torch.float64, requires_grad=True), None, None, None, False, *rules)
    )
    check_op(ops.dtw_matrix.default, (x, y, *p.lengths, False, True, *rules))
    check_op(ops.dtw_path.default, (p.x, p.y, *p.lengths, False, *rules), gradient=False)
    check_op(ops.dtw_steps.default, (p.x, p.y, *p.lengths, False, *rules), gradient=False)
    weights = torch.rand(2, dtype=torch.float64)
    check_op(ops.dtw_grad.default, (weights, p.x, p.y, *p.lengths, False, *rules), gradient=False)


def test_compiles_without_a_graph_break():
    x, y, rules = random_walks(4, 20, 2), random_walks(4, 17, 2, seed=1), Rules.of("dtw", band=0.5)

    def loss(a, b):
        return dtw(torch.tanh(a), b, rules=rules).mean() + dtw_matrix(a, ground="cosine").sum()

    expected, found = [], []
    for run, into in ((loss, expected), (torch.compile(loss, fullgraph=True), found)):
        a = x.clone().requires_grad_()
        value = run(a, y)
        into.extend([value.detach(), torch.autograd.grad(value, a)[0]])
    for f, e in zip(found, expected, strict=True):
        assert_close(f, e, 1e-5, "compiled")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_accumulated_in_float32(dtype):
    x, y = (torch.randn(6, 50, 3).to(dtype) for _ in range(2))
    found = dtw(x, y)
    assert found.dtype == dtype
    assert torch.equal(found, dtw(x.float(), y.float()).to(dtype))


def test_sums_do_not_depend_on_the_number_of_threads():
    x, y = random_walks(40, 60, 2), random_walks(30, 50, 2, seed=1)
    found = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
            value = dtw_matrix(a, b)
            found.append((value.detach(), *torch.autograd.grad(value.sin().sum(), (a, b))))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_a_long_path_is_traced_in_pieces(instruction_set):
    # More cells than are kept at once: several pieces, whose path must still be the whole problem's.
    x, y = random_walks(1, 6000, 1, dtype=torch.float64), random_walks(1, 5500, 1, dtype=torch.float64, seed=1)
    path, steps = dtw_path(x, y)
    cells = path[0, : steps[0]]
    assert cells[0].tolist() == [0, 0]
    assert cells[-1].tolist() == [5999, 5499]
    moves = cells.diff(dim=0)
    assert ((moves >= 0) & (moves <= 1)).all()
    assert (moves.sum(1) >= 1).all()
    total = (x[0, cells[:, 0]] - y[0, cells[:, 1]]).square().sum()
    assert_close(total, dtw(x, y)[0], 1e-10, "cost along the path")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_a_path_of_30000_by_30000_stays_under_1_gb():
    program = """
        import torch
        from likewise.ops.dtw import dtw, dtw_path
        x, y = (torch.randn(1, 30_000, 1, generator=torch.Generator().manual_seed(s)).cumsum(1) for s in (0, 1))
        path, steps = dtw_path(x, y)
        cells = path[0, : steps[0]]
        total = (x[0, cells[:, 0]].double() - y[0, cells[:, 1]].double()).square().sum()
        assert abs(total / dtw(x.double(), y.double()) - 1) < 1e-5
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
        print(int(peak) // 1024)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1024, f"peak memory {done.stdout.strip()} MiB"


def _in_child(queue):
    queue.put(dtw_matrix(random_walks(64, 100, 1)).sum().item())


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_works_in_a_forked_child_after_the_parent_used_threads():
    expected = dtw_matrix(random_walks(64, 100, 1)).sum().item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == expected
    child.join()


def test_empty_batches_give_empty_results():
    x, y = torch.empty(0, 5, 2), torch.randn(3, 4, 2)
    assert dtw(x, x).shape == (0,)
    assert dtw_matrix(x, y).shape == (0, 3)
    assert dtw_matrix(y, x).shape == (3, 0)
    paths, steps = dtw_path(x, x)
    assert paths.shape == (0, 9, 2)
    assert steps.shape == (0,)


x3 = torch.zeros(2, 5, 3)
nan = torch.zeros(4, 6, 3)
nan[2, 4, 1] = torch.nan
infinite = torch.zeros(4, 6, 3)
infinite[3, 0, 2] = -torch.inf


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: dtw(torch.zeros(32, 128), x3),
            ValueError,
            r"dtw: expected x of shape \(B, T, C\), got \(32, 128\); add a channel with x\[..., None\]",
        ),
        (
            lambda: dtw(x3, torch.zeros(7)),
            ValueError,
            r"expected y of shape \(B, T, C\), got \(7,\); add a batch and a channel",
        ),
        (
            lambda: dtw(x3, x3.long()),
            TypeError,
            r"dtw: expected y to be floating point, got torch.int64; convert it with y.float\(\)",
        ),
        (lambda: dtw(x3, [1.0]), TypeError, "dtw: expected y to be a torch.Tensor, got list"),
        (lambda: dtw(x3, x3[:1]), ValueError, "dtw: x has 2 sequences and y has 1; for all pairs, use .matrix"),
        (lambda: dtw(x3, x3[..., :2]), ValueError, "dtw: x has 3 channels and y has 2"),
        (
            lambda: dtw(x3, x3.double()),
            TypeError,
            "dtw: x is torch.float32 and y is torch.float64; convert one with .to",
        ),
        (
            lambda: dtw(x3, x3[:, :0]),
            ValueError,
            r"dtw: expected y with at least one step and one channel, got \(2, 0, 3\)",
        ),
        (
            lambda: dtw(x3, x3, torch.tensor([5, 0])),
            ValueError,
            r"dtw: x_lengths\[1\] is 0; lengths must be between 1 and 5",
        ),
        (
            lambda: dtw(x3, x3, None, torch.tensor([6, 1])),
            ValueError,
            r"dtw: y_lengths\[0\] is 6; lengths must be between 1 and 5",
        ),
        (lambda: dtw(x3, x3, torch.tensor([5])), ValueError, r"dtw: expected x_lengths of shape \(2,\), got \(1,\)"),
        (
            lambda: dtw(x3, x3, torch.tensor([5.0, 5.0])),
            TypeError,
            "dtw: expected x_lengths to be an int64 tensor, got torch.float32",
        ),
        (lambda: dtw(nan, torch.zeros(4, 2, 3)), ValueError, r"dtw: x\[2\] holds nan at step 4, channel 1"),
        (lambda: dtw_matrix(x3, infinite), ValueError, r"dtw: y\[3\] holds -inf at step 0, channel 2"),
        (
            lambda: dtw(x3, x3, ground="manhattan"),
            ValueError,
            "dtw: unknown ground cost 'manhattan'; expected one of sqeuclidean, euclidean, cosine",
        ),
        (lambda: dtw(x3, x3, ground=3), TypeError, "dtw: expected ground to be a name or a callable, got int"),
        (
            lambda: dtw(x3, x3, ground=lambda a, b: a),
            ValueError,
            r"dtw: expected the ground cost to return shape \(2, 5, 5\), got \(2, 5, 3\)",
        ),
        (lambda: dtw_matrix(x3, ground=torch.cdist), ValueError, "dtw: dtw_matrix takes the named ground costs only"),
        (
            lambda: dtw_cost(torch.zeros(4, 5)),
            ValueError,
            r"dtw: expected cost of shape \(B, Tx, Ty\), got \(4, 5\); add a batch with cost\[None\]",
        ),
        (lambda: dtw_cost(nan), ValueError, r"dtw: cost\[2\] holds nan at \(4, 1\)"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_tensor_flags_of_the_dispatcher_are_respected():
    whole = torch.randn(2, 5, 1, dtype=torch.complex64)
    negated = whole.conj().imag  # a view of what is there, to be negated when read
    assert negated.is_neg()
    assert torch.equal(dtw(negated, negated[:, :3]), dtw(-whole.imag, -whole.imag[:, :3]))
    with pytest.raises(NotImplementedError, match="dtw: no kernel for tensors on cpu"):
        dtw(torch.ones(2, 5, 1).to_sparse(), torch.ones(2, 5, 1).to_sparse())


def test_arguments_are_not_changed():
    p = random_problem(5)
    before = [t.clone() for t in (p.x, p.y, *p.lengths)]
    a, b = p.x.clone().requires_grad_(), p.y.clone().requires_grad_()
    dtw_matrix(a, b, *p.lengths).sum().backward()
    dtw_path(p.x, p.y, *p.lengths)
    for now, then in zip((a.detach(), b.detach(), *p.lengths), before, strict=True):
        assert np.array_equal(now.numpy(), then.numpy(), equal_nan=True)


def test_without_a_kernel_the_error_lists_the_candidates(monkeypatch):
    from likewise.ops import dispatch

    with pytest.raises(
        NotImplementedError,
        match=r"dtw: no kernel for tensors on cpu: the C\+\+ kernel needs CPU tensors; the Triton kernel needs CUDA tensors",
    ):
        dispatch._no_kernel("dtw", (None, x3))
    with pytest.raises(NotImplementedError, match="could not be imported"):
        dispatch._run_triton("dtw", "missing_module.value", (x3,))


@pytest.mark.parametrize("shape", [(1, 5, 3), (40, 3, 5), (2, 4, 4)])
def test_costs_that_overflow_are_refused(shape, instruction_set):
    count, n, m = shape
    x, y = torch.zeros(count, n, 1), torch.full((count, m, 1), 1e30)
    for run in (dtw, dtw_matrix):
        with pytest.raises(ValueError, match=r"dtw: the value of pair \[0.*\] is not finite: the costs overflow"):
            run(x, y)
    for run in (dtw_path, dtw_steps):
        with pytest.raises(ValueError, match=r"dtw: pair \[0.*\] has no path: its costs overflow torch.float32"):
            run(x, y)
    assert dtw(x.double(), y.double())[0].item() == pytest.approx(max(n, m) * 1e60)
    for sign in (1, -1):
        cost = torch.full((1, n, m), sign * 3e38)
        with pytest.raises(ValueError, match="overflow"):
            dtw_cost(cost)
        with pytest.raises(ValueError, match="overflow"):
            dtw_cost_path(cost)


def test_numbers_of_numpy_are_numbers():
    assert Rules.of("dtw", band=np.int64(2)) == Rules.of("dtw", band=2)
    assert Rules.of("dtw", band=np.float32(0.5)) == Rules.of("dtw", band=0.5)
    assert Rules.of("dtw", itakura=np.float64(2)) == Rules.of("dtw", itakura=2.0)
