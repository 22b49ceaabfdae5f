import math

import numpy as np
import pytest
import torch
from torch import nn

from likewise import Batch, FrameMLP, Metric, testing
from likewise.distances.dtw import DTW
from likewise.distances.gdtw import GDTW
from likewise.distances.warp import Warp, interpolate
from likewise.losses import AlongWarp
from likewise.ops.rules import STEPS, Window
from likewise.testing import assert_close


def walks(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).cumsum(1).to(dtype)


def related(count, m, n, channels=2, seed=0):
    """x (B, m, C), which is y at the squares of even times, and noise; and y (B, n, C)."""
    y = walks(count, n, channels, seed=seed)
    at = torch.linspace(0, 1, m, dtype=torch.float64).square().expand(count, -1)
    times = torch.linspace(0, 1, n, dtype=torch.float64).expand(count, -1)
    noise = 0.2 * walks(count, m, channels, seed=seed + 1).diff(dim=1, prepend=y[:, :1] * 0)
    return interpolate(times, y, at) + noise, y


CONTRACT = [
    {},
    {"reg": 1.0, "band": 0.3},
    {"reg": 0.01, "slope": (0.2, 3.0)},
    {"subsequence": True},
    {"subsequence": True, "slope": (0.1, 2.0)},  # 2 frames of y are an eighth of 9 of x
    {"band": 2},
    {"lower": 0.3},
    {"lower": 1, "upper": 0.5},
    {"ground": "absolute"},
    {"reg": 0},
    {"knots": 7},
    {"grid": 31, "refinements": 0},
    {"huber": 0.5},
    {"reg": nn.Parameter(torch.tensor(0.2)), "band": nn.Parameter(torch.tensor([0.2, 0.4]))},
]


@pytest.mark.parametrize("options", CONTRACT, ids=str)
def test_contract(options):
    # ``check_distance`` for sequences of at least two steps.
    distance, generator = GDTW(**options), torch.Generator().manual_seed(0)
    x = testing._sequences([5, 2, 2, 9, 4], 3, generator)
    y = testing._sequences([3, 6, 2, 2, 8], 3, generator)
    testing._check_arguments_kept(distance, x, y, True)
    testing._check_values(distance, x, y)
    testing._check_padding(distance, x, y, True)
    testing._check_dtypes(distance, x, y)
    testing._check_refusals(distance, x, y, any_width=False)
    testing._check_gradient(distance, x[:2], y[:2])
    testing._check_alignment(distance, x, y)
    empty = Batch(torch.empty(0, 4, 3, dtype=torch.float64))
    assert distance(empty, empty).shape == (0,)
    assert distance.matrix(empty, y).shape == (0, len(y))
    assert distance.warp(empty, empty).values.shape[0] == 0


def test_equal_signals_are_not_warped():
    x = walks(3, 20, 2)
    distance = GDTW(reg=0.1)
    assert distance(x, x).abs().max() < 1e-20
    assert_close(distance.warp(x, x).values, torch.linspace(0, 1, 20).expand(3, -1), 1e-7, "warp")


def test_a_large_reg_gives_the_straight_line():
    x, y = walks(2, 20, 1, seed=1), walks(2, 30, 1)
    straight = torch.linspace(0, 1, 20, dtype=torch.float64).expand(2, -1)
    assert_close(GDTW(reg=1e9).warp(x, y).values, straight, 1e-6, "warp")
    times_x, times_y = torch.linspace(-1, 1, 20), torch.linspace(3, 9, 30)
    found = GDTW(reg=1e9).warp(x, y, times_x, times_y).values
    assert_close(found, 3 + 3 * (times_x.double() + 1).expand(2, -1), 1e-6, "with times: y's duration by x's")
    found = GDTW(reg=1e9, subsequence=True).warp(x, y, times_x, times_y).values
    assert_close(found.diff(), times_x.double().diff().expand(2, -1), 1e-5, "of a subsequence: slope 1")


def test_a_known_warp_is_recovered():
    time = torch.linspace(0, 1, 200, dtype=torch.float64)
    signal = lambda t: torch.stack([torch.sin(9 * t), torch.cos(7 * t)], -1)  # noqa: E731
    phi = (time + 0.08 * torch.sin(2 * math.pi * time))[None]
    warp = GDTW(reg=1e-6).warp(signal(phi), signal(time)[None])
    assert (warp.values - phi).abs().max() < 2e-3
    assert (warp.inverse()(phi[0]) - time).abs().max() < 4e-3
    assert (warp.apply(signal(time)[None]) - signal(phi)).abs().max() < 1e-3


def test_a_subsequence_is_found():
    time = torch.linspace(0, 5, 251, dtype=torch.float64)
    y = torch.stack([torch.sin(time**2), time.cos()], -1)[None]
    x, times_x = y[:, 100:180], time[100:180] - time[100]
    warp = GDTW(reg=0.01, subsequence=True).warp(x, y, times_x, time)
    assert_close(warp.values, time[100:180][None], 1e-6, "warp")
    alignment = GDTW(reg=0.01, subsequence=True).align(x, y, times_x, time)
    assert alignment.path(0).tolist() == [[k, 100 + k] for k in range(80)]
    assert DTW(subsequence=True).align(x, y).path(0).tolist() == alignment.path(0).tolist()
    assert alignment.value < 1e-10


@pytest.mark.parametrize("noise", [0.3, 0.0])
def test_the_default_grid_finds_the_minimum_of_noisy_walks(noise):
    """The minimum is what a grid of 401 nodes finds; benchmarks/gdtw.py has the figures of 120 seeds."""
    pairs = [noisy_walks(seed, noise) for seed in range(40)]
    x, y = (torch.stack(each) for each in zip(*pairs, strict=True))
    for a, b in ((x, y), (y, x)):
        share = GDTW(reg=0.01)(a, b) / GDTW(reg=0.01, grid=401)(a, b)
        assert (share > 1.01).sum() <= 1
        assert share.max() < 1.1


def noisy_walks(seed, noise, steps=40):
    """A walk (T, 2), and the same at sorted random times, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((steps, 2)).cumsum(0)
    at = np.sort(rng.uniform(0, 1, steps))
    y = np.stack([np.interp(at, np.linspace(0, 1, steps), channel) for channel in x.T], 1)
    return torch.from_numpy(x), torch.from_numpy(y + noise * rng.standard_normal((steps, 2)))


def test_bands_and_slopes_are_kept():
    x, y = related(4, 30, 40)
    line = torch.linspace(0, 1, 30, dtype=torch.float64)
    values = GDTW(reg=1e-3, band=0.05).warp(x, y).values
    assert ((values - line).abs() <= 0.05 + 1e-12).all()
    assert ((values - line).abs() > 0.05 - 1e-12).any()
    widths = torch.tensor([0.02, 0.2, 0.02], dtype=torch.float64)
    values = GDTW(reg=1e-3, band=widths).warp(x, y).values
    width = torch.where(line < 0.5, 0.02 + 0.36 * line, 0.38 - 0.36 * line)
    assert ((values - line).abs() <= width + 1e-9).all()
    slopes = GDTW(reg=1e-3, slope=(0.5, 2.0)).warp(x, y).values.diff() * 29
    assert slopes.min() == pytest.approx(0.5, abs=1e-9)
    assert slopes.max() <= 2 + 1e-9
    each = torch.tensor([[0.01], [0.1], [0.2], [0.3]])
    apart = (GDTW(reg=1e-3, band=each).warp(x, y).values - line).abs().amax(1)
    assert (apart <= each[:, 0] + 1e-6).all()


def test_each_pair_has_its_own_reg():
    x, y = related(3, 10, 12)
    regs = torch.tensor([0.01, 0.1, 1.0])
    found = GDTW(reg=regs)(x, y)
    assert torch.equal(
        found, torch.stack([GDTW(reg=reg.item())(x[b : b + 1], y[b : b + 1])[0] for b, reg in enumerate(regs)])
    )
    with pytest.raises(ValueError, match="GDTW: reg is given for 3 pairs, but there are 9; pass one value for all"):
        GDTW(reg=regs).matrix(x, y)


def test_knots_are_spread_over_x():
    x, y = related(2, 33, 40)
    warp = GDTW(reg=0.01, knots=9).warp(x, y)
    assert_close(warp.times, torch.linspace(0, 1, 9).expand(2, -1), 1e-7, "knots")
    assert_close(warp.values, GDTW(reg=0.01).warp(x[:, ::4], y).values, 1e-12, "x at the knots")


def test_float32_agrees_with_float64():
    x, y = related(5, 40, 50)
    x, y = x.float(), y.float()
    for options in ({}, {"subsequence": True, "slope": (0.5, 2.0)}, {"huber": 0.3}):
        distance = GDTW(reg=0.05, **options)
        a, b = y.clone().requires_grad_(), y.double().requires_grad_()
        warps = distance.warp(x, a), distance.warp(x.double(), b)
        assert warps[0].values.dtype == torch.float32
        assert_close(warps[0].values, warps[1].values, 1e-6, "warp")
        grads = [torch.autograd.grad((w.values**2).sum(), z)[0] for w, z in zip(warps, (a, b), strict=True)]
        assert grads[0].dtype == torch.float32
        assert_close(grads[0], grads[1], 1e-5, "gradient")


def test_the_order_of_a_batch_changes_nothing():
    x, y = related(6, 15, 20)
    x, y = Batch(x, [15, 15, 2, 7, 3, 9]), Batch(y, [20, 3, 9, 2, 20, 11])
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    whole, mixed = GDTW().warp(x, y), GDTW().warp(x[order], y[order])
    assert torch.equal(whole.values[order].nan_to_num(-1), mixed.values.nan_to_num(-1))
    assert whole.values[2, 2:].isnan().all()
    assert torch.equal(whole.lengths, x.lengths)


@pytest.mark.parametrize(("m", "n"), [(12, 12), (9, 14), (14, 9)])
@pytest.mark.parametrize("band", [0, 1, 3])
def test_a_band_in_steps_is_the_corridor_of_dtw(band, m, n):
    x, y = walks(6, m, 2, seed=3), walks(6, n, 2, seed=4)  # not related: warps press against the band
    warp = GDTW(reg=1e-4, band=band).align(x, y).warp
    rows = [Window(STEPS, band).row(m, n, i) for i in range(m)]
    low, high = (torch.tensor(side, dtype=torch.float64) for side in zip(*rows, strict=True))
    assert (warp >= low - 1e-9).all()
    assert (warp <= high + 1e-9).all()
    free = GDTW(reg=1e-4).align(x, y).warp
    assert ((free < low - 0.5) | (free > high + 0.5)).any(), "the band has something to hold"
    # Uneven times change when frames are, not which ones they are.
    times_x, times_y = (torch.linspace(0, 1, k).double() ** 2 + 1 for k in (m, n))
    warp = GDTW(reg=1e-4, band=band).align(x, y, times_x, times_y).warp
    assert (warp >= low - 1e-6).all()
    assert (warp <= high + 1e-6).all()


def test_sides_of_the_band_apart():
    x, y = walks(6, 30, 2, seed=3), walks(6, 30, 2, seed=4)
    line = torch.linspace(0, 1, 30, dtype=torch.float64)
    below = GDTW(reg=1e-4, lower=0.1).warp(x, y).values - line
    assert below.min() == pytest.approx(-0.1, abs=1e-9)
    assert below.max() > 0.15
    above = GDTW(reg=1e-4, upper=2).align(x, y).warp - torch.arange(30)
    assert above.max() == pytest.approx(2, abs=1e-9)
    assert above.min() < -3
    both = GDTW(reg=1e-4, lower=0.1, upper=0.1).warp(x, y).values
    assert torch.equal(both, GDTW(reg=1e-4, band=0.1).warp(x, y).values)


def test_without_reg_the_losses_alone_decide():
    x, y = related(4, 30, 40)
    value, warp = GDTW(reg=0)(x, y), GDTW(reg=0).warp(x, y)
    assert (warp.values.diff() >= -1e-12).all()
    assert_close(value.mean(), AlongWarp()(warp.apply(y), x), 1e-7, "the value is the losses'")
    for reg in (1e-6, 1e-3):
        assert (value <= GDTW(reg=reg)(x, y) * (1 + 1e-9)).all()
    # Nothing is gained by more freedom: every frame's nearest point of y is a bound from below.
    nearest = torch.cdist(x, interpolate(line_of(40), y, line_of(4000))).min(2).values.square()
    weights = torch.full((30,), 1 / 29).double()
    weights[[0, -1]] /= 2
    assert (value >= nearest @ weights).all()
    assert (1e6 * GDTW(reg=0)(1e-3 * x, 1e-3 * y) - value).abs().max() < 1e-7, "whatever the unit"


def line_of(steps):
    return torch.linspace(0, 1, steps, dtype=torch.float64).expand(4, -1)


def test_the_absolute_cost():
    time = torch.linspace(0, 1, 60, dtype=torch.float64)
    signal = lambda t: torch.stack([torch.sin(9 * t), torch.cos(7 * t)], -1)[None]  # noqa: E731
    x, y = signal(time**1.4), signal(time)
    x[:, 20] += 5  # an outlier bends the squared cost's warp
    errors = {g: (GDTW(1e-3, ground=g).warp(x, y).values - time**1.4).abs().max() for g in ("absolute", "sqeuclidean")}
    assert errors["absolute"] < 0.02 < errors["sqeuclidean"]
    distance = GDTW(1e-3, ground="absolute")
    value, warp = distance(x, y), distance.warp(x, y)
    residuals = (warp.apply(y) - x).abs().sum(2)
    bends = (warp.values.diff() * 59 - 1).square().mean(1)
    assert_close(value, torch.trapezoid(residuals, time) + 1e-3 * bends, 1e-9, "the value is the objective")
    for _ in range(5):  # no warp nearby is better
        other = (warp.values + 0.01 * torch.randn(1, 60).double().cumsum(1) * time * (1 - time)).cummax(1).values
        other = other.clamp(0, 1)
        cost = torch.trapezoid((Warp(warp.times, other).apply(y) - x).abs().sum(2), time)
        assert value <= cost + 1e-3 * (other.diff() * 59 - 1).square().mean(1)


def test_a_subsequence_without_times_favours_no_pace():
    """Frames of x and y are equally far apart: a piece of y is found as it is, however long y is."""
    y = walks(1, 200, 2, seed=2)
    for first in (0, 60, 150):
        x = y[:, first : first + 50]
        for reg in (0.01, 10.0):
            alignment = GDTW(reg=reg, subsequence=True).align(x, y)
            assert_close(alignment.warp, torch.arange(first, first + 50.0)[None], 1e-9, "warp")
            assert alignment.value < 1e-15
    padded = Batch(torch.nn.functional.pad(x, (0, 0, 0, 9)), [50])
    assert_close(GDTW(subsequence=True).align(padded, y).warp[:, :50], torch.arange(150, 200.0)[None], 1e-9, "padded")
    # Given one's times, the other's frames are as far apart.
    found = GDTW(subsequence=True).warp(x, y, times_x=2 * torch.arange(50.0))
    assert_close(found.values, 2 * torch.arange(150, 200.0)[None], 1e-9, "in x's unit")
    found = GDTW(subsequence=True).warp(x, y, times_y=2 * torch.arange(200.0))
    assert_close(found.times, 2 * torch.arange(50.0)[None], 1e-9, "in y's unit")


def test_everything_can_be_learned():
    x, y = related(2, 15, 20)
    reg, band = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.tensor([0.1, 0.05, 0.1]))
    slope = nn.Parameter(torch.tensor(0.6)), nn.Parameter(torch.tensor([2.0, 1.5]))
    distance = GDTW(reg=reg, band=band, slope=slope)
    learned = {"raw_reg", "raw_band", "raw_slope_min", "raw_slope_max"}
    assert {name for name, _ in distance.named_parameters()} == learned
    target = torch.linspace(0, 1, 15)
    for loss in ((distance.warp(x, y).values - target).square().sum(), distance(x, y).sum()):
        grads = torch.autograd.grad(loss, list(distance.parameters()))
        assert all(grad.isfinite().all() and grad.abs().sum() > 0 for grad in grads)
    assert set(distance.state_dict()) == learned
    for name, given in (("reg", reg), ("band", band), ("slope_min", slope[0]), ("slope_max", slope[1])):
        assert_close(getattr(distance, name), given, 1e-6, f"{name} begins where it was told to")


def test_what_is_learned_stays_in_its_range():
    x, y = related(2, 15, 20)
    for sides in ({"band": nn.Parameter(torch.tensor([0.1, 0.3]))},
                  {"lower": nn.Parameter(torch.tensor(0.1)), "upper": nn.Parameter(torch.tensor(0.3))}):  # fmt: skip
        slope = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor([2.0, 1.5]))
        distance = GDTW(nn.Parameter(torch.tensor(0.1)), slope=slope, **sides)
        for sign in (1, -1, -1, 1):
            for parameter in distance.parameters():
                parameter.data += sign * 1e4  # as after a step that is much too large
            assert distance.reg > 0
            assert 0 <= distance.slope_min <= 1
            assert (distance.slope_max >= 1).all()
            assert all(((getattr(distance, name) >= 0) & (getattr(distance, name) <= 1)).all() for name in sides)
            assert distance(x, y).isfinite().all()
    given = torch.tensor(0.2, requires_grad=True)  # the caller's tensor is used unchanged
    (grad,) = torch.autograd.grad(GDTW(given)(x, y).sum(), given)
    assert grad > 0


@pytest.mark.parametrize("name", ["reg", "band", "slope_min", "slope_max"])
def test_gradients_of_the_settings(name):
    x, y = related(3, 15, 20, seed=4)

    def values(setting):
        given = {"reg": torch.tensor(0.01), "band": torch.tensor([0.1, 0.05, 0.1])}
        given |= {"slope_min": torch.tensor(0.6), "slope_max": torch.tensor([2.0, 1.5])} | {name: setting}
        slope = given.pop("slope_min"), given.pop("slope_max")
        distance = GDTW(slope=slope, **given)
        return distance(x, y), distance.warp(x, y).values

    start = {"reg": 0.01, "band": [0.1, 0.05, 0.1], "slope_min": 0.6, "slope_max": [2.0, 1.5]}[name]
    setting = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(values, setting)


def test_settings_that_are_tensors_are_saved(tmp_path):
    reg, band = nn.Parameter(torch.tensor(0.3, dtype=torch.float64)), nn.Parameter(torch.tensor([0.1, 0.2, 0.4]))
    slope = torch.tensor([[0.5, 0.2]])  # a buffer moves with the module and is not learned
    metric = Metric(FrameMLP(2, 4), GDTW(reg, band=band, slope=(slope, 3.0), subsequence=True))
    x, y = torch.randn(2, 2, 9, 2, generator=torch.Generator().manual_seed(0))
    metric.save(tmp_path)
    found = Metric.load(tmp_path)
    assert torch.equal(found(x, y), metric.eval()(x, y))
    assert isinstance(found.distance, GDTW)
    assert isinstance(found.distance.raw_reg, nn.Parameter)
    assert found.distance.reg.dtype == torch.float64
    assert torch.equal(found.distance.band, metric.distance.band)
    assert_close(found.distance.band, band, 1e-6, "band")
    assert torch.equal(found.distance.slope_min, slope)
    assert not isinstance(found.distance.slope_min, nn.Parameter)
    assert found.distance.slope_max == 3.0
    assert '"tensor": [' in (tmp_path / "config.json").read_text()


def test_a_tensor_outside_of_the_state_is_not_saved(tmp_path):
    class Forgetful(GDTW):
        def config(self):
            return super().config() | {"reg": torch.tensor(0.1)}

    with pytest.raises(
        TypeError, match=r"Forgetful.reg: a file cannot hold a tensor that is not part of the module's state"
    ):
        Metric(None, Forgetful()).save(tmp_path)
    Metric(None, GDTW(torch.tensor(0.1))).save(tmp_path)
    text = (tmp_path / "config.json").read_text()
    for shape in ("[-1]", "3", "[4096, 4097]", "[true]"):
        (tmp_path / "config.json").write_text(text.replace('"tensor": []', f'"tensor": {shape}'))
        with pytest.raises(ValueError, match=r"GDTW.reg: expected the shape of a tensor, got "):
            Metric.load(tmp_path)
    (tmp_path / "config.json").write_text(text.replace('"tensor": []', '"tensor": [2]'))
    with pytest.raises(ValueError, match=r"distance.reg has shape \(\), but the model's has \(2,\)"):
        Metric.load(tmp_path)


def test_the_second_derivative_is_refused():
    x, y = related(1, 6, 8)
    x.requires_grad_()
    (grad,) = torch.autograd.grad(GDTW().warp(x, y).values.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="gdtw: the second derivative is not implemented"):
        grad.sum().backward()


def test_a_warp_is_a_function():
    times = torch.tensor([[0.0, 1.0, 3.0], [0.0, 2.0, 9.0]])
    values = torch.tensor([[0.0, 0.0, 4.0], [1.0, 5.0, 9.0]], requires_grad=True)
    warp = Warp(times, values, torch.tensor([3, 2]))
    assert warp(torch.tensor([-1.0, 0.5, 2.0, 8.0])).tolist() == [[0, 0, 2, 4], [1, 2, 5, 5]]
    assert warp(torch.tensor([[2.0], [1.0]])).tolist() == [[2.0], [3.0]]
    assert warp.inverse()(torch.tensor([0.0, 2.0])).tolist() == [[1, 2], [0, 0.5]]  # the flat part's end
    warp(torch.tensor([2.0])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [[0, 0.5, 0.5], [0, 1, 0]]
    assert repr(warp) == "Warp(2 functions, 3 knots)"
    with pytest.raises(ValueError, match="got times for 3 warps, but there are 2"):
        warp(torch.zeros(3, 1))
    with pytest.raises(ValueError, match=r"one shape \(B, M\), got \(2, 3\), \(2, 2\)"):
        Warp(times, values[:, :2])


def test_the_inverse_is_differentiable():
    values = torch.tensor([[0.0, 0.3, 0.7, 1.0]], dtype=torch.float64, requires_grad=True)
    times = torch.linspace(0, 1, 4, dtype=torch.float64)[None]
    at = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda v: Warp(times, v).inverse()(at), values)


def test_the_plan_is_the_derivative_of_the_cost():
    # |x - y(phi)|^2 is linear in the costs between frames, less a term without x: w times the plan is its derivative.
    x, y = related(2, 7, 9)
    alignment = GDTW(reg=0.1).align(x, y)
    weights = torch.full((7,), 1 / 6, dtype=torch.float64)
    weights[[0, -1]] /= 2
    inside = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(GDTW(reg=0.1)(inside, y).sum(), inside)
    matched = alignment.plan @ y
    assert_close(grad, 2 * weights[:, None] * (x - matched), 1e-10, "gradient")
    assert_close(alignment.plan.sum(2), torch.ones(2, 7), 1e-12, "rows of the plan")


def test_the_alignments_warp_is_in_frames_of_y():
    x = torch.linspace(0, 1, 5, dtype=torch.float64)[None, :, None]
    y = x[:, ::2]
    alignment = GDTW(reg=1e-3).align(x, y)
    assert_close(alignment.warp, torch.tensor([[0, 0.5, 1, 1.5, 2]]), 1e-9, "warp")
    # All warps go from x to y: the distance's, in time, the alignment's and DTW's, in frames.
    assert_close(alignment.warp, 2 * GDTW(reg=1e-3).warp(x, y).values, 1e-9, "warp in time")
    assert (alignment.warp - DTW().align(x, y).warp).abs().max() <= 0.5


def test_repr():
    assert repr(GDTW()) == "GDTW(reg=0.1)"
    distance = GDTW(nn.Parameter(torch.tensor(0.1)), band=0.2, slope=(0.5, 2), subsequence=True, huber=1)
    assert repr(distance) == (
        "GDTW(reg='learned', band=0.2, slope_min=0.5, slope_max=2.0, subsequence=True, huber=1.0)"
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reg": -1.0}, ValueError, "reg must be 0 or more, got -1.0"),
        ({"reg": "1"}, TypeError, "expected reg to be a number, got str"),
        ({"reg": torch.ones(2, 2)}, ValueError, r"expected reg of shape \(\) or \(B,\), got \(2, 2\)"),
        (
            {"band": -0.1},
            ValueError,
            "band must be a whole number of steps, 0 or more, or a fraction from 0.0 to 1.0, g",
        ),
        (
            {"band": -1},
            ValueError,
            "band must be a whole number of steps, 0 or more, or a fraction from 0.0 to 1.0, got",
        ),
        ({"upper": 2.0}, ValueError, "upper must be a whole number of steps, 0 or more, or a fraction from 0.0 to 1.0"),
        ({"band": 3, "lower": 2}, ValueError, "give band, or lower and upper, not both"),
        (
            {"band": nn.Parameter(torch.tensor(1.5))},
            ValueError,
            "band is learned from 0 to 1, but its initial value is 1.5",
        ),
        (
            {"slope": (0.5, nn.Parameter(torch.tensor(0.5)))},
            ValueError,
            "slope_max is learned above 1, but its initial value is",
        ),
        ({"ground": "cosine"}, ValueError, 'ground must be "sqeuclidean" or "absolute", got \'cosine\''),
        ({"ground": "absolute", "huber": 1.0}, ValueError, 'give huber or ground="absolute", not both'),
        ({"band": torch.ones(1, 1, 1)}, ValueError, r"expected band of shape \(\), \(K,\) or \(B, K\)"),
        ({"slope": 2.0}, ValueError, r"expected slope to be a pair \(least, greatest\), got 2.0"),
        ({"slope": (-1.0, 2.0)}, ValueError, "slope_min must not be negative, got -1.0"),
        ({"knots": 1}, ValueError, "knots must be a whole number of 2 or more, got 1"),
        ({"grid": 0.5}, ValueError, "grid must be a whole number of 3 or more, got 0.5"),
        ({"huber": 0}, ValueError, "huber must be positive and finite, got 0"),
    ],
)
def test_bad_settings_are_refused(options, error, message):
    with pytest.raises(error, match=f"GDTW: {message}"):
        GDTW(**options)


def at(*times):
    return torch.tensor(times, dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "times", "message"),
    [
        ({"reg": torch.tensor([0.1, -1.0])}, {}, "gdtw: reg must be positive and finite, got -1 for pair 1"),
        ({"slope": (0.0, 0.5)}, {}, "gdtw: no warp of pair 0 keeps to the band and the slopes: none passes knot"),
        ({"slope": (2.0, 1.0)}, {}, r"gdtw: slopes must be 0 <= min <= max, got \(2, 1\) after knot 0 of pair 0"),
        ({"band": torch.tensor([[0.1], [-0.1]])}, {}, "gdtw: the band of pair 1 is empty at knot 0: from 0.1 to -0.1"),
        ({}, {"times_y": at(0, 2, 1, 3)}, r"gdtw: times_y\[0\] must be finite and increasing, but step 2 is 1"),
        ({}, {"times_x": at(0, 1, 1)}, r"gdtw: times_x\[0\] must be finite and increasing, but step 2 is 1"),
        ({"knots": 5}, {"times_x": at(0, 1, 1)}, r"gdtw: times_x\[0\] must be finite and increasing, but step 2 is 1"),
        ({}, {"times_x": at(0, math.nan, 1)}, r"gdtw: times_x\[0\] must be finite and increasing, but step 1 is nan"),
        ({}, {"times_y": at(0, 1, 2)}, r"GDTW: expected times_y of shape \(2, 4\), got \(2, 3\)"),
        ({}, {"times_y": [at(0, 1, 2, 3), at(0, 1)]}, r"GDTW: expected times_y\[1\] of shape \(4,\), got \(2,\)"),
        (
            {},
            {"times_x": at(0, 1, 2).requires_grad_()},
            "gdtw: there is no derivative with respect to times_x; detach it",
        ),
    ],
    ids=str,
)
def test_what_admits_no_warp_is_refused(options, times, message):
    x, y = walks(2, 3, 1, seed=1), walks(2, 4, 1)
    with pytest.raises(ValueError, match=message):
        GDTW(**options).warp(x, y, **times)


def test_short_sequences_and_nan_are_refused():
    x, y = Batch(walks(2, 3, 1), [2, 3]), Batch(walks(2, 4, 1), [4, 1])
    for options in ({}, {"knots": 4}):
        with pytest.raises(ValueError, match=r"gdtw: y\[1\] has 1 step; a warp needs at least two"):
            GDTW(**options)(x, y)
        with pytest.raises(ValueError, match=r"gdtw: x\[1\] has 1 step; a warp needs at least two"):
            GDTW(**options)(y, x)
        broken = x.values.clone()
        broken[1, 2, 0] = math.nan
        with pytest.raises(ValueError, match=r"gdtw: x\[1\] holds nan at step 2, channel 0"):
            GDTW(**options)(Batch(broken, x.lengths), x)


def test_times_in_every_form():
    x, y = walks(2, 4, 1), walks(2, 3, 1, seed=1)
    times = at(0, 1, 3, 4)
    expected = GDTW()(x, y, times, at(0, 1, 2))
    for given in (times.numpy(), times.tolist(), times.expand(2, -1), [times, times], np.stack([times, times])):
        assert torch.equal(GDTW()(x, y, given, at(0, 1, 2)), expected)
    short = Batch(x, [4, 2])
    ragged = GDTW().warp(short, y, [times, at(0, 5)], at(0, 1, 2)).values
    padded = torch.stack([times, at(0, 5, math.nan, math.nan)])
    assert torch.equal(GDTW().warp(short, y, padded, at(0, 1, 2)).values.nan_to_num(-1), ragged.nan_to_num(-1))
