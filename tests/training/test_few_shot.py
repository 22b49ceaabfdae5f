import types

import pytest
import torch

import likewise as lw
from likewise.data.episodes import Episodes
from likewise.distances.mean_frames import MeanFrames
from likewise.evaluation.few_shot import few_shot_accuracy_matrix
from likewise.models.frame_mlp import FrameMLP
from likewise.models.metric import Metric
from likewise.training.few_shot import EpisodeLoss, EpisodeValidation
from likewise.training.fit import fit
from likewise.training.options import Checkpoints
from likewise.training.step import Step
from tests.training.problems import weights

QUIET = {"verbose": False, "accelerator": "cpu"}


def problem(classes=6, each=6, seed=0):
    """Classes that differ in the order of two bumps; the noise of a second channel hides it from plain distances."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes * each) % classes
    items = []
    for label in labels.tolist():
        n = int(torch.randint(5, 9, (1,), generator=generator))
        signal = torch.linspace(0, 1, n) * label + 0.2 * torch.randn(n, generator=generator)
        items.append(torch.stack([signal, 3 * torch.randn(n, generator=generator)], 1))
    return lw.Batch.from_list(items), labels


def metric(distance=None, seed=0):
    torch.manual_seed(seed)
    return Metric(FrameMLP(2, hidden=8, normalize=False), distance or lw.TAP(3))


def by_loops(m, features, sampler, scale=1.0, prototypes=False):
    """Mean cross entropy over the queries of a batch, distance by distance."""
    items = features.to_list()
    losses = []
    for support, query in zip(sampler.support.tolist(), sampler.query.tolist(), strict=True):
        for truth, asked in enumerate(query):
            for q in asked:
                apart = []
                for shots in support:
                    pairs = [m.distance(items[q][None], items[s][None])[0] for s in shots]
                    back = [m.distance(items[s][None], items[q][None])[0] for s in shots]
                    far = sum(pairs) / len(pairs)
                    far = far if m.distance.symmetric else far + sum(back) / len(back)
                    if prototypes:
                        own = [m.distance(items[s][None], items[t][None])[0] for s in shots for t in shots]
                        far = far - sum(own) / len(own) / 2
                    apart.append(far)
                losses.append(torch.nn.functional.cross_entropy(-scale * torch.stack(apart), torch.tensor(truth)))
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("distance", "prototypes"), [(lw.TAP(3), False), (lw.SoftDTW(0.1), False), (MeanFrames(), True)], ids=str
)
@pytest.mark.parametrize(("shots", "per_batch"), [(1, 2), (2, 1)])
def test_the_loss_equals_plain_loops(distance, prototypes, shots, per_batch):
    x, y = problem()
    m = metric(distance).double()
    sampler = Episodes(y, 3, shots, 2, per_batch=per_batch)
    index = torch.tensor(next(iter(sampler)))
    step = Step(m, x.to(torch.float64)[index], y[index])
    loss = EpisodeLoss(sampler, scale=2.0, prototypes=prototypes)
    expected = by_loops(m, step.features, sampler, 2.0, prototypes)
    torch.testing.assert_close(loss(step), expected, rtol=1e-5, atol=1e-6)


def test_it_learns_to_separate_new_classes():
    x, y = problem(12)
    known, new = y < 8, y >= 8
    m = metric(lw.SoftDTW(0.1))
    torch.nn.init.eye_(m.encoder.layers[-1].weight)
    sampler = Episodes(y[known], 4, 1, 2, per_batch=4, batches=10)
    validation = EpisodeValidation((x[new], y[new]), Episodes(y[new], 4, 1, 1, seed=1), count=300)
    before = validation.few_shot(m)
    step = EpisodeLoss(sampler, scale=0.1, learn_scale=True)
    train = x[known], y[known]
    history = fit(m, train, sampler=sampler, step=step, val=validation, epochs=6, lr=0.01, **QUIET)
    after = validation.few_shot(m)
    assert history.best is not None
    assert after.accuracy == history.best.accuracy == max(score.accuracy for score in history.scores)
    assert after.accuracy - after.interval > before.accuracy + before.interval
    assert step.log_scale.exp().item() != pytest.approx(0.1)
    assert history.losses[-1] < history.losses[0]


def test_the_scale_stays_unless_learned():
    x, y = problem()
    sampler = Episodes(y, 3, 1, 2, batches=2)
    loss = EpisodeLoss(sampler, scale=3.0)
    fit(metric(), (x, y), sampler=sampler, step=loss, epochs=1, lr=0.1, **QUIET)
    assert loss.log_scale.exp().item() == pytest.approx(3)


def test_augmented_items_are_learned_from():
    x, y = problem()
    sampler = Episodes(y, 3, 1, 2)
    index = torch.tensor(next(iter(sampler)))
    m, batch = metric(), x[index]
    augmented = types.SimpleNamespace(batch=lw.Batch(2 * batch.values, batch.lengths), plans=None)
    loss = EpisodeLoss(sampler)
    found = loss(Step(m, batch, y[index], augment=lambda batch, generator: augmented))
    torch.testing.assert_close(found, loss(Step(m, augmented.batch, y[index])))


def test_a_resumed_run_is_the_same(tmp_path):
    x, y = problem()

    def run(epochs, folder):
        m, sampler = metric(), Episodes(y, 3, 1, 2, batches=3)
        fit(m, (x, y), sampler=sampler, step=EpisodeLoss(sampler, learn_scale=True), epochs=epochs, lr=0.01,
            checkpoints=Checkpoints(folder, resume=True), **QUIET)  # fmt: skip
        return weights(m)

    run(1, tmp_path / "stopped")
    assert torch.equal(run(3, tmp_path / "stopped"), run(3, tmp_path / "whole"))


def test_validation_draws_from_one_matrix():
    x, y = problem()
    m, sampler = metric(lw.DTW()), Episodes(y, 3, 2, 1, seed=4)
    accuracy, precision = EpisodeValidation((x, y), sampler, count=50)(m).values()
    D = m.matrix(x).detach()
    assert accuracy == few_shot_accuracy_matrix(D, *sampler.take(50)).accuracy
    assert precision == pytest.approx(lw.evaluation.mean_average_precision(D, y))


def test_mismatches_are_refused():
    x, y = problem()
    sampler = Episodes(y, 3, 1, 2)
    with pytest.raises(ValueError, match="pass the same Episodes to fit as sampler"):
        fit(metric(), (x, y), batch_size=8, step=EpisodeLoss(sampler), epochs=1, **QUIET)
    with pytest.raises(TypeError, match="expected episodes to be an Episodes, got int"):
        EpisodeLoss(5)
    with pytest.raises(ValueError, match="EpisodeLoss: scale must be positive"):
        EpisodeLoss(sampler, scale=0)
