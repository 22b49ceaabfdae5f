import csv
import signal
import types
import warnings

import pytest
import torch
from torch import nn

import likewise as lw
from likewise.data.samplers import MPerClass, Shuffled
from likewise.models.frame_mlp import FrameMLP
from likewise.models.gru_encoder import GRUEncoder
from likewise.models.metric import Metric, take
from likewise.models.small_cnn import SmallCNN
from likewise.training.batches import seed_of
from likewise.training.fit import fit
from likewise.training.options import Optimization
from likewise.training.step import Step
from likewise.training.validation import Validation
from tests.training.problems import metric, problem, spread, train, weights

QUIET = {"verbose": False, "accelerator": "cpu"}


def noisy(batch, generator):
    """An augmentation: every sequence without its first frame, with noise."""
    noise = torch.randn(batch.values.shape, generator=generator, dtype=batch.dtype)
    shorter = lw.Batch((batch.values + noise)[:, 1:], (batch.lengths - 1).clamp(min=1))
    return types.SimpleNamespace(batch=shorter, plans=None)


def by_hand(m, *, augment=None, epochs=3, clip=None, lr=0.01):
    """The same loop as in fit, without Fabric."""
    x, y = problem()
    x = x.to(torch.float64)
    optimizer = torch.optim.Adam(m.parameters(), lr=lr, weight_decay=1e-4)
    losses = []
    for epoch in range(epochs):
        sampler = Shuffled(24, 5, drop_last=True)
        sampler.set_epoch(epoch)
        for step, index in enumerate(sampler):
            batch, labels = take(x, torch.tensor(index)), y[index]
            D = m.distance.matrix(m.encoder(batch))
            if augment:
                other = augment(batch, torch.Generator().manual_seed(seed_of(0, epoch, step))).batch
                for b in range(5):
                    item, changed = m.encoder(batch[b][None]), m.encoder(other[b][None])
                    both = m.distance(item, changed)[0] + m.distance(changed, item)[0]
                    D = D.index_put((torch.tensor(b), torch.tensor(b)), both / 2)
            loss = spread(D, labels)
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(m.parameters(), clip)
            optimizer.step()
    return [sum(losses[4 * i : 4 * i + 4]) / 4 for i in range(epochs)]


@pytest.mark.parametrize("augment", [None, noisy])
@pytest.mark.parametrize("distance", [lw.SoftDTW(0.5), lw.DTW(open_end=True)], ids=repr)
def test_it_is_the_loop_by_hand(augment, distance):
    ours, theirs = (metric(dropout=0.0, distance=distance).double() for _ in range(2))
    x, y = problem()
    options = {"lr": 0.01, "batch_size": 5, "epochs": 3, "optimizer": Optimization(), **QUIET}
    history = fit(ours, (x.to(torch.float64), y), spread, augment=augment, **options)
    expected = by_hand(theirs, augment=augment)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-6, atol=1e-8)
    assert history.losses == pytest.approx(expected, rel=1e-6)


def test_clipping():
    ours, theirs, free = (metric(dropout=0.0).double() for _ in range(3))
    train(ours, optimizer=Optimization(clip=0.01))
    by_hand(theirs, clip=0.01)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-6, atol=1e-8)
    train(free)
    assert not torch.allclose(weights(free), weights(ours))


def test_training_separates_classes():
    m = metric()
    history = train(m, epochs=15, lr=0.02, val=problem(12, seed=1))
    assert history.losses[-1] < history.losses[0]
    assert history.best.accuracy >= 0.9
    assert history.best_epoch == history.best.epoch
    assert len(history.scores) == len(history.losses) == len(history.seconds) == 15
    assert history.wall_time == sum(history.seconds) > 0


class Proxies(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, D, labels):
        return (D * self.weight[labels]).mean()


class Pull(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.seen = []

    def forward(self, step):
        assert isinstance(step, Step)
        self.seen.append((step.epoch, step.total, len(step.batch), "D" in step.__dict__))
        return (step.features.values[:, 0] * self.weight).square().mean()


def test_losses_and_terms_with_parameters():
    x, y = problem()
    m, loss, pull = metric(), Proxies(), Pull()
    fit(m, (x, y), loss, terms=[pull, lambda step: step.D.mean()], epochs=2, batch_size=10, **QUIET)
    assert not torch.equal(loss.weight, torch.ones(3))
    assert not torch.equal(pull.weight, torch.ones(4))
    assert [seen[:3] for seen in pull.seen] == [(0, 0, 10), (0, 1, 10), (1, 2, 10), (1, 3, 10)]


def test_terms_alone_without_labels():
    m, pull = metric(), Pull()
    history = fit(m, problem()[0], terms=[pull, lambda step: 0 * pull(step)], epochs=2, lr=0.01, **QUIET)
    assert history.losses[1] < history.losses[0]
    assert not any(made for *_, made in pull.seen), "no unused matrix is computed"


def test_unlabelled_items_are_classes_of_their_own():
    seen = []

    def loss(D, rows, columns):
        seen.append(rows.tolist())
        return D.diagonal().mean() - D.mean()

    fit(metric(), problem()[0], loss, augment=noisy, epochs=1, batch_size=24, **QUIET)
    assert sorted(seen[0]) == list(range(24))


class Scale(lw.Distance):
    """A distance with a parameter, and no encoder."""

    symmetric = True

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def paired(self, x, y, x_lengths, y_lengths):
        return ((x[:, 0] - y[:, 0]) * self.weight).square().sum(-1)


def test_any_distance_with_parameters():
    d = Scale()
    train(d)
    assert not torch.equal(d.weight, torch.ones(2))


@pytest.mark.parametrize(
    ("m", "items"),
    [
        (Metric(GRUEncoder(2, 4), lw.Euclidean()), torch.randn(12, 5, 2)),
        (Metric(GRUEncoder(2, 4, steps=True), lw.DTW()), [torch.randn(n, 2) for n in range(1, 13)]),
        (Metric(FrameMLP(2, 4), lw.DTW()), torch.randn(12, 5, 2).double().numpy()),
        (Metric(SmallCNN(1, 4, widths=(4,)), lw.Cosine()), torch.randn(12, 1, 6, 6)),
        (Metric(nn.Linear(3, 2), lw.Euclidean(squared=True)), torch.randn(12, 3)),
    ],
    ids=["vectors of sequences", "list", "array", "images", "vectors"],
)
def test_kinds_of_items(m, items):
    before = weights(m)
    labels = [0, 1, 2] * 4
    history = fit(m, (items, labels), spread, epochs=2, batch_size=100, val=0.5, lr=0.01, **QUIET)
    assert len(history.scores) == 2
    assert not torch.equal(weights(m), before)


def test_a_sampler_and_an_optimizer():
    seen = []

    def loss(D, labels):
        seen.append(labels.bincount().tolist())
        return spread(D, labels)

    x, y = problem()
    m = metric()
    fit(
        m,
        (x, y),
        loss,
        sampler=MPerClass(y, 6, per_class=2, batches=3),
        epochs=2,
        optimizer=lambda p: torch.optim.SGD(p, 0.1),
        **QUIET,
    )
    assert seen == [[2, 2, 2]] * 6
    plain = nn.ModuleList([metric()])
    again = [[0, 1, 2], [3, 4, 5]]
    history = fit(plain[0], (x, y), spread, sampler=again, epochs=1, **QUIET)
    assert len(history.losses) == 1


@pytest.mark.parametrize(
    ("precision", "allowed"), [({"precision": "32-true"}, False), ({"precision": 32}, False), ({}, True)]
)
def test_float32_that_is_asked_for_is_not_tensorfloat(monkeypatch, precision, allowed):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    seen = []

    def loss(D, labels):
        seen.append(torch.backends.cudnn.allow_tf32)
        return D.mean()

    fit(metric(), problem(), loss, epochs=1, **precision, **QUIET)
    assert seen
    assert set(seen) == {allowed}
    assert torch.backends.cudnn.allow_tf32


def test_half_precision_gives_precise_distances():
    def loss(D, labels):
        assert D.dtype == torch.float32
        return spread(D, labels)

    x, y = problem()
    m = Metric(FrameMLP(2, 8, standardize=False), lw.SoftDTW(0.5))
    dtypes = []
    m.encoder.layers[0].register_forward_hook(lambda module, given, out: dtypes.append(out.dtype))
    fit(m, (x, y), loss, epochs=1, precision="bf16-mixed", **QUIET)
    assert dtypes[0] == torch.bfloat16
    assert next(m.parameters()).dtype == torch.float32


def test_it_leaves_everything_else_alone(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    x, y = problem()
    values, lengths, labels = x.values.clone(), x.lengths.clone(), y.clone()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    m = metric().eval()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(m, (x, y), spread, epochs=2, val=problem(6, seed=1), **QUIET)
    assert torch.equal(torch.rand(2), expected), "the caller's randomness"
    assert torch.equal(x.values, values)
    assert torch.equal(x.lengths, lengths)
    assert torch.equal(y, labels)
    assert not m.training
    assert all(p.requires_grad for p in m.parameters())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert list(tmp_path.iterdir()) == [], "nothing is written without a folder"
    said = capfd.readouterr()
    assert said.out == said.err == ""


def test_the_same_seed_gives_the_same_weights():
    a, b, c = metric(), metric(), metric()
    train(a)
    torch.rand(5)
    train(b)
    train(c, seed=1)
    assert torch.equal(weights(a), weights(b))
    assert not torch.equal(weights(a), weights(c))


def test_contents_of_the_folder(tmp_path):
    m = metric()
    history = train(m, checkpoints=tmp_path / "run", epochs=3, val=Validation(problem(6, seed=1), every=2))
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["checkpoint.safetensors", "config.json", "log.csv", "model.safetensors", "tensorboard"]
    assert torch.equal(weights(Metric.load(tmp_path / "run")), weights(m))
    with (tmp_path / "run" / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == history.losses
    assert rows[0]["accuracy"] == ""
    assert float(rows[1]["map"]) == history.scores[0].map
    assert any(path.name.startswith("events") for path in (tmp_path / "run" / "tensorboard").iterdir())


def test_fails_before_training_if_the_metric_cannot_be_saved(tmp_path):
    m = Metric(FrameMLP(2, 4), lw.DTW(ground=lambda x, y: torch.cdist(x, y)))
    with pytest.raises(TypeError, match=r"DTW.ground: a file cannot hold the function '<lambda>'"):
        train(m, checkpoints=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_interrupt_stays_an_interrupt():
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(metric(), terms=[interrupt])
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_loss_that_is_not_finite_names_its_place():
    def broken(step):
        return step.features.values.sum() * (torch.nan if step.total == 5 else 0.0)

    with pytest.raises(ValueError, match=r"fit: in epoch 2, step 2, items \[.*\.\.\.: the loss is nan; lower lr"):
        train(metric(), terms=[broken])
    with pytest.raises(ValueError, match=r"fit: in epoch 1, step 2, items .*: soft_dtw: x\[\d\] holds"):
        train(metric(), lr=1e30)


def test_a_batch_that_there_is_nothing_to_learn_from():
    m = metric()
    before = weights(m)
    x, y = problem()
    still = Optimization(weight_decay=0.0)
    history = fit(m, (x, y), lambda D, labels: torch.tensor(0.0), epochs=2, optimizer=still, **QUIET)
    assert history.losses == [0, 0]
    assert torch.equal(weights(m), before)
    with pytest.raises(TypeError, match="fit: the loss does not depend on any trained parameter"):
        fit(m, (x, y), lambda D, labels: D.detach().mean(), **QUIET)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"epochs": 0}, ValueError, "fit: epochs must be a whole number of 1 or more, got 0"),
        ({"batch_size": 2.5}, ValueError, "fit: batch_size must be a whole number"),
        ({"lr": 0}, ValueError, "fit: lr must be positive"),
        ({"seed": -1}, ValueError, "fit: seed must be a whole number of 0 or more"),
        ({"average": 1.5}, ValueError, "fit: average must be at least 0 and less than 1"),
        ({"val": (1, 2, 3)}, TypeError, r"fit: expected val to be a Dataset or a pair \(items, labels\), got tuple"),
        ({"clip": 1.0}, TypeError, r"argument 'clip'; it belongs to optimizer=Optimization\(clip=...\)"),
        ({"acelerator": "cpu"}, TypeError, "argument 'acelerator'; did you mean 'accelerator'"),
        ({"batchsize": 3}, TypeError, "argument 'batchsize'; did you mean 'batch_size'"),
        ({"zebra": 3}, TypeError, "argument 'zebra'; fit also takes the arguments of Fabric: accelerator, callbacks"),
        ({"step": 3}, TypeError, "fit: expected step to be a function of a Step, got int"),
        ({"optimizer": 3}, TypeError, "fit: expected optimizer to be an Optimization or a function of parameters"),
        ({"val": ([], [])}, ValueError, "fit: val is empty"),
        ({"terms": [3]}, TypeError, r"fit: expected terms\[0\] to be a function of a Step, got int"),
        (
            {"terms": [lambda step: step.D]},
            TypeError,
            r"fit: expected the loss and its terms to be scalar tensors, got shape",
        ),
        ({"sampler": [[0, 99]]}, ValueError, "fit: the sampler yielded index 99, but there are 24 items"),
        ({"sampler": [[0, -1]]}, ValueError, "fit: the sampler yielded index -1, but there are 24 items"),
        ({"sampler": [0, 1]}, TypeError, "fit: expected the sampler to yield lists of indices, got torch.int64"),
        (
            {"sampler": Shuffled(24, 4, world_size=2)},
            ValueError,
            "fit: pass a sampler of whole batches, with world_size=1",
        ),
        (
            {"augment": lambda batch, generator: types.SimpleNamespace(batch=batch[:2])},
            ValueError,
            r"fit: in epoch 1, step 1, .*: augment returned 2 items for a batch of 5",
        ),
    ],
)
def test_bad_settings_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        train(metric(), **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x, y: fit(nn.Linear(1, 1), (x, y), spread),
            TypeError,
            "fit: expected metric to be a Metric or a Distance, got Linear",
        ),
        (lambda x, y: fit(lw.DTW(), (x, y), spread), ValueError, "fit: there is nothing to learn"),
        (
            lambda x, y: fit(metric(), (x, y[:5]), spread),
            ValueError,
            r"fit: expected the labels of train of shape \(24,\), got \(5,\)",
        ),
        (
            lambda x, y: fit(metric(), (x, y + 0.5), spread),
            ValueError,
            "fit: the labels of train are targets of a regression",
        ),
        (lambda x, y: fit(metric(), x), ValueError, "fit: there are no labels: pass a pair"),
        (
            lambda x, y: fit(metric(), x, y),
            TypeError,
            r"fit: expected loss to be a function of \(D, labels\), got Tensor; labels go with the items",
        ),
        (lambda x, y: fit(metric(), ([], []), spread), ValueError, "fit: there are no training items"),
        (lambda x, y: fit(metric(), (3, y), spread), TypeError, "fit: expected train to be a Batch"),
        (lambda x, y: fit(metric(), (x, y), spread, sampler=[], **QUIET), ValueError, "the sampler yielded no batch"),
    ],
)
def test_bad_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(*problem())
