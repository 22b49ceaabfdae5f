import numpy as np
import pytest
import torch

import likewise as lw
from likewise.data.dataset import Dataset
from likewise.data.split import HeldOutClasses
from likewise.evaluation.evaluate import evaluate_matrix
from likewise.training.fit import fit
from likewise.training.validation import Validation
from tests.training.problems import metric, problem, spread, train, weights

QUIET = {"verbose": False, "accelerator": "cpu", "batch_size": 5, "lr": 0.01}


def test_queries_of_the_training_classes_are_searched_for_among_the_training_items():
    (x, y), (q, p) = problem(), problem(12, seed=1)
    m = metric()
    history = train(m, val=(q, p), epochs=1)
    D = m.matrix(q, x)
    assert history.best.accuracy == pytest.approx(lw.evaluation.nearest_neighbor_accuracy(D, p, y))
    assert history.best.map == pytest.approx(lw.evaluation.mean_average_precision(D, p, y), rel=1e-6)


def test_rows_in_chunks(monkeypatch):
    whole = train(metric(), val=problem(12, seed=1), epochs=1)
    monkeypatch.setattr("likewise.training.validation.MOST_DISTANCES", 50)
    parts = train(metric(), val=problem(12, seed=1), epochs=1)
    assert parts.best.map == pytest.approx(whole.best.map)
    assert parts.best.accuracy == pytest.approx(whole.best.accuracy)


def test_a_class_is_its_name():
    """Numbers and names in another order: the same classes, whatever their codes are."""
    q, p = problem(12, seed=1)
    expected = train(metric(), val=(q, p), epochs=1).best.numbers
    names = np.array(["0", "1", "2"])
    found = train(metric(), val=Dataset(q, names[p.numpy()], classes=("2", "1", "0")), epochs=1).best.numbers
    assert found == expected
    assert train(metric(), val=(q, p.double()), epochs=1).best.numbers == expected


def test_new_classes_are_compared_with_each_other():
    q, p = problem(12, seed=1)
    m = metric()
    history = train(m, val=(q, [f"new {k}" for k in p.tolist()]), epochs=1)
    scores = evaluate_matrix(m.matrix(q).detach(), p)
    assert history.best["recall@1"] == pytest.approx(scores.recall[1])
    assert history.best["map@r"] == pytest.approx(scores.map_at_r)
    assert history.best.map == pytest.approx(scores.map)
    assert history.best["recall@1"] < 1, "no item finds itself"


def test_a_share_is_not_trained_on():
    seen = []

    def note(step):
        seen.extend(step.index.tolist())
        assert len(set(step.batch.lengths.tolist())) > 0
        return step.features.values.sum() * 0

    history = train(metric(), val=0.25, terms=[note], epochs=3)
    assert max(seen) < 18
    assert len(history.scores) == 3
    assert history.best.accuracy > 0.3


def test_a_share_by_groups():
    x, y = problem()
    x = lw.Batch(torch.where(x.mask[..., None], torch.arange(24.0)[:, None, None].expand_as(x.values), 0.0), x.lengths)
    groups, seen = np.arange(24) // 6, set()

    def note(step):
        seen.update(step.batch.values[:, 0, 0].int().tolist())
        return step.features.values.sum() * 0

    fit(metric(), (x, y), spread, val=Validation(0.25, groups=groups), terms=[note], epochs=3, **QUIET)
    assert {item // 6 for item in seen} != {0, 1, 2, 3}
    assert len({item // 6 for item in seen}) == 3


def test_held_out_classes():
    x, y = problem(40)
    y, seen = torch.arange(40) % 5, set()

    def note(step):
        seen.update(step.labels.tolist())
        return step.features.values.sum() * 0

    history = fit(metric(), (x, y), spread, val=HeldOutClasses(0.4), terms=[note], epochs=2, **QUIET)
    assert set(history.best.numbers) == {"recall@1", "map@r", "map"}
    assert len(seen) == 3


def test_the_best_weights_are_kept():
    m = metric()
    history = train(m, val=problem(30, seed=2), epochs=10, lr=0.2)
    best = max(history.scores, key=lambda score: (score.accuracy, score.map))
    assert history.best.numbers == best.numbers
    assert history.best_epoch < 10, "choose another seed: the last weights are the best"
    until = metric()
    train(until, epochs=history.best_epoch, lr=0.2)
    assert torch.equal(weights(m), weights(until))
    by_map = train(metric(), val=Validation(problem(30, seed=2), monitor="map"), epochs=10, lr=0.2)
    assert by_map.best.map == max(score.map for score in by_map.scores)


def test_patience_and_every():
    val = Validation(problem(30, seed=2), every=3, patience=2)
    history = train(metric(), val=val, epochs=50, lr=0.05)
    assert history.stopped
    assert [score.epoch for score in history.scores] == list(range(3, len(history.losses) + 1, 3))
    assert history.scores[-3].epoch == history.best_epoch
    rows = history.rows()
    assert rows[0]["accuracy"] is None
    assert rows[2]["accuracy"] == history.scores[0].accuracy
    last = train(metric(), val=Validation(problem(30, seed=2), every=3), epochs=4)
    assert [score.epoch for score in last.scores] == [3, 4], "the last epoch is validated too"


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"every": 0.5}, [2, 4, 6, 8]),
        ({"every": 0.3}, [2, 3, 4, 6, 7, 8]),
        ({"every_steps": 3}, [3, 6, 8]),
        ({"every": 0.5, "before": True}, [0, 2, 4, 6, 8]),
    ],
)
def test_several_validations_an_epoch(settings, steps):
    history = train(metric(), val=Validation(problem(6, seed=1), **settings), epochs=2)
    assert [score.step for score in history.scores] == steps
    assert [score.epoch for score in history.scores] == [step / 4 for step in steps]


def test_a_function_of_the_metric_and_the_lowest():
    values = iter([5.0, 3.0, 4.0, 3.5])
    m = metric()
    history = train(m, val=Validation(lambda metric: next(values), lowest=True), epochs=4)
    assert [score["score"] for score in history.scores] == [5.0, 3.0, 4.0, 3.5]
    assert history.best_epoch == 2
    until = metric()
    train(until, epochs=2)
    assert torch.equal(weights(m), weights(until))
    named = train(metric(), val=lambda metric: {"a": 1.0, "b": 2.0}, epochs=1)
    assert named.best.numbers == {"a": 1.0, "b": 2.0}


def test_patience_within_an_epoch_ends_it():
    values = iter([1.0, 0.0, 0.0])
    history = train(metric(), val=Validation(lambda metric: next(values), every=0.25, patience=2), epochs=3)
    assert history.stopped
    assert len(history.losses) == 1
    assert history.best_epoch == 0.25


@pytest.mark.parametrize(
    ("val", "message"),
    [
        (problem(), "fit: val is the training items"),
        ((problem()[0], [9] * 24), "fit: val is the training items"),
        (([], []), "fit: val is empty"),
        ((problem(6, seed=1)[0], [0, 1, 7, 8, 0, 1]), "some classes of val are not training classes: 7, 8;"),
        ((problem(6, seed=1)[0], [0, 1]), r"fit: expected the labels of val of shape \(6,\), got \(2,\)"),
        (1.5, "fit: share must be between 0 and 1"),
        (HeldOutClasses(0.5), "HeldOutClasses: 2 of 3 classes would be held out"),
        (Validation(problem(6, seed=1), monitor="f1"), 'fit: monitor must be "accuracy" or "map", got \'f1\''),
        (Validation(lambda metric: 1.0, monitor="f1"), "fit: monitor must be \"score\", got 'f1'"),
        (Validation(problem(6, seed=1), groups=[0] * 24), "fit: groups are for a share of the training items"),
    ],
)
def test_misleading_validation_data_are_refused(val, message):
    with pytest.raises(ValueError, match=message):
        train(metric(), val=val)


def test_items_without_labels():
    x = problem()[0]
    with pytest.raises(ValueError, match="a share of items without labels cannot be scored"):
        fit(metric(), x, terms=[lambda step: step.D.mean()], val=0.25, **QUIET)
    with pytest.raises(ValueError, match="HeldOutClasses needs training items with labels"):
        fit(metric(), x, terms=[lambda step: step.D.mean()], val=HeldOutClasses(0.25), **QUIET)
    history = fit(metric(), x, terms=[lambda step: step.D.mean()], val=problem(9, seed=1), epochs=1, **QUIET)
    assert set(history.best.numbers) == {"recall@1", "map@r", "map"}


def test_a_share_needs_a_sampler_of_the_rest():
    y = problem()[1]
    with pytest.raises(ValueError, match="the sampler draws from all of them; split the data first"):
        train(metric(), val=0.25, sampler=lw.data.MPerClass(y, 6, per_class=2))
    history = train(metric(), val=0.25, sampler=lambda labels: lw.data.MPerClass(labels, 6, per_class=2))
    assert len(history.losses) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "Validation: every must be positive"),
        ({"every": 1.5}, "a fraction of an epoch or a whole number of epochs, got 1.5"),
        ({"patience": 0}, "Validation: patience must be a whole number of 1 or more"),
        ({"every_steps": 0}, "Validation: every_steps must be a whole number"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Validation(0.2, **settings)


SEQUENCES = Dataset(*problem())
IMAGES = lw.ImageSet(torch.arange(24 * 48).reshape(24, 3, 4, 4).remainder(251).to(torch.uint8), [0, 1, 2] * 8)


def copied(items):
    return items.clone() if isinstance(items, torch.Tensor) else lw.Batch(items.values.clone(), items.lengths)


@pytest.mark.parametrize("data", [SEQUENCES, IMAGES], ids=["sequences", "images"])
@pytest.mark.parametrize(
    ("val", "message"),
    [
        (lambda data: data, "fit: val is the training items; pass items that are not trained on"),
        (lambda data: data[:], "fit: val is the training items"),
        (lambda data: data[5:17], r"among the training items: val\[0\] is train\[5\], val\[1\] is train\[6\]"),
        (
            lambda data: (copied(data[5:17].items), data.labels[5:17]),
            r"among the training items: val\[0\] is train\[5\]",
        ),
        (lambda data: (data[5:17].items, ["new"] * 12), "fit: every item of val is among the training items"),
    ],
    ids=["itself", "all", "part", "copied part", "other labels"],
)
def test_validation_with_training_items_is_refused(data, val, message):
    m = metric() if data is SEQUENCES else lw.Metric(lw.models.SmallCNN(3, 4, widths=(4,)), lw.Cosine())
    with pytest.raises(ValueError, match=message):
        fit(m, data, spread, val=val(data), epochs=1, **QUIET)


def test_some_training_items_with_their_ids_are_refused():
    with pytest.raises(
        ValueError, match=r"10 items of val are training items, with the same ids: val\[10\] is train\[0\]"
    ):
        fit(metric(), SEQUENCES[10:], spread, val=SEQUENCES[:20], epochs=1, **QUIET)


def test_equal_items_with_other_ids_are_counted():
    q, p = problem(6, seed=1)
    items = lw.Batch.cat([q, SEQUENCES.items[3:5]]), [*p.tolist(), 0, 1]
    with pytest.warns(
        UserWarning, match=r"2 of 8 items of val are equal to training items: val\[6\] is train\[3\], val\[7\]"
    ):
        history = fit(metric(), SEQUENCES, spread, val=items, epochs=1, **QUIET)
    assert len(history.scores) == 1


def test_a_share_of_repeated_items_is_counted():
    twice = Dataset(lw.Batch.cat([SEQUENCES.items, SEQUENCES.items[:4]]), [*SEQUENCES.labels, *SEQUENCES.labels[:4]])
    with pytest.warns(UserWarning, match=r"of 7 items that are held out for val are equal to training items: item\["):
        fit(metric(), twice, spread, val=0.25, epochs=1, **QUIET)


def test_training_pairs_are_refused():
    x, y = torch.randn(6, 4, 2), torch.randn(6, 4, 2)
    pairs = lw.training.AlignedPairs(x, y, torch.rand(6, 4).sort().values)
    with pytest.raises(ValueError, match="every item of val is among the training items"):
        fit(metric(), pairs, lw.losses.WarpError(power=1), val=pairs[1:3], epochs=1, **QUIET)


def test_episodes_of_training_items_are_refused():
    val = lw.training.EpisodeValidation(SEQUENCES[6:], lw.data.Episodes(SEQUENCES[6:].codes, 2, 1, 1), count=10)
    with pytest.raises(ValueError, match="every item of val is among the training items"):
        fit(metric(), SEQUENCES, spread, val=val, epochs=1, **QUIET)


def test_training_files_are_refused(tmp_path):
    for name, count in (("one", 12), ("other", 4)):  # two folders with copies of the same files
        for i in range(count):
            folder = tmp_path / name / "ab"[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"{i}.npy", np.full((4, 2), i, np.float32))
    train_set, val = (lw.data.open_sequence_folder(tmp_path / name) for name in ("one", "other"))
    with pytest.raises(ValueError, match="every item of val is among the training items"):
        fit(metric(), train_set, spread, val=val, epochs=1, **QUIET)
