"""TAP's experiments, on a few sequences."""

import json
from dataclasses import replace

import pytest
import torch

import likewise as lw
from papers.common import Run, read_lines
from papers.tap import data, run, run_framewise
from papers.tap.ordered_tap import OrderedTAP
from papers.tap.report import distances_table
from papers.tap.run import Settings
from tests.papers.small_data import write_digits


def quick(data_dir, **changes):
    return Run(seeds=(0,), data_dir=data_dir, device="cpu", **changes)


def test_it_trains_scores_and_resumes(tmp_path):
    write_digits(tmp_path)
    where = quick(tmp_path, folder=tmp_path / "runs", out=tmp_path / "lines")
    for epochs in (1, 2, 2):  # the second run resumes the first; the third has nothing to do
        run.main(where, Settings(epochs=epochs, batch_size=6))
    first, second = read_lines(tmp_path / "lines")
    assert {"map", "accuracy", "knn", "seconds_an_epoch", "norm_ratio", "alignment_mse"} <= set(first)
    assert first["loss_first_epoch"] == second["loss_first_epoch"]
    assert isinstance(lw.Metric.load(tmp_path / "runs" / "sad, hm, tap, seed 0"), lw.Metric)


@pytest.mark.parametrize(
    "row",
    [
        {"distance": "softdtw", "loss": "lifted"},
        {"distance": "otam"},
        {"distance": "dtw"},
        {"distance": "opw"},
        {"self_supervised": True},
        {"distance": "tap_transformer", "loss": "binomial", "augment": True},
        {"distance": "tap_ordered", "cosine": False},
        {"distance": "tap_symmetric"},
        {"distance": "tap_ordered_symmetric"},
        {"distance": "tap_deep", "loss": "hm_hinge", "jitter": (0.0, 0.0, 0.0), "cosine": False},
    ],
)
def test_every_kind_of_row_runs(tmp_path, row):
    write_digits(tmp_path)
    train, test = data.read_digits(tmp_path)
    (line,) = run.experiment(quick(tmp_path), Settings(epochs=1, batch_size=6, **row), 0, train, test)
    assert 0 <= line["map"] <= 1
    assert ("alignment_mse" in line) == (row.get("distance", "tap") not in ("otam", "dtw", "opw"))
    json.dumps(line)


def test_without_labels_the_frames_stay_as_they_are():
    assert run.build(Settings(self_supervised=True), 13).encoder is None


@pytest.mark.parametrize("loss", list(run_framewise.LOSSES))
def test_features_of_single_frames(tmp_path, loss):
    write_digits(tmp_path)
    where = quick(tmp_path, out=tmp_path / "lines")
    settings = run_framewise.Settings("sad", loss, epochs=2, checks=(1, 2), batch_size=6, lr=1e-3, validate=True)
    run_framewise.main(where, settings)
    run_framewise.main(where, settings)  # nothing to do
    run_framewise.main(where, replace(settings, validate=False, epochs=1))
    lines = read_lines(tmp_path / "lines")
    assert [(line["epoch"], line["aligner"]) for line in lines] == [
        (1, "dtw"), (1, "opw"), (2, "dtw"), (2, "opw"), (1, "dtw"), (1, "opw"),
    ]  # fmt: skip


def test_frames_are_real_ones_and_keep_their_labels():
    values = torch.arange(3.0)[:, None, None].expand(3, 5, 1).clone()
    values[1, 2:] = torch.nan
    batch = lw.Batch(values, [5, 2, 4])
    frames, labels = run_framewise.some_frames(batch, torch.tensor([7, 8, 9]), 20, torch.Generator().manual_seed(0))
    assert torch.equal(frames[:, 0] + 7, labels.float())


def test_a_speaker_is_held_out(tmp_path, capsys):
    write_digits(tmp_path)
    train, kept = data.held_out(data.read_digits(tmp_path)[0])
    assert (len(train), len(kept)) == (9, 3)  # of four speakers, three utterances each
    run.main(quick(tmp_path), Settings(epochs=1, batch_size=3, validate=True, augment=True))
    line = json.loads(capsys.readouterr().out)
    assert (line["train"], line["test"], line["validate"], line["augment"]) == (9, 3, True, True)


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: --distance is 'twed'; expected one of tap"):
        run.main(quick(tmp_path), Settings(distance="twed"))
    with pytest.raises(SystemExit, match="does not exist; give --data-dir"):
        run.main(quick(tmp_path), Settings())


def test_the_real_data_are_as_described(shared_data):
    train, test = data.read_digits(shared_data)
    assert (len(train), len(test), len(train.classes)) == (6600, 2200, 10)
    frames = train.items.values[train.items.mask]
    assert torch.allclose(frames.mean(0), torch.zeros(13), atol=1e-4)
    train, test = data.read_actions(shared_data)
    assert (len(train), len(test), len(train.classes)) == (290, 270, 20)
    assert int(train.items.lengths.max()) <= data.LONGEST


def test_a_check_is_a_shorter_run(tmp_path):
    write_digits(tmp_path)
    train, test = data.read_digits(tmp_path)
    short = Settings(epochs=2, batch_size=6, distance="softdtw", cosine=False)
    (alone,) = run.experiment(quick(tmp_path), short, 0, train, test)
    first, last = run.experiment(quick(tmp_path), replace(short, epochs=3, checks=(2,)), 0, train, test)
    assert first["epochs"] == 2
    assert "epochs" not in last
    assert (first["accuracy"], first["map"]) == (alone["accuracy"], alone["map"])
    with pytest.raises(SystemExit, match="error: --checks needs --no-cosine"):
        run.main(quick(tmp_path), Settings(checks=(1,)))


def test_each_speaker_is_held_out_once(tmp_path):
    write_digits(tmp_path)
    train, _ = data.read_digits(tmp_path)
    kept = [data.held_out(train, fold)[1].groups for fold in range(4)]
    assert all(len(set(groups)) == 1 for groups in kept)
    assert sum(map(len, kept)) == len(train)


def test_ordered_tap_starts_from_the_order_of_time():
    torch.manual_seed(0)
    x, y = (torch.nn.functional.normalize(torch.randn(1, steps, 4, dtype=torch.float64), dim=2) for steps in (6, 9))
    ordered = OrderedTAP(4, (3, 3), temperature=0.2, order=30.0).double()
    D = torch.cdist(x[0], y[0])
    i, j = torch.arange(1, 7)[:, None] / 6, torch.arange(1, 10) / 9
    A = (-(D / 0.2) - 30 * (i.double() - j.double()).square()).softmax(1)
    assert torch.allclose(ordered(x, y), (A * D).sum() / 6, atol=1e-6)
    assert (round(ordered.temperature, 6), round(ordered.order, 4)) == (0.2, 30.0)
    assert "temperature=0.2, order=30" in repr(ordered)
    padded = lw.Batch(torch.nn.functional.pad(y, (0, 0, 0, 5), value=torch.nan), [9])
    assert torch.allclose(ordered(lw.Batch(x, [6]), padded), ordered(x, y), atol=1e-12)


def test_ordered_tap_learns_all_that_it_has():
    torch.manual_seed(0)
    ordered, x = OrderedTAP(4, (3, 3)), torch.randn(5, 8, 3)
    before = {name: value.detach().clone() for name, value in ordered.named_parameters()}
    optimizer = torch.optim.Adam(ordered.parameters(), lr=1e-2)
    for _ in range(2):  # the first convolution has a gradient once the last one is no longer zero
        optimizer.zero_grad()
        ordered.matrix(x).sum().backward()
        optimizer.step()
    same = {name for name, value in ordered.named_parameters() if torch.equal(value, before[name])}
    assert same <= {"convolutions.1.bias"}  # which the softmax does not see


def test_changed_skeletons_are_seen_in_training_alone():
    encoder = run.build(Settings(turned=True, jitter=(0.0, 0.0, 0.0), dropout=0.0), 60).encoder
    x = lw.Batch(torch.randn(3, 12, 60), [12, 7, 5])
    assert torch.equal(encoder.eval()(x).values, encoder.encoder(x).values)
    assert not torch.equal(encoder.train()(x).values, encoder.encoder(x).values)


def test_tap_without_labels_stands_below_the_untrained_distances():
    knn = {"1": 0.5, "5": 0.5, "30": 0.25}
    plain = {"data": "msr_action3d", "distance": "dtw", "test": 4, "map": 0.5, "knn": knn, "seconds_a_query": 0.1}
    learned = {"map": 0.25, "accuracy": 0.5, "knn": knn, "test": 4, "test_seconds": 2.0}
    learned |= {"validate": False, "cosine": False, "lr": 1e-3, "epochs": 5}
    held_out = learned | {"validate": True}
    not_chosen = [learned | {"epochs": 9, "map": 0.9}, held_out | {"epochs": 9, "accuracy": 0.1}]
    *_, last = distances_table([plain], [learned, learned, held_out, *not_chosen]).splitlines()
    name = "TAP, trained without labels, 2 seeds"
    assert last == f"| {name} | 4 | 0.250 ± 0.000 (0.557) | 50.00 ± 0.00 (79.85) | 50.00 ± 0.00 | 25.00 ± 0.00 | 0.5 |"
