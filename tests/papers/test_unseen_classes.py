"""The recipe of unseen classes, on a few items."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import likewise as lw
from likewise.models.random_crop import RandomCrop
from likewise.recipes import unseen_classes as recipe
from likewise.recipes import unseen_classes_data as data_of
from likewise.recipes import unseen_classes_report as report
from likewise.recipes.common import rounded
from likewise.recipes.unseen_classes_data import Part
from likewise.recipes.unseen_classes_parts import Settings, make_additions, make_encoder, make_loss, make_rates, scores


def digits(folder):
    """A file as spoken_arabic_digits.npz is, of short sequences of all ten digits."""
    random, arrays = np.random.default_rng(0), {}
    for part, count in (("train", 40), ("test", 20)):
        lengths = random.integers(5, 9, count)
        labels = np.arange(count) % 10
        values = random.standard_normal((lengths.sum(), 13)) + np.repeat(labels, lengths)[:, None]
        arrays |= {f"values_{part}": values.astype(np.float32), f"lengths_{part}": lengths, f"y_{part}": labels}
        arrays[f"speaker_{part}"] = np.arange(count) // 10
    np.savez(folder / "spoken_arabic_digits.npz", **arrays)


def flowers(folder):
    """A file as flowers102_webp96.npz is: four images of eight classes on either side."""
    labels = np.repeat([0, 3, 7, 9, 20, 22, 30, 50, 51, 60, 61, 70, 80, 90, 100, 101], 4)
    contents = []
    for label in labels:
        buffer = io.BytesIO()
        Image.new("RGB", (96, 96), (int(label), 255 - int(label), 7)).save(buffer, "WEBP")
        contents.append(np.frombuffer(buffer.getvalue(), np.uint8))
    offsets = np.cumsum([0, *map(len, contents)])
    np.savez(folder / "flowers102_webp96.npz", images=np.concatenate(contents), offsets=offsets, labels=labels)


def skeletons(folder):
    """A file as utd_mhad_skeleton.npz is: two of each action, the number of the action being how far a hand moves."""
    labels = np.repeat(np.arange(27), 2)
    frames = np.random.default_rng(0).standard_normal((len(labels), 5, 20, 3)).astype(np.float32)
    frames[:, -1, 0, 0] += 1000 * labels
    offsets = 5 * np.arange(len(labels) + 1)
    subject = np.arange(len(labels)) % 2
    np.savez(
        folder / "utd_mhad_skeleton.npz", frames=frames.reshape(-1, 20, 3), offsets=offsets, labels=labels,
        subject=subject,
    )  # fmt: skip


def some_images(classes=6, each=4):
    labels = torch.arange(classes * each) % classes
    images = torch.randint(256, (len(labels), 3, 16, 16), dtype=torch.uint8)
    images[:, 0] = (30 * labels)[:, None, None].to(torch.uint8)
    return Part(images, labels)


def test_sequences_from_the_file_to_the_table(tmp_path, capsys):
    digits(tmp_path)
    out, given = (
        tmp_path / "lines.jsonl",
        {"data": "sad", "data_dir": tmp_path, "epochs": 2, "batch_size": 6, "seeds": 2},
    )
    given |= {"loss": "am_softmax", "add": "all", "embedding": 4, "encoder": "gru", "out": out}
    recipe.main(**given, plot=tmp_path / "curves.png")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    folds, lines = lines[:2], lines[2:]
    assert [(line["validate"], line["fold"], line["seed"]) for line in folds] == [(True, 0, 0), (True, 1, 0)]
    assert [(line["validate"], line["fold"], line["seed"]) for line in lines] == [(False, None, 0), (False, None, 1)]
    assert [(line["classes"], line["test_classes"]) for line in folds] == [(3, 2), (2, 3)]
    assert (lines[1]["classes"], lines[1]["test_classes"]) == (5, 5)
    assert lines[1]["epochs"] == report.best(folds).epoch
    assert set(lines[1]["recall"]) == {"1", "2", "4", "8"}
    assert 0 <= lines[1]["nmi"] <= 1
    assert len(lines[1]["curve"]) == lines[1]["epochs"]
    assert (tmp_path / "curves.png").stat().st_size > 1000
    table = capsys.readouterr().out
    assert "am_softmax + all" in table
    assert "held out" in table
    recipe.main(**given)  # everything is there already
    assert len(out.read_text().splitlines()) == 4
    recipe.main(data="sad", out=out, report_only=True)
    assert "am_softmax + all" in capsys.readouterr().out


def test_images_from_webp_to_a_metric_in_a_folder(tmp_path):
    flowers(tmp_path)
    recipe.main(
        data="flowers102", data_dir=tmp_path, loss="triplet", add="gdfl+adapt_adv", encoder="small", epochs=1,
        choose=False, seeds=1, crop=24, embedding=4, batch_size=8, folder=tmp_path / "runs", out=tmp_path / "out",
        items=32, with_untrained=True,
    )  # fmt: skip
    first, second = (json.loads(line) for line in (tmp_path / "out").read_text().splitlines())
    assert first["loss"] == "untrained"
    assert (second["train"], second["test"], second["classes"]) == (32, 32, 8)
    kept = tmp_path / "runs" / "flowers102" / "triplet + gdfl+adapt_adv, seed 0"
    metric = lw.Metric.load(kept, classes=[RandomCrop])
    assert isinstance(metric.encoder, lw.Embedder)


@pytest.mark.parametrize(
    ("loss", "add"),
    [
        ("triplet", "energy+jmmd"),
        ("angular", "gdfl+soft_adv+mrd"),
        ("proxy_nca", "energy+jmmd"),
        ("am_softmax", "gdfl+soft_adv+mrd"),
    ],
)
def test_losses_and_additions_run_together(loss, add):
    settings = Settings(loss=loss, add=add, encoder="small", embedding=4, crop=12, epochs=1, batch_size=8)
    found = recipe.run(settings, 0, some_images(), some_images(3))
    json.dumps(found)
    assert found["loss_last_epoch"] == found["loss_first_epoch"]


def test_what_is_added_where_and_at_which_rate():
    settings = Settings(loss="proxy_nca", add="gdfl+adapt_adv+jrd", encoder="small", embedding=4, strength=0.3, alpha=2)
    loss = make_loss(settings, 5)
    terms, adversary = make_additions(settings, loss)
    assert isinstance(adversary, lw.AdaptiveAdversary)
    assert adversary.strength == 0.3
    assert [term.weight for term in terms] == [2]
    assert terms[0].of == ["backbone", None, loss.distances]
    assert make_rates(settings, loss, adversary) == {
        "encoder.backbone": 1e-4, "encoder.backbone.encoder.attentions": 1e-3, "loss": 1e-2, "adversary": 1e-3,
        "rest": 1e-3,
    }  # fmt: skip
    assert isinstance(make_encoder(settings, 3).backbone.encoder, lw.AttendedFeatures)
    plain = Settings(loss="triplet", encoder="small")
    assert make_additions(plain, make_loss(plain, 5)) == ([], None)
    assert isinstance(make_encoder(plain, 3).backbone.encoder, lw.SmallCNN)


def test_people_are_found_by_others():
    # Two classes, 0 and 10; everyone's own repetition is nearest, and others' of the other class is nearer than theirs.
    x = torch.tensor([[0.0], [0.1], [4.0], [4.1], [1.0], [1.1], [9.0], [9.1]])
    part = Part(x, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    found = scores(lw.Metric(None, lw.Euclidean()), part)
    assert found["recall_any"]["1"] == 1.0
    assert found["recall"]["1"] == 0.0
    assert scores(lw.Metric(None, lw.Euclidean()), Part(x, part.labels))["recall"]["1"] == 1.0


def test_held_out_classes_are_a_half_and_the_other_or_a_share_spread_evenly():
    part = Part(torch.arange(51.0).repeat(2)[:, None], torch.arange(51).repeat(2))
    [(rest, kept)] = data_of.held_out(part, 0.25)
    assert (rest.classes, kept.classes) == (39, 12)
    assert isinstance(rest.items, torch.Tensor)
    assert isinstance(kept.items, torch.Tensor)
    assert not set(rest.items.flatten().tolist()) & set(kept.items.flatten().tolist())
    assert kept.labels.tolist() == [*range(12)] * 2
    assert [(rest.classes, kept.classes) for rest, kept in data_of.held_out(part)] == [(26, 25), (25, 26)]
    with pytest.raises(SystemExit, match="3 training classes are too few"):
        data_of.held_out(Part(torch.zeros(3, 1), torch.arange(3)))
    with pytest.raises(SystemExit, match=r"--held-out is a share of the training classes, 0.5 at most, not 0.75"):
        data_of.held_out(part, 0.75)


def test_a_short_line_keeps_what_tables_plots_and_choices_need():
    score = {"nmi": 1 / 3, "recall": {"1": 2 / 3, "2": 0.75}, "knn": None, "map_at_r": 1e-7 / 3}
    point = score | {"recall_any": score["recall"]}
    line = {"loss": "triplet", "add": "none", "epochs": 2, "lr": 1e-4, **point, "curve": [{"epoch": 1, **point}]}
    short = report.shortened(line)
    assert short["curve"] == [{"epoch": 1, "nmi": 0.33333, "map_at_r": 3.3333e-08, "recall": {"1": 0.66667}}]
    assert {**short, "curve": None} == {
        "loss": "triplet", "add": "none", "epochs": 2, "lr": 1e-4, "nmi": 0.33333,
        "recall": {"1": 0.66667, "2": 0.75}, "knn": None, "map_at_r": 3.3333e-08, "curve": None,
    }  # fmt: skip
    assert report.shortened(short) == short
    assert line["nmi"] == 1 / 3, "left alone"
    other = report.shortened(line | {"recall_any": {"1": 1.0}})
    assert other["recall_any"] == {"1": 1.0}
    assert report.line_name(line | {"held_out": 0.25}) == "triplet, held out 0.25"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (123456.789, 123460.0),
        (-0.000123456, -0.00012346),
        (0.1, 0.1),
        (7, 7),
        (True, True),
        (None, None),
        ("1.23456789", "1.23456789"),
        ({"a": [1.0000001, (2.0, 1 / 3)]}, {"a": [1.0, [2.0, 0.33333]]}),
        (float("inf"), float("inf")),
    ],
)
def test_numbers_are_rounded_wherever_they_are(value, expected):
    assert rounded(value) == expected
    assert type(rounded(value)) is type(expected)


@pytest.mark.parametrize(
    ("data", "trains", "tests"),
    [("utd_mhad", [*range(13)], [*range(13, 27)]), ("utd_mixed", [*range(1, 27, 2)], [*range(0, 27, 2)])],
)
def test_actions_that_train_and_that_test(tmp_path, data, trains, tests):
    skeletons(tmp_path)
    whole, parts = data_of.read_utd(tmp_path, data_of.FRAMES), data_of.read(data, tmp_path, size=0, items=None)
    for part, actions in zip(parts, (trains, tests), strict=True):
        assert part.labels.tolist() == [k for k in range(len(actions)) for _ in range(2)]
        wanted = [whole[0][2 * action + i] for action in actions for i in range(2)]
        torch.testing.assert_close(part.items.values, torch.from_numpy(np.stack(wanted)))


def test_class_folders_and_their_trouble(tmp_path):
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.new("RGB", (9, 9)).save(tmp_path / name / f"{i}.png")
    read = {"source": tmp_path, "size": 8, "items": None}
    train, test = data_of.read(f"folder:{tmp_path}", **read)
    assert isinstance(train.items, torch.Tensor)
    assert (train.classes, test.classes, train.items.shape) == (2, 2, (4, 3, 8, 8))
    (tmp_path / "a" / "1.png").unlink()
    with pytest.raises(SystemExit, match="class 'a' has one image"):
        data_of.read(f"folder:{tmp_path}", **read)
    (tmp_path / "c" / "2.png").write_bytes(b"no image")
    train, test = data_of.read(f"folder:{tmp_path}", **read, skip_broken=True)
    assert (train.classes, len(test)) == (1, 4)
    with pytest.raises(SystemExit, match="give the folder, as cub:PATH"):
        data_of.read("cub", **read)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "mnist"}, "unknown 'mnist'"),
        ({"loss": "hinge"}, "unknown 'hinge'; expected one of triplet"),
        ({"add": "gdfl+magic"}, "unknown addition 'magic'"),
        ({"add": "soft_adv+adapt_adv"}, "choose one of soft_adv and adapt_adv"),
        ({"data": "sad", "encoder": "small"}, "small does not take sad"),
        ({"sweep": "beta"}, "expected lambda or alpha"),
        ({"add": "gdfl", "sweep": "alpha"}, "--sweep alpha needs one of jmmd, jrd, mrd in --add"),
    ],
)
def test_words_that_are_unknown_are_refused(given, message):
    with pytest.raises(SystemExit, match=message):
        recipe.main(**given)


def test_settings_of_losses_and_sweeps():
    base = recipe.settings_for("flowers102", "proxy_nca", "jrd", {})
    assert [row.alpha for row in recipe.swept(base, "alpha")] == list(recipe.SWEEPS["alpha"])
    assert [recipe.settings_for("sad", loss, "none", {}).embedding for loss in ("triplet", "am_softmax")] == [64, 512]
    assert [recipe.settings_for("sad", loss, "none", {}).lr for loss in ("triplet", "am_softmax")] == [3e-4, 1e-3]
    assert recipe.settings_for("sad", "triplet", "none", {"lr": 0.1, "embedding": 8}).lr == 0.1


def test_weights_are_chosen_on_held_out_classes(tmp_path, monkeypatch):
    digits(tmp_path)

    def run(settings, seed, train, scored, *, curve, folder):
        good = 0.9 if settings.factor == 5 else 0.5
        points = [{"epoch": e, "recall": {"1": good - abs(e - 2)}, "map_at_r": 0.1, "nmi": 0} for e in (1, 2, 3)]
        return {"recall": {"1": good}, "nmi": 0.0, "knn": 0.0, "map_at_r": 0.1, "curve": points}

    monkeypatch.setattr(recipe, "run", run)
    job = recipe.Job(recipe.settings_for("sad", "proxy_nca", "jrd", {}), (0, 1), tmp_path, tune=True)
    lines = recipe.work(job)
    assert [(line["factor"], line["fold"], line["epochs"]) for line in lines] == [
        *((factor, fold, 20) for factor in recipe.TRIED for fold in (0, 1)), (5, None, 2), (5, None, 2),
    ]  # fmt: skip
    alone = recipe.work(replace(job, settings=replace(job.settings, add="gdfl")))
    assert [line["factor"] for line in alone] == [1, 1, 1, 1]
    assert job.settings.weight("jrd") == 1
    assert replace(job.settings, factor=5).weight("jrd") == 5


def test_the_best_epoch_is_that_of_the_mean_of_folds():
    def line(*recalls):
        return {"curve": [{"epoch": i + 1, "recall": {"1": r}, "map_at_r": 0.5 + i} for i, r in enumerate(recalls)]}

    assert report.best([line(0.1, 0.5, 0.4)]) == report.Best(0.5, 1.5, 2)
    assert report.best([line(0.1, 0.5, 0.4), line(0.1, 0.2, 0.4)]).epoch == 3
    assert report.best([line(0.3, 0.3)]).epoch == 2  # by MAP@R


def test_gains_are_against_the_same_seed_of_the_loss_alone():
    def line(add, seed, recall):
        return {"loss": "triplet", "add": add, "seed": seed, "fold": None, "recall": {"1": recall}}

    alone = [line("none", 0, 0.5), line("none", 1, 0.7)]
    with_gdfl = [line("gdfl", 1, 0.8), line("gdfl", 0, 0.5), line("gdfl", 2, 0.9)]
    assert report.more_recall(with_gdfl, alone + with_gdfl) == pytest.approx([10, 0])
    assert report.more_recall(alone, alone + with_gdfl) == []


def test_sweeps_are_drawn_and_cut_lines_left_out(tmp_path):
    row = {
        "loss": "triplet",
        "add": "soft_adv",
        "nmi": 0.5,
        "recall": {"1": 0.7},
        "knn": None,
        "validate": False,
        "map_at_r": 0.1,
    }
    for name in ("strength", "alpha"):
        lines = [row | {name: value, "curve": []} for value in (0.0, 0.5, 0.5)]
        report.plot(tmp_path / f"{name}.png", lines, name)
        assert (tmp_path / f"{name}.png").exists()
    (tmp_path / "out").write_text(json.dumps(row) + "\n" + '{"loss": "tri')
    assert report.done(tmp_path / "out") == [row]
    assert replace(Settings(), add="all").added == {"gdfl", "soft_adv", "jrd"}
