"""The recipe of few-shot classification, on a few sequences."""

import json

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.recipes import few_shot, few_shot_data
from likewise.recipes.few_shot_data import SIDES, Part, SkeletonChange, read, read_features, with_mirror_images
from tests.models.conftest import one_thread  # noqa: F401

SMALL = {"steps": 2, "episodes_a_step": 2, "queries": 1, "tests": 20, "seeds": 1, "width": 3, "frames": 6}


@pytest.fixture(autouse=True)
def few_classes(monkeypatch):
    monkeypatch.setitem(few_shot_data.TEST_CLASSES, "utd_mhad", 3)
    monkeypatch.setitem(few_shot_data.VALIDATION_CLASSES, "utd_mhad", 2)


def tiny(folder):
    """A file as utd_mhad_skeleton.npz is: 8 classes, 3 subjects, twice each."""
    random = np.random.default_rng(0)
    labels, subjects = np.repeat(np.arange(8), 6), np.tile([1, 1, 2, 2, 3, 3], 8)
    lengths = random.integers(7, 12, len(labels))
    poses = random.standard_normal((8, 1, 20, 3))
    frames = [poses[k] + 0.3 * random.standard_normal((n, 20, 3)) for k, n in zip(labels, lengths, strict=True)]
    np.savez(
        folder / "utd_mhad_skeleton.npz",
        frames=np.concatenate(frames).astype(np.float32),
        offsets=np.concatenate([[0], lengths.cumsum()]),
        labels=labels,
        subject=subjects,
    )


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_trains_scores_and_goes_on(tmp_path, capsys):
    tiny(tmp_path)
    options = SMALL | {
        "data_dir": tmp_path,
        "ways": 3,
        "shots": 1,
        "folder": tmp_path / "runs",
        "out": tmp_path / "lines",
    }
    few_shot.main(**options | {"seeds": 2, "method": "satap"})
    few_shot.main(**options | {"seeds": 1, "method": "satap"})  # what is done is not done again
    lines = lines_of(tmp_path / "lines")
    assert [(line["seed"], line["ways"], line["shots"]) for line in lines] == [(0, 3, 1), (1, 3, 1), (0, 3, 1)]
    assert lines[0]["accuracy"] == lines[2]["accuracy"] > 0.5
    assert lines[0]["test_items"] == 18
    assert {"interval", "validation_accuracy", "best_epoch", "wall_time", "device"} <= set(lines[0])
    out = capsys.readouterr().out
    assert "3-way 1-shot" in out
    assert "SA-TAP" in out
    metric = lw.Metric.load(tmp_path / "runs" / "utd_mhad, SA-TAP, 1-shot, seed 0")
    assert isinstance(metric.distance, lw.TAP)


def test_the_table_has_every_method(tmp_path, capsys, monkeypatch):
    tiny(tmp_path)
    monkeypatch.setattr(few_shot, "WAYS", (2, 3, 10))
    monkeypatch.setattr(few_shot, "SHOTS", (1, 2))
    few_shot.main(**SMALL | {"data_dir": tmp_path, "table": True, "out": tmp_path / "lines", "validations": 20})
    lines = lines_of(tmp_path / "lines")
    assert {(line["method"], line["trained"]) for line in lines} == set(few_shot.TABLE)
    assert {(line["ways"], line["shots"]) for line in lines} == {
        (2, 1),
        (2, 2),
        (3, 1),
        (3, 2),
    }  # no 10-way of 3 classes
    out = capsys.readouterr().out
    for name in ("DTW, untrained", "TAP", "OTAM", "SoftDTW", "mean frames, prototypes"):
        assert name in out


@pytest.mark.parametrize("options", [{"method": "dtw", "encoder": "mlp"}, {"encoder": "tcn", "augment": False}])
def test_other_methods_and_encoders(tmp_path, options, capsys):
    tiny(tmp_path)
    few_shot.main(**SMALL | {"data_dir": tmp_path, "ways": 2, "shots": 1, "items": 4} | options)
    assert "2-way 1-shot" in capsys.readouterr().out


def test_features_of_clips(tmp_path, capsys):
    random = np.random.default_rng(0)
    splits = tmp_path / "splits"
    splits.mkdir()
    for part, classes in (("train", "ABC"), ("val", "DE"), ("test", "FGH")):
        names = [f"{c}/v_{c}_g0{i}.avi" for c in classes for i in range(4)]
        (splits / f"{part}list03.txt").write_text("".join(f"{name} 7\n" for name in names) + "\n")
        for name in names:
            path = tmp_path / name.replace(".avi", ".npy")
            path.parent.mkdir(exist_ok=True)
            np.save(path, random.standard_normal((11, 5)) + 5 * ord(name[0]))
    split = read_features(tmp_path, splits, 8)
    assert [len(part) for part in (split.train, split.val, split.test)] == [12, 8, 12]
    assert split.test.sequences.values.shape == (12, 8, 5)
    few_shot.main(**SMALL | {"features": tmp_path, "splits": splits, "ways": 3, "shots": 2})
    assert "features: accuracy" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "F" / "v_F_g00.npy").unlink()
    with pytest.raises(SystemExit, match=r"testlist03\.txt, line 1: no features F/v_F_g00"):
        read_features(tmp_path, splits, 8)
    (splits / "testlist03.txt").write_text("F\n")
    with pytest.raises(SystemExit, match="line 1: expected Class/clip, got 'F'"):
        read_features(tmp_path, splits, 8)
    (splits / "testlist03.txt").unlink()
    with pytest.raises(SystemExit, match=r"expected one file testlist\*\.txt, found 0"):
        read_features(tmp_path, splits, 8)


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: unknown 'trx'; expected one of tap"):
        few_shot.main(method="trx", data_dir=tmp_path)
    with pytest.raises(SystemExit, match="is not there; give --data-dir"):
        few_shot.main(data_dir=tmp_path)
    tiny(tmp_path)
    with pytest.raises(ValueError, match="Episodes: 9 ways need 9 classes, but there are 3"):
        few_shot.main(**SMALL | {"data_dir": tmp_path, "ways": 9, "shots": 1, "trained": False})


def test_mirror_images_are_classes_of_their_own():
    sequences = lw.Batch(torch.randn(4, 5, 60))
    part = Part(sequences, torch.tensor([3, 3, 7, 7]), torch.tensor([1, 2, 1, 2]))
    whole = with_mirror_images(part, *SIDES["utd_mhad"])
    assert whole.labels.tolist() == [3, 3, 7, 7, 11, 11, 15, 15]
    assert whole.groups.tolist() == [1, 2, 1, 2] * 2
    before, after = (x.unflatten(2, (20, 3)) for x in (sequences.values, whole.sequences.values[4:]))
    assert torch.equal(after[:, :, 4], before[:, :, 8] * torch.tensor([-1, 1, 1]))
    assert torch.equal(after[:, :, 0], before[:, :, 0] * torch.tensor([-1, 1, 1]))
    twice = with_mirror_images(Part(whole.sequences[4:], part.labels, None), *SIDES["utd_mhad"])
    assert torch.equal(twice.sequences.values[4:], sequences.values)


def test_changed_skeletons_keep_lengths_and_the_generator_decides():
    batch = lw.Batch(torch.randn(3, 8, 60), [8, 1, 5])
    one, two, other = (SkeletonChange()(batch, torch.Generator().manual_seed(seed)).batch for seed in (0, 0, 1))
    assert one == two
    assert one != other
    assert torch.equal(one.lengths, batch.lengths)
    # Turning alone leaves distances to the vertical axis, and heights.
    turned = SkeletonChange(stretch=0, noise=0, cut=0)(batch[1:2], torch.Generator().manual_seed(0)).batch
    before, after = (x.values[0, 0].unflatten(0, (20, 3)) for x in (batch[1:2], turned))
    torch.testing.assert_close(after[:, 1], before[:, 1])
    torch.testing.assert_close(after[:, [0, 2]].norm(dim=1), before[:, [0, 2]].norm(dim=1))


@pytest.mark.parametrize("data", ["utd_mhad", "msr_action3d", "omniglot", "sad"])
def test_the_real_data_are_as_described(data, shared_data, monkeypatch):
    monkeypatch.undo()
    split = read(data, shared_data, 32)
    classes = [set(part.labels.tolist()) for part in (split.train, split.val, split.test)]
    assert not classes[1] & classes[2]
    assert len(classes[2]) == few_shot_data.TEST_CLASSES[data]
    if data in SIDES:
        joints = split.test.sequences.values.unflatten(2, (20, 3))
        assert joints[:, :, few_shot_data.HIPS[data]].abs().max() == 0
        torch.testing.assert_close(joints.norm(dim=3).mean(), torch.tensor(1.0), atol=0.02, rtol=0)
    else:
        assert not classes[0] & (classes[1] | classes[2])
