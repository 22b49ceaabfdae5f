"""The recipe of audio-to-score alignment, on small slices."""

import json
from dataclasses import replace

import pytest
import torch

import likewise as lw
from likewise.recipes import audio_score
from likewise.recipes.audio_slices import read_slices
from tests.recipes.audio_problem import write_split
from tests.recipes.foreign import second_device


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with audio/{train,val,test}.npz in it."""
    (tmp_path / "audio").mkdir()
    for seed, split in enumerate(("train", "val", "test")):
        write_split(tmp_path / "audio", split, slices=4, seed=seed)
    monkeypatch.setattr(audio_score, "REGS", (0.01, 0.1))
    return tmp_path


def small_settings(feature, **changes):
    """Settings for slices of a few frames."""
    return replace(SETTINGS(feature, grid=57, hidden=4), **changes)


SETTINGS = audio_score.Settings


def small(feature="chroma", **changes):
    return replace(SETTINGS(feature, reg=0.01, grid=57, hidden=4, epochs=2, batch_size=3), **changes)


def parts(data, feature="chroma"):
    return [read_slices(data / "audio", split, feature) for split in ("train", "val", "test")]


def test_all_methods_make_a_table(data, capsys, monkeypatch):
    monkeypatch.setattr(audio_score, "Settings", small_settings)
    out = data / "results" / "lines.jsonl"
    audio_score.main(
        features="chroma,mel", seeds=1, epochs=1, batch_size=2, data_dir=data, out=out, plot=data / "slice.png",
        items=2, folder=data / "runs", device="cpu", methods=",".join(audio_score.BASE + audio_score.LEARNED),
        reg=None, first_seed=3, lr=1e-3, mel_dir=None,
    )  # fmt: skip
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["method"] for line in lines[:6]] == list(audio_score.BASE + audio_score.LEARNED)
    assert [line["feature"] for line in lines] == ["chroma"] * 6 + ["mel"] * 6
    assert [line["seed"] for line in lines[:6]] == [None, None, 3, 3, 3, 3]
    assert lines[4]["gamma"] == 0.1
    for line in lines:
        assert 0 < line["time_err"] <= line["time_dev"]
        assert line["device"] == "cpu"
    assert lines[5]["reg_chosen"] in audio_score.REGS
    assert "reg_chosen" not in lines[4]
    printed = capsys.readouterr().out
    assert "decdtw" in printed
    assert "mel TimeErr" in printed
    for feature in ("chroma", "mel"):
        assert (data / f"slice_{feature}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("method", audio_score.BASE + audio_score.LEARNED)
def test_nothing_is_left_on_the_cpu(data, method):
    settings, seed = small(method=method, gamma=0.1, epochs=1, lr=1e-2), None if method in audio_score.BASE else 1
    home = audio_score.run(settings, seed, *parts(data))[1]
    with second_device():
        away = audio_score.run(settings, seed, *(part.to("meta") for part in parts(data)))[1]
    for name in ("time_err", "time_dev", "losses", "val_curve"):
        assert home.get(name) == away.get(name)


def test_another_device_is_drawn(data):
    settings = small(method="decdtw")
    with second_device():
        audio_score.draw(data / "slice.png", (settings, settings), torch.nn.Identity(), parts(data)[2].to("meta"))
    assert (data / "slice.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_of_several_files(data, capsys):
    line = {"feature": "cqt", "method": "decdtw", "time_dev": 3.0, "time_dev_median": 2.0}
    rows = [line | {"seed": seed, "time_err": 10.0 + seed, "time_err_median": 9.0} for seed in (1, 2, 3)]
    base = line | {"method": "base_gdtw", "seed": None, "time_err": 20.0, "time_err_median": 19.0}
    for name, part in (("a", [base, *rows[:2]]), ("b", [base, rows[2]])):
        (data / name).write_text("".join(json.dumps(each) + "\n" for each in part))
    audio_score.main(report=[data / "a", data / "b"])
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert next(cells for cells in printed if "decdtw" in cells)[3:10] == ["3", "│", "12.0", "±", "1.0", "(9.0)", "│"]
    assert next(cells for cells in printed if "base_gdtw" in cells)[3:7] == ["1", "│", "20.0", "(19.0)"]


def test_gdtw_finds_the_warp_that_made_the_data(data):
    _, _, test = parts(data, "mel")
    error, deviation = audio_score.errors(small(method="base_gdtw", reg=1e-3), torch.nn.Identity(), test)
    assert error.max() < 10  # milliseconds, where frames are 50 apart
    assert (deviation >= error).all()
    by_frames, _ = audio_score.errors(small(method="base_dtw"), torch.nn.Identity(), test)
    assert error.mean() < by_frames.mean() < 60


def test_learning_goes_on_where_it_stopped(data):
    train, val, test = parts(data)
    whole = audio_score.run(small(epochs=3, lr=1e-2), 1, train, val, test)[1]
    state = data / "state.safetensors"
    audio_score.run(small(epochs=1, lr=1e-2), 1, train, val, test, state=state)
    rest = audio_score.run(small(epochs=3, lr=1e-2), 1, train, val, test, state=state)[1]
    for name in ("losses", "val_curve", "time_err", "best_epoch"):
        assert rest[name] == whole[name]
    assert len(whole["val_curve"]) == 4
    assert whole["val_time_err"] == pytest.approx(min(whole["val_curve"]), abs=0.01)


@pytest.mark.parametrize("method", audio_score.LEARNED)
def test_a_step_against_the_gradient_lowers_the_loss(data, method):
    train = parts(data)[0]
    settings = small(method=method, gamma=0.1)
    torch.manual_seed(0)
    encoders = audio_score.Encoders(12, 4)
    optimizer = torch.optim.SGD(encoders.parameters(), 1e-3)
    before = audio_score.LOSSES[method](settings, encoders(train))
    before.backward()
    optimizer.step()
    assert audio_score.LOSSES[method](settings, encoders(train)) < before


def test_encoders_begin_alike():
    encoders = audio_score.Encoders(12, 4)
    assert all(
        torch.equal(a, b) for a, b in zip(encoders.score.parameters(), encoders.performance.parameters(), strict=True)
    )


def test_the_penalty_in_loops(data):
    slices = parts(data)[0]
    found = audio_score.time_penalty(slices)
    step = slices.score_times[1].item()
    for b in range(len(slices)):
        points = {}
        for k in range(int(slices.lengths[b])):
            points.setdefault(round(slices.changes[b, k].item() / step), []).append(slices.truth[b, k].item())
        for i in range(found.shape[1]):
            for j in range(0, found.shape[2], 5):
                delays = [abs(t - slices.performance_times[j].item()) for t in points.get(i, [])]
                assert found[b, i, j].item() == pytest.approx(sum(delays) / max(1, len(delays)), abs=1e-6)


def test_regularisation_is_chosen_on_validation_slices(data):
    val = parts(data)[1]
    chosen = audio_score.best_reg(small(), torch.nn.Identity(), val)
    scores = {
        reg: audio_score.validation(small(method="base_gdtw", reg=reg), torch.nn.Identity(), val)
        for reg in audio_score.REGS
    }
    assert chosen == min(reg for reg in scores if scores[reg] <= 1.02 * min(scores.values()))


def test_of_regularisations_alike_the_least_is_chosen(monkeypatch):
    errors = {0.1: 30.0, 0.2: 27.6, 0.3: 27.1, 0.5: 27.2, 0.7: 60.0}
    monkeypatch.setattr(audio_score, "REGS", tuple(errors))
    monkeypatch.setattr(audio_score, "validation", lambda settings, *_: errors[settings.reg])
    assert audio_score.best_reg(small(), torch.nn.Identity(), None) == 0.2


def test_held_out_scores_are_scored_without_the_test(data, capsys):
    (data / "audio" / "test.npz").unlink()
    audio_score.main(features="chroma", methods="base_dtw", data_dir=data, validate=True, device="cpu")
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (line["train"], line["test"], line["validate"]) == (2, 2, True)
    assert line["slips"] in (0, 1, 2)


def test_dtw_keeps_the_last_match():
    slices = audio_score.Slices(
        torch.tensor([[[0.0], [1.0], [2.0]]]), torch.tensor([[[9.0], [0.0], [1.0], [1.0], [2.0]]]),
        torch.arange(3) * 0.5, torch.arange(5) * 0.5, torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor([2]), torch.tensor([0]),
    )  # fmt: skip
    assert audio_score.dtw_warp(small(), slices).values.tolist() == [[0.5, 1.5, 2.0]]
    assert isinstance(audio_score.gdtw_warp(small(grid=21), slices), lw.Warp)


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: unknown feature 'mfcc'; expected some of cqt, chroma, mel"):
        audio_score.main(features="mfcc", data_dir=tmp_path)
    with pytest.raises(SystemExit, match="error: unknown method 'otam'"):
        audio_score.main(methods="otam", data_dir=tmp_path)
