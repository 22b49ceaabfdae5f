"""Few-shot classification of skeletons, on a few sequences."""

import json

import numpy as np
import pytest
import torch

import likewise as lw
from papers.common import Run, read_lines
from papers.tap import data_few_shot, report, run_few_shot
from papers.tap import run_few_shot_splits as splits
from papers.tap.data_few_shot import SIDES, SkeletonChange, read, with_mirror_images
from papers.tap.run_few_shot import Settings
from tests.papers.small_data import write_skeletons

SMALL = {"steps": 2, "episodes_a_step": 2, "queries": 1, "tests": 20, "validations": 20, "width": 3, "frames": 6}


@pytest.fixture(autouse=True)
def few_classes(monkeypatch):
    monkeypatch.setitem(data_few_shot.TEST_CLASSES, "utd_mhad", 3)
    monkeypatch.setitem(data_few_shot.VALIDATION_CLASSES, "utd_mhad", 2)


def test_it_trains_scores_and_resumes(tmp_path):
    write_skeletons(tmp_path)
    where = Run((0, 1), tmp_path, out=tmp_path / "lines", folder=tmp_path / "runs", device="cpu")
    settings = Settings(method="satap", ways=(2, 3), shots=(1,), **SMALL)
    run_few_shot.main(where, settings)
    run_few_shot.main(Run((0,), tmp_path, out=tmp_path / "lines", folder=tmp_path / "runs", device="cpu"), settings)
    lines = read_lines(tmp_path / "lines")
    seen = [(line["seed"], line["ways"], line["shots"]) for line in lines]
    assert seen == [(0, 2, 1), (0, 3, 1), (1, 2, 1), (1, 3, 1), (0, 2, 1), (0, 3, 1)]
    assert lines[1]["accuracy"] == lines[5]["accuracy"] > 0.5
    assert lines[0]["test_items"] == 18
    assert {"interval", "validation_accuracy", "best_epoch", "wall_time", "device"} <= set(lines[0])
    metric = lw.Metric.load(tmp_path / "runs" / "utd_mhad, satap, 1-shot, seed 0")
    assert isinstance(metric.distance, lw.TAP)


@pytest.mark.parametrize(("method", "trained"), [("dtw", False), ("mean", True), ("softdtw", True), ("otam", True)])
def test_other_methods_run(tmp_path, capsys, method, trained):
    write_skeletons(tmp_path)
    settings = Settings(method=method, trained=trained, ways=(2,), shots=(1, 2), augment=False, **SMALL)
    run_few_shot.main(Run((0,), tmp_path, device="cpu"), settings)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["shots"] for line in lines] == [1, 2]
    assert ("best_epoch" in lines[0]) == trained


def test_splits(tmp_path):
    write_skeletons(tmp_path)
    run = Run((0,), tmp_path, out=tmp_path / "lines", device="cpu")
    settings = splits.Settings("utd_mhad", ("mean", "dtw"), (4, 6), 2, (2, 3), (1, 2), 20, 20)
    for _ in range(2):  # the second time there is nothing to do
        splits.main(run, settings)
    lines = read_lines(tmp_path / "lines")
    assert len(lines) == 2 * 2 * 2 * 2
    assert {line["chosen"] for line in lines if line["shots"] == 1} == {"mean"}
    assert {line["chosen_frames"] for line in lines} <= {4, 6}
    assert all(line["accuracy"] == line["every"][line["chosen"]] for line in lines if line["shots"] == 2)


def test_splits_of_a_trained_method(tmp_path):
    write_skeletons(tmp_path, subjects=6)
    run = Run((0,), tmp_path, out=tmp_path / "lines", device="cpu")
    settings = splits.Settings("utd_mhad", ("softdtw",), (4, 6), 2, (2, 3), (1, 2), 20, 20, trained=True, steps=2)
    for _ in range(2):  # the second time there is nothing to do
        splits.main(run, settings)
    lines = read_lines(tmp_path / "lines")
    assert len(lines) == 2 * 2 * 2
    assert all(line["trained"] and line["chosen_frames"] in (4, 6) for line in lines)
    with pytest.raises(SystemExit, match="error: --methods is 'dtw'; expected one of softdtw"):
        splits.main(run, splits.Settings("utd_mhad", ("dtw",), trained=True))


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: --method is 'trx'; expected one of tap"):
        run_few_shot.main(Run(data_dir=tmp_path), Settings(method="trx"))
    write_skeletons(tmp_path)
    with pytest.raises(ValueError, match="Episodes: 9 ways need 9 classes, but there are 3"):
        run_few_shot.main(Run(data_dir=tmp_path), Settings(ways=(9,), trained=False))


def test_mirror_images_are_classes_of_their_own():
    items = lw.Batch(torch.randn(4, 5, 60))
    whole = with_mirror_images(lw.Dataset(items, [3, 3, 7, 7], groups=[1, 2, 1, 2]), *SIDES["utd_mhad"])
    assert len(whole.classes) == 4
    assert whole.labels[4:].tolist() == ["3 mirrored", "3 mirrored", "7 mirrored", "7 mirrored"]
    assert whole.groups.tolist() == [1, 2, 1, 2] * 2
    before, after = (x.unflatten(2, (20, 3)) for x in (items.values, whole.items.values[4:]))
    assert torch.equal(after[:, :, 4], before[:, :, 8] * torch.tensor([-1, 1, 1]))
    assert torch.equal(after[:, :, 0], before[:, :, 0] * torch.tensor([-1, 1, 1]))
    twice = with_mirror_images(whole[4:], *SIDES["utd_mhad"])
    assert torch.equal(twice.items.values[4:], items.values)


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


@pytest.mark.parametrize("data", ["utd_mhad", "msr_action3d"])
def test_the_real_data_are_as_described(data, shared_data, monkeypatch):
    monkeypatch.undo()
    split = read(data, shared_data, 32)
    classes = [set(part.labels.tolist()) for part in (split.train, split.val, split.test)]
    assert not classes[0] & classes[1]
    assert not classes[1] & classes[2]
    assert not classes[0] & classes[2]
    assert len(classes[2]) == data_few_shot.TEST_CLASSES[data]
    joints = split.test.items.values.unflatten(2, (20, 3))
    assert joints[:, :, data_few_shot.HIPS[data]].abs().max() == 0
    torch.testing.assert_close(joints.norm(dim=3).mean(), torch.tensor(1.0), atol=0.02, rtol=0)
    assert split.train.groups.dtype == np.dtype(split.test.groups.dtype)


def test_methods_are_compared_on_the_splits_that_both_have():
    def line(method: str, trained: bool, split: int, accuracy: float) -> dict:
        about = {"data": "msr_action3d", "method": method, "trained": trained, "split": split, "accuracy": accuracy}
        return about | {"every": {"mean": accuracy - 0.1}}

    lines = [
        {**line(method, trained, split, accuracy + split / 100), "ways": ways, "shots": shots}
        for method, trained, count, accuracy in (("dtw", False, 10, 0.5), ("softdtw", True, 10, 0.6), ("tap", True, 3, 0.7))
        for split in range(count)
        for ways, shots in report.WAYS_SHOTS
    ]  # fmt: skip
    rows = report.splits_table(lines).splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| MSR Action3D, ") for row in rows] == [
        "DTW, untrained", "soft-DTW, trained", "TAP, trained, splits 0 to 2", "DTW, untrained, splits 0 to 2",
        "soft-DTW, trained, splits 0 to 2",
    ]  # fmt: skip
    assert rows[3].split(" | ")[1].startswith("51.0 ±")  # 50, 51 and 52
    gains = report.gains_table(lines).splitlines()[-1]
    assert gains.startswith("| MSR Action3D, TAP, trained, less soft-DTW, trained | +10.0 ± 0.0, 3 of 3 |")
