"""Audio-to-score alignment, on small slices."""

import json
from dataclasses import replace

import pytest
import torch

import likewise as lw
from likewise.training import AlignedPairs
from likewise.training.path_step import warp_of
from papers.common import read_lines
from papers.decdtw import run
from papers.decdtw.data import read_slices
from papers.decdtw.run import Audio, Settings
from tests.papers.audio_problem import write_split
from tests.papers.foreign import second_device


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with audio/{train,val,test}.npz in it."""
    (tmp_path / "audio").mkdir()
    for seed, split in enumerate(("train", "val", "test")):
        write_split(tmp_path / "audio", split, slices=4, seed=seed)
    monkeypatch.setattr(run, "REGS", (0.01, 0.1))
    return tmp_path


def small(feature="chroma", **changes):
    return replace(Settings(feature, reg=0.01, grid=57, hidden=4, epochs=2, batch_size=3), **changes)


def parts(data, feature="chroma", device="cpu"):
    return [read_slices(data / "audio", split, feature).on(device) for split in ("train", "val", "test")]


def test_it_chooses_learns_scores_and_draws(data):
    where = Audio((3,), data, data / "results" / "lines.jsonl", device="cpu", plot=data / "slice.png")
    settings = small(reg=0.0, lr=1e-3)
    for method in ("base_dtw", "base_gdtw", "dilate", "decdtw", "decdtw"):  # the last one is there already
        run.main(where, replace(settings, method=method))
    lines = read_lines(where.out)
    assert [line["method"] for line in lines] == ["base_dtw", "base_gdtw", "dilate", "decdtw"]
    assert [line["seed"] for line in lines] == [None, None, 3, 3]
    for line in lines:
        assert 0 < line["time_err"] <= line["time_dev"]
    assert lines[3]["reg_base"] == lines[1]["reg_base"]
    assert lines[3]["reg_chosen"] in run.REGS
    assert "reg_chosen" not in lines[2]
    assert len(lines[3]["val_curve"]) == 3
    assert lines[3]["val_time_err"] == pytest.approx(min(lines[3]["val_curve"]), abs=0.01)
    assert (data / "slice.png").read_bytes().startswith(b"\x89PNG")


def test_features_are_aligned_the_other_way_too(data):
    where = Audio((3,), data, data / "lines.jsonl", device="cpu", cross=True)
    for method in ("base_dtw", "base_gdtw", "along_gt"):
        run.main(where, small(reg=0.0, method=method))
    dtw, gdtw, learned = read_lines(where.out)
    for one, other in ((dtw, gdtw), (gdtw, dtw)):
        assert one["crossed"]["method"] == other["method"]
        assert one["crossed"]["time_err"] == other["time_err"]
    assert learned["crossed"]["reg"] in run.REGS


@pytest.mark.parametrize("method", run.METHODS)
def test_nothing_is_left_on_the_cpu(data, method):
    settings, found = small(method=method, gamma=0.1), []
    for device in ("cpu", "meta"):
        torch.manual_seed(0)
        with second_device():
            encoders = run.Encoders(12, 4).to(device)
            train, _, test = parts(data, device=device)
            if method in run.LOSSES:
                run.LOSSES[method](settings, encoders(train)).backward()
                assert all(str(p.grad.device) == device for p in encoders.parameters())
            found.append(run.errors(settings, encoders, test)[0])
    assert torch.equal(*found)


def test_gdtw_finds_the_warp_that_made_the_data(data):
    _, _, test = parts(data, "mel")
    error, deviation = run.errors(small(method="base_gdtw", reg=1e-3), torch.nn.Identity(), test)
    assert error.max() < 10  # milliseconds, where frames are 50 apart
    assert (deviation >= error).all()
    by_frames, _ = run.errors(small(method="base_dtw"), torch.nn.Identity(), test)
    assert error.mean() < by_frames.mean() < 60


@pytest.mark.parametrize("method", run.LOSSES)
def test_a_step_against_the_gradient_lowers_the_loss(data, method):
    train = parts(data)[0]
    settings = small(method=method, gamma=0.1)
    torch.manual_seed(0)
    encoders = run.Encoders(12, 4)
    optimizer = torch.optim.SGD(encoders.parameters(), 1e-3)
    before = run.LOSSES[method](settings, encoders(train))
    before.backward()
    optimizer.step()
    assert run.LOSSES[method](settings, encoders(train)) < before


def test_encoders_begin_alike():
    encoders = run.Encoders(12, 4)
    assert all(map(torch.equal, encoders.score.parameters(), encoders.performance.parameters()))


def test_the_penalty_in_loops(data):
    pairs = parts(data)[0]
    found = run.time_penalty(pairs)
    step = pairs.x_times[1].item()
    for b in range(len(pairs)):
        points = {}
        for k in range(int(pairs.lengths[b])):
            points.setdefault(round(pairs.points[b, k].item() / step), []).append(pairs.truth[b, k].item())
        for i in range(found.shape[1]):
            for j in range(0, found.shape[2], 5):
                delays = [abs(t - pairs.y_times[j].item()) for t in points.get(i, [])]
                assert found[b, i, j].item() == pytest.approx(sum(delays) / max(1, len(delays)), abs=1e-6)


def test_of_regularisations_alike_the_least_is_chosen(monkeypatch):
    errors = {0.1: 30.0, 0.2: 27.6, 0.3: 27.1, 0.5: 27.2, 0.7: 60.0}
    monkeypatch.setattr(run, "REGS", tuple(errors))
    monkeypatch.setattr(run, "validation", lambda settings, *_: errors[settings.reg])
    assert run.best_reg(small(), torch.nn.Identity(), None) == 0.2


def test_held_out_scores_are_scored_without_the_test(data, capsys):
    (data / "audio" / "test.npz").unlink()
    run.main(Audio(data_dir=data, device="cpu"), small(method="base_dtw", validate=True))
    line = json.loads(capsys.readouterr().out)
    assert (line["train"], line["test"], line["validate"]) == (2, 2, True)
    assert line["slips"] in (0, 1, 2)


def test_dtw_keeps_the_last_match():
    x, y = torch.tensor([[[0.0], [1.0], [2.0]]]), torch.tensor([[[9.0], [0.0], [1.0], [1.0], [2.0]]])
    pairs = AlignedPairs(x, y, torch.zeros(1, 3), x_times=torch.arange(3) * 0.5, y_times=torch.arange(5) * 0.5)
    assert run.dtw_warp(pairs).values.tolist() == [[0.5, 1.5, 2.0]]
    assert isinstance(warp_of(run.gdtw(small(grid=21)), pairs), lw.distances.Warp)


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: --feature is 'mfcc'; expected one of cqt, chroma, mel"):
        run.main(Audio(data_dir=tmp_path), Settings("mfcc"))
    with pytest.raises(SystemExit, match="error: --method is 'otam'"):
        run.main(Audio(data_dir=tmp_path), Settings(method="otam"))
