"""Costs along the true path, in plain loops."""

import pytest
import torch

import likewise as lw
from likewise import losses


def path_problem(seed=0):
    generator = torch.Generator().manual_seed(seed)
    cost = torch.rand(3, 4, 6, generator=generator, dtype=torch.float64)
    rows, columns = torch.randint(0, 4, (3, 5), generator=generator), torch.randint(0, 6, (3, 5), generator=generator)
    return cost, torch.stack([rows, columns], 2), torch.tensor([5, 1, 3])


def test_path_in_loops():
    cost, path, lengths = path_problem()
    expected = []
    for b, length in enumerate(lengths.tolist()):
        cells = path[b, :length].tolist()
        expected.append(sum(cost[b, i, j].item() for i, j in cells) / length)
    assert losses.AlongPath()(cost, path, lengths).item() == pytest.approx(sum(expected) / 3)
    assert losses.AlongPath(reduction="sum")(cost, path, lengths).item() == pytest.approx(sum(expected))


def test_path_derivatives_and_padding():
    cost, path, lengths = path_problem(1)
    wild = path.clone()
    wild[torch.arange(5) >= lengths[:, None]] = -7
    assert torch.equal(losses.AlongPath()(cost, wild, lengths), losses.AlongPath()(cost, path, lengths))
    cost.requires_grad_()
    assert torch.autograd.gradcheck(lambda cost: losses.AlongPath()(cost, wild, lengths), (cost,))


def test_the_best_path_of_dtw_costs_its_value_by_its_steps():
    x, y = torch.randn(1, 5, 2), torch.randn(1, 7, 2)
    alignment = lw.DTW().align(x, y)
    path = alignment.path(0)
    found = losses.AlongPath()(torch.cdist(x, y).square(), path[None])
    assert found.item() == pytest.approx(alignment.value.item() / len(path), rel=1e-5)


@pytest.mark.parametrize("timed", ["none", "one", "each"])
def test_warp_in_loops(timed):
    generator = torch.Generator().manual_seed(2)
    warped, x = (torch.randn(3, 5, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    times = torch.rand(3, 5, generator=generator, dtype=torch.float64).cumsum(1)
    lengths = torch.tensor([5, 2, 4])
    expected = 0.0
    for b, length in enumerate(lengths.tolist()):
        at = {"none": torch.linspace(0, 1, length), "one": times[0], "each": times[b]}[timed]
        squares = [((warped[b, k] - x[b, k]) ** 2).sum().item() for k in range(length)]
        for k in range(length - 1):
            expected += (at[k + 1] - at[k]).item() * (squares[k] + squares[k + 1]) / 2 / 3
    given = {"none": None, "one": times[0], "each": times}[timed]
    assert losses.AlongWarp()(warped, x, given, lengths).item() == pytest.approx(expected, rel=1e-6)


def test_warp_is_the_objective_of_gdtw_at_the_truth():
    x, y = torch.randn(2, 8, 3, dtype=torch.float64), torch.randn(2, 6, 3, dtype=torch.float64)
    value, warp = lw.GDTW(reg=1e-9)(x, y), lw.GDTW(reg=1e-9).warp(x, y)
    found = losses.AlongWarp()(warp.apply(y), x)
    assert found.item() == pytest.approx(value.mean().item(), rel=1e-5)


def test_warp_derivatives_and_padding():
    warped, x = (torch.randn(2, 4, 2, dtype=torch.float64) for _ in range(2))
    times, lengths = torch.rand(2, 4, dtype=torch.float64).cumsum(1), torch.tensor([4, 2])
    expected = losses.AlongWarp()(warped, x, times, lengths)
    padding = torch.arange(4) >= lengths[:, None]
    warped, x = (value.masked_fill(padding[..., None], torch.nan).requires_grad_() for value in (warped, x))
    times = times.masked_fill(padding, torch.nan)
    value = losses.AlongWarp()(warped, x, times, lengths)
    value.backward()
    assert torch.equal(value, expected)
    assert warped.grad.isfinite().all()
    assert (x.grad[padding] == 0).all()
    warped, x = (torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: losses.AlongWarp()(a, b, times, lengths), (warped, x))


def test_no_pairs():
    cost = torch.zeros(0, 2, 3, requires_grad=True)
    losses.AlongPath()(cost, torch.zeros(0, 1, 2, dtype=torch.int64)).backward()
    losses.AlongWarp()(cost, torch.zeros(0, 2, 3)).backward()


def test_bad_input_is_refused():
    cost, path, _ = path_problem()
    with pytest.raises(TypeError, match="AlongPath: expected path to be an int64 tensor, got"):
        losses.AlongPath()(cost, path.float())
    with pytest.raises(ValueError, match=r"AlongPath: expected path of shape \(3, K, 2\), K at least 1, got \(3, 5\)"):
        losses.AlongPath()(cost, path[..., 0])
    path[1, 2] = torch.tensor([1, 6])
    with pytest.raises(ValueError, match=r"AlongPath: path\[1, 2\] is \(1, 6\), outside 4 x 6"):
        losses.AlongPath()(cost, path)
    with pytest.raises(ValueError, match=r"AlongWarp: warped is \(3, 4, 6\), but x is \(2, 4, 6\)"):
        losses.AlongWarp()(cost, cost[:2])
    with pytest.raises(ValueError, match=r"AlongWarp: times\[0\] do not increase"):
        losses.AlongWarp()(cost, cost, torch.zeros(4))
    with pytest.raises(ValueError, match=r"AlongWarp: expected times of shape \(3, 4\) or \(4,\), got \(6,\)"):
        losses.AlongWarp()(cost, cost, torch.zeros(6))
    with pytest.raises(ValueError, match="AlongWarp: expected warped with two steps or more"):
        losses.AlongWarp()(cost[:, :1], cost[:, :1])
