import warnings

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.clusters import LBFGS, MajorizeMinimize, Subgradient

with warnings.catch_warnings(action="ignore"):  # tslearn warns that it could read more kinds of files
    from tslearn.barycenters import dtw_barycenter_averaging, softdtw_barycenter

MM = MajorizeMinimize(max_iter=8, tol=0)


def walks(count=12, steps=15, channels=1, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, steps, channels, generator=generator, dtype=dtype).cumsum(1)


def uneven(fill=torch.nan, channels=2):
    values = walks(9, 14, channels)
    batch = lw.Batch(values, [14, 9, 12, 5, 14, 7, 11, 3, 8])
    values[~batch.mask] = fill
    return batch


def by_loops(distance, items, weights, z, rounds):
    """DBA as in the paper."""
    for _ in range(rounds):
        sums, counts = torch.zeros_like(z), torch.zeros(len(z), 1, dtype=z.dtype)
        for item, weight in zip(items, weights, strict=True):
            for i, j in distance.align(z[None], item[None]).path(0).tolist():
                sums[i] += weight * item[j]
                counts[i] += weight
        z = sums / counts
    return z


def cost(distance, z, items, weights=None):
    found = torch.stack([distance(z[None], item[None])[0] for item in items]).double()
    weights = torch.ones(len(items)) if weights is None else torch.as_tensor(weights)
    return float((found * weights).sum() / weights.sum())


@pytest.mark.parametrize(
    "distance", [lw.DTW(), lw.DTW(band=2), lw.DTW(itakura=2.0), lw.DTW(subsequence=True)], ids=repr
)
def test_dba_equals_plain_loops(distance):
    x, weights = uneven(), torch.linspace(0.5, 2, 9, dtype=torch.float64)
    start = walks(1, 10, 2, seed=3)[0]
    found = lw.barycenter(distance, x, weights, start, solver=MM)
    expected = by_loops(distance, x.to_list(), weights, start, 8)
    if bool(found.iterations[0] == 8):
        torch.testing.assert_close(found.sequence, expected)
    assert found.cost <= cost(distance, expected, x.to_list(), weights) + 1e-9
    assert found.cost == pytest.approx(cost(distance, found.sequence, x.to_list(), weights))


@pytest.mark.parametrize("distance", [lw.MSM(), lw.SBD()], ids=repr)
def test_channels_that_are_aligned_by_themselves(distance):
    x = walks(10, 16, 2)
    found = lw.barycenter(distance, x)
    each = [lw.barycenter(distance, x[..., c : c + 1], init=found.sequence[:, c : c + 1]).cost for c in range(2)]
    assert found.cost <= found.history[0]
    assert found.cost == pytest.approx(sum(each) if isinstance(distance, lw.MSM) else sum(each) / 2, rel=0.02)
    labels = lw.sklearn.KMeans(distance, 3).fit(x).labels_
    assert set(labels.tolist()) == {0, 1, 2}
    with pytest.raises(ValueError, match="aligns each channel by itself; use LBFGS"):
        lw.barycenter(distance, x, solver=MM)


def test_by_hand():
    # z = [0, 2]. [0, 4] matches as it is; [0, 0, 2] gives both zeros to the first frame.
    found = lw.barycenter(lw.DTW(), [[0.0, 4.0], [0.0, 0.0, 2.0]], init=[0.0, 2.0], solver=MajorizeMinimize(1))
    assert found.sequence.flatten().tolist() == [0.0, 3.0]
    assert found.history.flatten().tolist() == [2.0, 1.0]  # (4 + 0) / 2, then (1 + 1) / 2
    assert found.cost == 1.0


def test_equal_to_tslearns_dba_and_not_worse_when_it_goes_on():
    x = walks(20, 30)
    theirs = dtw_barycenter_averaging(x.numpy(), max_iter=5, tol=0)
    ours = lw.barycenter(lw.DTW(), x, solver=MajorizeMinimize(5, tol=0))
    np.testing.assert_allclose(ours.sequence, theirs, atol=1e-9)
    assert lw.barycenter(lw.DTW(), x).cost <= ours.cost


def warped(count=20, steps=40, seed=0):
    """One shape, at other speeds, with noise."""
    generator = torch.Generator().manual_seed(seed)
    speed = torch.rand(count, 1, generator=generator, dtype=torch.float64) * 1.5 + 0.5
    shape = torch.sin(9 * torch.linspace(0, 1, steps, dtype=torch.float64) ** speed)
    return (shape + 0.1 * torch.randn(count, steps, generator=generator, dtype=torch.float64))[..., None]


def test_not_worse_than_aeon():
    from aeon.clustering.averaging import kasba_average

    x = warped()
    theirs = kasba_average(x.transpose(1, 2).numpy(), distance="dtw", random_state=0)
    for solver in (MajorizeMinimize(), LBFGS()):
        assert lw.barycenter(lw.DTW(), x, solver=solver).cost <= cost(lw.DTW(), torch.from_numpy(theirs).T, x)


@pytest.mark.parametrize("kind", [lw.SoftDTW, lw.SoftDTWDivergence])
def test_soft_dtw_is_not_worse_than_tslearns(kind):
    x, distance = warped(10, 20), kind(0.1)
    found = lw.barycenter(distance, x, solver=LBFGS(200, tol=1e-9))
    assert found.converged.all()
    assert found.cost == pytest.approx(cost(distance, found.sequence, x))
    if kind is lw.SoftDTW:
        theirs = torch.from_numpy(softdtw_barycenter(x.numpy(), gamma=0.1))
        assert found.cost <= cost(distance, theirs, x)
    moved = found.sequence.clone().requires_grad_()
    distance(moved.expand(10, -1, -1), x).mean().backward()
    assert moved.grad.abs().max() < 1e-3, "a minimum"


DISTANCES = [
    lw.DTW(),
    lw.DTW(ground="euclidean"),
    lw.DTW(ground="cosine"),
    lw.DTW(normalize="lengths", band=0.3),
    lw.DTW(normalize="steps"),
    lw.DTW(ground=lambda x, y: torch.cdist(x, y, p=1)),
    lw.SoftDTW(0.5),
    lw.SoftDTWDivergence(0.5),
    lw.GDTW(),
    lw.Euclidean(),
    lw.Euclidean(squared=True),
    lw.Cosine(),
    lw.Sinkhorn(),
]


@pytest.mark.parametrize("distance", DISTANCES, ids=lambda d: repr(d).replace("\n", ""))
def test_the_cost_never_rises_and_is_what_is_said(distance):
    x, weights = uneven(), torch.linspace(1, 2, 9)
    solver = LBFGS(8) if isinstance(distance, (lw.SoftDTW, lw.Cosine, lw.Sinkhorn)) else MajorizeMinimize(12)
    if distance.__class__ is lw.DTW and not isinstance(distance.ground, type(lw.DTW().ground)):
        solver = None
    found = lw.barycenter(distance, x, weights, solver=solver, length=8)
    history = found.history[:, 0]
    assert (history[1:] <= history[:-1]).all()
    assert history[-1] < history[0] or isinstance(distance, lw.Euclidean)
    assert found.sequences.values.isfinite().all()
    assert found.cost == pytest.approx(cost(distance, found.sequence, x.to_list(), weights), rel=1e-6)
    assert found.sequence.shape == (8, 2)


@pytest.mark.parametrize("name", ["MSM", "TWE", "ADTW", "WDTW", "ERP", "EDR", "LCSS"])
def test_elastic_distances(name):
    x, distance = warped(12, 20), getattr(lw, name)()
    for solver in (None, MajorizeMinimize(4)):
        found = lw.barycenter(distance, x, solver=solver)
        assert (found.history[1:] <= found.history[:-1]).all()
        assert found.cost == pytest.approx(cost(distance, found.sequence, x))


def test_the_mean_and_the_median():
    x = torch.tensor([[[0.0, 0.0]], [[4.0, 0.0]], [[0.0, 4.0]], [[1.0, 1.0]]], dtype=torch.float64)
    mean = lw.barycenter(lw.Euclidean(squared=True), x, weights=[1, 2, 1, 0])
    torch.testing.assert_close(mean.sequence, torch.tensor([[2.0, 1.0]], dtype=torch.float64))
    median = lw.barycenter(lw.Euclidean(), x[:3], solver=MajorizeMinimize(500, tol=0))
    # The Fermat point of a triangle: unit vectors to the corners cancel.
    units = torch.nn.functional.normalize(x[:3, 0] - median.sequence, dim=1)
    assert units.sum(0).abs().max() < 1e-5
    ragged = lw.barycenter(lw.Euclidean(squared=True), [[1.0, 2.0, 6.0], [3.0]], length=3)
    torch.testing.assert_close(ragged.sequence.flatten(), torch.tensor([2.0, 2.0, 6.0]))


@pytest.mark.parametrize("distance", [lw.DTW(), lw.SoftDTW(0.3), lw.GDTW(), lw.SoftDTWDivergence(0.3)], ids=repr)
def test_groups_are_averages_of_their_own(distance):
    x, groups = uneven(), np.array(["b", "a", "b", "b", "c", "a", "c", "b", "a"])
    weights = torch.linspace(1, 2, 9)
    together = lw.barycenter(distance, x, weights, groups=groups)
    assert together.labels.tolist() == ["a", "b", "c"]
    for k, name in enumerate(together.labels):
        mine = np.flatnonzero(groups == name)
        alone = lw.barycenter(distance, x[mine], weights[mine])
        torch.testing.assert_close(together.sequences[k], alone.sequence, rtol=1e-6, atol=1e-6)
        assert together.costs[k] == pytest.approx(alone.cost)
        assert together.iterations[k] == alone.iterations[0]
        assert together.converged[k] == alone.converged[0]


def test_a_weight_is_a_number_of_copies():
    x = walks(4)
    once = lw.barycenter(lw.DTW(), x, weights=[3, 1, 0, 2], solver=MM)
    copies = lw.barycenter(lw.DTW(), x[[0, 0, 0, 1, 3, 3]], solver=MM)
    torch.testing.assert_close(once.sequence, copies.sequence)


@pytest.mark.parametrize("distance", [lw.DTW(), lw.DTW(band=1), lw.SoftDTW(), lw.GDTW(), lw.Euclidean(squared=True)])
@pytest.mark.parametrize("init", ["mean", "medoid"])
def test_padding_does_not_matter(distance, init):
    found = [lw.barycenter(distance, uneven(fill), init=init).sequence for fill in (0.0, torch.nan, 1e9)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("batch", [1, 4])
def test_subgradients_on_subsets(batch):
    x, groups = walks(40, 12), np.arange(40) % 2
    solver = Subgradient(batch=batch, seed=3)
    found = lw.barycenter(lw.DTW(), x, groups=groups, solver=solver)
    assert (found.history[1:] <= found.history[:-1]).all()
    assert (found.costs < 0.9 * found.history[0]).all()
    again = lw.barycenter(lw.DTW(), x, groups=groups, solver=solver)
    assert again.sequences == found.sequences, "the seed decides"
    for k in range(2):
        assert found.costs[k] == pytest.approx(cost(lw.DTW(), found.sequences[k], x[k::2]))


def test_steps_on_subsets_are_kept_if_they_help():
    x, groups = warped(60), np.arange(60) % 2
    plain = lw.barycenter(lw.DTW(), x, groups=groups, solver=MajorizeMinimize(4))
    helped = lw.barycenter(lw.DTW(), x, groups=groups, solver=MajorizeMinimize(4, subsets=20))
    assert (helped.history[0] <= plain.history[0]).all()
    assert helped.costs.sum() < plain.costs.sum()
    assert (helped.history[1:] <= helped.history[:-1]).all()
    again = lw.barycenter(lw.DTW(), x, groups=groups, solver=MajorizeMinimize(4, subsets=20))
    assert again.sequences == helped.sequences, "the seed decides"
    optimum = lw.barycenter(lw.DTW(), x[:30], init=x[0], solver=MajorizeMinimize(200, tol=0))
    kept = lw.barycenter(lw.DTW(), x[:30], init=optimum, solver=MajorizeMinimize(1, subsets=1, seed=3))
    assert kept.cost <= optimum.cost


def test_one_step_of_the_subgradient_by_hand():
    # One item: z - step * 2 (z - x), for the first round's rate of 0.25.
    solver = Subgradient(max_iter=1, step=0.25, batch=1)
    found = lw.barycenter(lw.DTW(), [[2.0]], init=[0.0], solver=solver)
    assert found.sequence.item() == pytest.approx(1.0)


def test_starts_and_lengths():
    x = uneven()
    assert lw.barycenter(lw.DTW(), x).sequence.shape == (9, 2)  # the mean length
    assert lw.barycenter(lw.DTW(), x, length=20).sequence.shape == (20, 2)
    still = MajorizeMinimize(0)
    medoid = lw.barycenter(lw.DTW(), x, init="medoid", solver=still).sequence
    D = lw.DTW().matrix(x)
    torch.testing.assert_close(medoid, x[int(D.sum(1).argmin())])
    given = lw.barycenter(lw.DTW(), x, init=x[3].numpy(), solver=still)
    torch.testing.assert_close(given.sequence, x[3])
    assert lw.barycenter(lw.DTW(), x, init=given, solver=still).sequences == given.sequences
    several = lw.barycenter(lw.DTW(), x, groups=np.arange(9) % 3, init=[x[0], x[3], x[7]], solver=still)
    assert [len(item) for item in several.sequences] == [14, 5, 3]
    equal = walks()
    torch.testing.assert_close(lw.barycenter(lw.DTW(), equal, solver=still).sequence, equal.mean(0))


def test_a_metric_averages_in_the_space_of_its_frames():
    metric = lw.Metric(lw.FrameMLP(2, hidden=8, out=3), lw.DTW()).train()
    x = uneven().to(torch.float32)
    found = lw.barycenter(metric, x, length=6)
    assert found.sequence.shape == (6, 3)
    assert metric.training
    expected = lw.barycenter(lw.DTW(), metric.embed(x), length=6)
    torch.testing.assert_close(found.sequence, expected.sequence)
    vectors = lw.Metric(lw.GRUEncoder(2, 4), lw.Euclidean(squared=True))
    torch.testing.assert_close(lw.barycenter(vectors, x).sequence[0], vectors.embed(x).mean(0))


def test_kinds_of_numbers():
    x = walks(dtype=torch.float32)
    half = lw.barycenter(lw.DTW(), x.half())
    assert half.sequence.dtype == torch.float16
    assert half.cost == pytest.approx(lw.barycenter(lw.DTW(), x.half().float()).cost)
    single, double = (lw.barycenter(lw.DTW(), x.to(dtype), solver=MM) for dtype in (torch.float32, torch.float64))
    assert single.cost == pytest.approx(double.cost, rel=1e-5)


def test_nothing_of_the_callers_is_touched(capsys):
    x = uneven()
    before, state = x.values.clone(), torch.random.get_rng_state()
    lw.barycenter(lw.DTW(), x, solver=Subgradient(), progress=True)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.testing.assert_close(x.values, before, equal_nan=True, rtol=0, atol=0)
    assert "barycenter" in capsys.readouterr().err


def test_repr_and_sequences():
    two = lw.barycenter(lw.DTW(), uneven(), groups=np.arange(9) % 2)
    assert repr(two).startswith("Barycenter(2 averages of ")
    assert len(two) == 2
    with pytest.raises(ValueError, match=r"there are 2 averages; use .sequences"):
        two.sequence  # noqa: B018


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"weights": [1.0, -1.0, 1.0]}, ValueError, r"weights must be 0 or more and finite, but weights\[1\] is -1.0"),
        ({"weights": [1.0, np.nan, 1.0]}, ValueError, r"weights\[1\] is nan"),
        ({"weights": [0.0, 0.0, 0.0]}, ValueError, "the weights sum to zero; give at least one item a weight"),
        ({"weights": [1, 0, 0], "groups": ["a", "a", "b"]}, ValueError, "the weights of group 'b' sum to zero"),
        ({"weights": [1.0]}, ValueError, r"expected weights of shape \(3,\), got \(1,\)"),
        ({"weights": "heavy"}, TypeError, "expected weights to be numbers"),
        ({"init": "kmeans"}, ValueError, 'init must be "mean", "medoid" or sequences'),
        ({"init": np.zeros((4, 2))}, ValueError, "init has 2 channels, x has 1"),
        ({"init": [[0.0], [1.0]]}, ValueError, "init has 2 sequences, but there are 1 groups"),
        ({"init": [0.0, np.inf]}, ValueError, r"init\[0\] holds inf at step 1"),
        ({"length": 0}, ValueError, "length must be a whole number of 1 or more"),
        ({"groups": [0, 1]}, ValueError, r"expected groups of shape \(3,\)"),
        ({"groups": [0, 1, None]}, ValueError, r"groups\[2\] is missing"),
        ({"solver": 10}, TypeError, "expected solver to have a method solve, got int"),
    ],
)
def test_bad_input_is_refused(settings, error, message):
    with pytest.raises(error, match=f"barycenter: .*{message}"):
        lw.barycenter(lw.DTW(), [[0.0, 1.0], [2.0], [3.0]], **settings)


def test_other_bad_input():
    with pytest.raises(ValueError, match="barycenter: there are no items"):
        lw.barycenter(lw.DTW(), [])
    with pytest.raises(TypeError, match="expected distance to be a Distance, got str"):
        lw.barycenter("dtw", [[0.0]])
    with pytest.raises(ValueError, match=r"barycenter: x\[0\] holds nan at step 1"):
        lw.barycenter(lw.DTW(), [[0.0, np.nan]])
    with pytest.raises(ValueError, match="SoftDTW gives no path to average along; use LBFGS"):
        lw.barycenter(lw.SoftDTW(), [[0.0]], solver=MajorizeMinimize())
    with pytest.raises(ValueError, match="max_iter must be a whole number of 0 or more"):
        MajorizeMinimize(-1)
    with pytest.raises(ValueError, match="memory must be a whole number of 1 or more"):
        LBFGS(memory=0)
    with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
        Subgradient(share=0.0)
    with pytest.raises(ValueError, match="step must be positive"):
        Subgradient(step=-1.0)
