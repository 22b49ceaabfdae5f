"""The contract checks find each kind of broken distance and operator, with its message."""

import pytest
import torch

import likewise as lw
from likewise.distances.alignment import PathAlignment
from likewise.testing import TOLERANCE, assert_close, check_distance, check_op


def fails(distance, message, **options):
    with pytest.raises(AssertionError, match=message):
        check_distance(distance, **options)


class Doubled(torch.autograd.Function):
    """The identity, with twice its gradient."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Leaking(torch.autograd.Function):
    """The value, with a gradient that reaches all of x."""

    @staticmethod
    def forward(ctx, value, x):
        ctx.like = torch.zeros_like(x)
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, ctx.like + 1


def distance(change, **options):
    """DTW whose pairs go through change(value, x, y)."""

    class Changed(lw.Distance):
        symmetric = True

        def paired(self, x, y, x_lengths, y_lengths):
            return change(lw.DTW(**options).paired(x, y, x_lengths, y_lengths), x, y)

        def align(self, x, y):
            return lw.DTW(**options).align(x, y)

    return Changed()


def test_a_sound_distance_passes():
    check_distance(distance(lambda value, x, y: value))
    check_distance(distance(lambda value, x, y: value.round()), aligns=False, differentiable=False, channels=1)


def test_a_value_that_depends_on_the_batch():
    fails(distance(lambda value, x, y: value * len(x)), "pairs in a batch against single pairs: relative error")


def test_a_value_that_is_not_a_number():
    fails(distance(lambda value, x, y: value * torch.nan), "holds NaN")


def test_a_value_of_another_shape():
    fails(distance(lambda value, x, y: value[:, None]), r"pairs: shape \(5, 1\) instead of \(5,\)")


def test_a_matrix_that_differs_from_the_pairs():
    class Shifted(lw.DTW):
        def all_pairs(self, x, y, x_lengths, y_lengths):
            return super().all_pairs(x, y, x_lengths, y_lengths) + 1

    fails(Shifted(), "diagonal of the matrix against pairs")


def test_a_matrix_that_is_transposed():
    class Transposed(lw.DTW):
        def all_pairs(self, x, y, x_lengths, y_lengths):
            return super().all_pairs(x, y, x_lengths, y_lengths).T

    fails(Transposed(), "row of the matrix against pairs")


def test_a_distance_that_is_not_as_symmetric_as_it_says():
    fails(distance(lambda value, x, y: value, open_end=True), "matrix of x with itself")
    claimed = lw.DTW(open_end=True)
    claimed.symmetric = True
    fails(claimed, "symmetry")


def test_a_value_that_depends_on_the_padding():
    fails(distance(lambda value, x, y: value + 1e-12 * x.shape[1]), "the result depends on the padding")


def test_a_matrix_that_depends_on_the_padding():
    class Padded(lw.DTW):
        def all_pairs(self, x, y, x_lengths, y_lengths):
            return super().all_pairs(x, y, x_lengths, y_lengths) + 1e-12 * x.shape[1]

    fails(Padded(), "the matrix depends on the padding")


def test_a_gradient_in_the_padding():
    fails(distance(lambda value, x, y: Leaking.apply(value, x)), "the gradient is not zero in the padding")


def test_a_value_that_depends_on_the_layout_in_memory():
    fails(
        distance(lambda value, x, y: value + 1e-12 * (not x.is_contiguous())),
        "expanded input|input that is not contiguous",
    )


def test_another_dtype():
    fails(distance(lambda value, x, y: value.double()), "torch.float32 in, torch.float64 out")


def test_lost_digits():
    def coarse(value, x, y):
        return value.half().to(value.dtype) if x.dtype == torch.float32 else value

    fails(distance(coarse), "values in torch.float32: relative error .* allowed 1e-05")


def test_nan_that_is_not_refused():
    class Forgiving(lw.DTW):
        def paired(self, x, y, x_lengths, y_lengths):
            return super().paired(x.nan_to_num(), y.nan_to_num(), x_lengths, y_lengths)

    fails(Forgiving(), "NaN inside a sequence is not refused")


def test_a_refusal_that_does_not_say_where():
    class Curt(lw.DTW):
        def paired(self, x, y, x_lengths, y_lengths):
            try:
                return super().paired(x, y, x_lengths, y_lengths)
            except ValueError:
                raise ValueError("bad input") from None

    fails(Curt(), r"NaN inside a sequence: the message 'bad input' does not say 'x\[3\]'")


def test_shapes_that_are_guessed():
    class Guessing(lw.DTW):
        def forward(self, x, y):
            return super().forward(x[None, :, None] if isinstance(x, torch.Tensor) and x.ndim == 1 else x, y)

        def matrix(self, x, y=None, *, progress=False):
            return super().matrix(x, y, progress=progress)

    fails(Guessing(), "a tensor without batch and channel: the message .* does not say")


def test_changed_arguments():
    class Careless(lw.DTW):
        def paired(self, x, y, x_lengths, y_lengths):
            with torch.no_grad():
                y.mul_(2)
            return super().paired(x, y, x_lengths, y_lengths)

    fails(Careless(), r"\(\) changed an argument")


def test_arguments_changed_by_the_matrix_or_the_alignment():
    class Matrix(lw.DTW):
        def all_pairs(self, x, y, x_lengths, y_lengths):
            x.zero_()
            return super().all_pairs(x, y, x_lengths, y_lengths)

    class Align(lw.DTW):
        def align(self, x, y):
            x.lengths.fill_(1)
            return super().align(x, y)

    fails(Matrix(), ".matrix changed an argument")
    fails(Align(), ".align changed an argument")


def test_a_wrong_gradient():
    fails(distance(lambda value, x, y: Doubled.apply(value)), "wrong gradient of pairs: Jacobian mismatch")


def test_a_wrong_gradient_of_the_matrix():
    class Wrong(lw.DTW):
        def all_pairs(self, x, y, x_lengths, y_lengths):
            return Doubled.apply(super().all_pairs(x, y, x_lengths, y_lengths))

    fails(Wrong(), "wrong gradient of the matrix: Jacobian mismatch")


def aligned(**parts):
    """DTW whose alignment has other parts."""

    class Changed(lw.DTW):
        def align(self, x, y):
            whole = super().align(x, y)
            changed = type("ChangedAlignment", (PathAlignment,), {})
            alignment = changed.__new__(changed)
            alignment.__dict__.update(whole.__dict__)
            for name, change in parts.items():
                if name != "path":
                    alignment.__dict__[name] = change(getattr(whole, name))
            if "path" in parts:
                alignment.path = lambda b: parts["path"](whole.path(b))
            return alignment

    return Changed()


def test_an_alignment_that_is_changed_in_nothing_passes():
    check_distance(aligned(plan=torch.clone, path=torch.clone))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"value": lambda value: value + 1}, "value of the alignment"),
        ({"plan": lambda plan: plan[:, :2]}, "shape of the plan"),
        ({"plan": lambda plan: -plan}, "the plan is negative"),
        ({"plan": lambda plan: plan + 1}, "the plan is not zero in the padding of x"),
        ({"plan": lambda plan: plan.double()}, "torch.float32 in, a plan of torch.float64 out"),
        ({"path": lambda path: path.flip(0)}, "the path is not monotone"),
        ({"path": lambda path: path * 2}, "the path is not monotone"),
        ({"path": lambda path: path.repeat_interleave(2, 0)}, "the path stands still"),
        ({"path": lambda path: path + 1}, "the path leaves the sequences"),
        ({"path": lambda path: path - 1}, "the path leaves the sequences"),
        ({"path": lambda path: path[:0]}, "the path is empty"),
        ({"warp": lambda warp: warp[:, :1]}, "shape of the warp"),
    ],
)
def test_broken_alignments(parts, message):
    fails(aligned(**parts), message)


def test_empty_batches():
    fails(
        distance(lambda value, x, y: value if len(value) else value.new_zeros(1)),
        "an empty batch must return an empty result",
    )


def test_assert_close():
    one = torch.tensor([1.0])
    assert_close(one + 1e-6, one, 1e-5, "close")
    assert_close(torch.tensor([100.0, 1e-4]), torch.tensor([100.0, 0.0]), 1e-5, "relative to the largest")
    assert_close(torch.tensor([1e-7]), torch.zeros(1), 1e-5, "scaled", scale=1.0)
    assert_close(torch.empty(0, 3), torch.empty(0, 3), 0, "empty")
    for found, message in (
        (one * 1.1, "far: relative error 1.00e-01, allowed 1e-05"),
        (one * torch.nan, "far: holds NaN"),
        (one[None], r"far: shape \(1, 1\) instead of \(1,\)"),
    ):
        with pytest.raises(AssertionError, match=message):
            assert_close(found, one, 1e-5, "far")


def test_tolerances_are_those_that_were_agreed():
    assert TOLERANCE[torch.float64].value == 1e-10
    assert TOLERANCE[torch.float32].value == 1e-5


def operator(name, call, backward=None, fake=lambda x: torch.empty_like(x)):
    """Register likewise_testing::name, a function of one tensor."""
    op = torch.library.custom_op(f"likewise_testing::{name}", call, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(fake)
    if backward is not None:
        op.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    return getattr(torch.ops.likewise_testing, name).default


def cube_backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * 3 * x**2


X = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)


def op_fails(op, message, **options):
    with pytest.raises(AssertionError, match=message):
        check_op(op, (X,), **options)
    torch.compiler.reset()


def test_a_sound_operator_passes():
    check_op(operator("sound", lambda x: x**3, cube_backward), (X,), second_gradient=True)


def test_an_operator_that_changes_its_argument():
    def change(x):
        x.zero_()
        return x + 1

    op_fails(operator("changing", change, cube_backward), "opcheck: .*(mutat|modif)")


def test_an_operator_with_a_wrong_fake():
    op_fails(operator("fake", lambda x: x**3, cube_backward, lambda x: x.new_empty(7)), "opcheck: ")


def test_an_operator_that_leaves_memory_unwritten():
    def leave(x):
        out = torch.empty_like(x)
        return torch.where(out.isnan(), out, x**3)

    op_fails(operator("unwritten", leave, cube_backward), "an output is not written, or differs from run to run")


def test_an_operator_with_a_wrong_gradient():
    op_fails(
        operator("gradient", lambda x: x**3, lambda ctx, grad: 2 * cube_backward(ctx, grad)),
        "likewise_testing.gradient.default: wrong gradient: Jacobian mismatch",
    )


def test_an_operator_with_a_wrong_second_gradient():
    def detached(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x.detach() ** 2

    op = operator("second", lambda x: x**3, detached)
    check_op(op, (X,))
    op_fails(op, "wrong second gradient: ", second_gradient=True)
