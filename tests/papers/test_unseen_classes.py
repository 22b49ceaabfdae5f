"""Unseen classes, on a few items."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import likewise as lw
from likewise.models.layers import captured
from papers.common import Run, read_lines
from papers.unseen_classes import data, report, run
from papers.unseen_classes import lines as rows
from papers.unseen_classes.encoders import Pooled
from papers.unseen_classes.parts import (
    Settings,
    make_encoder,
    make_loss,
    make_rates,
    make_terms,
    scores_of,
    transfer_terms,
)
from tests.papers.small_data import write_digits, write_flowers, write_skeletons

SMALL = {"embedding": 4, "batch_size": 6, "epochs": 2}


def images(classes=6, each=4):
    labels = torch.arange(classes * each) % classes
    items = torch.randint(256, (len(labels), 3, 16, 16), dtype=torch.uint8)
    items[:, 0] = (30 * labels)[:, None, None].to(torch.uint8)
    return lw.ImageSet(items, labels)


def test_sequences_from_the_file_to_the_lines(tmp_path):
    write_digits(tmp_path, classes=10, train=40, test=20)
    where = Run((0, 1), tmp_path, tmp_path / "lines.jsonl", device="cpu")
    settings = Settings("sad", "am_softmax", "gdfl+soft_adv+jrd", strength=0.1, alpha=0.1, **SMALL)
    for _ in range(2):  # the second time everything is there already
        run.main(where, settings)
    lines = read_lines(where.out)
    folds, lines = lines[:2], lines[2:]
    assert [(line["validate"], line["fold"], line["seed"]) for line in folds] == [(True, 0, 0), (True, 1, 0)]
    assert [(line["validate"], line["fold"], line["seed"]) for line in lines] == [(False, None, 0), (False, None, 1)]
    assert [(line["classes"], line["test_classes"]) for line in folds] == [(3, 2), (2, 3)]
    assert (lines[1]["classes"], lines[1]["test_classes"]) == (5, 5)
    assert lines[1]["epochs"] == report.best_epoch(folds).epoch
    assert set(lines[1]["recall"]) == {"1", "2", "4", "8"}
    assert 0 <= lines[1]["nmi"] <= 1
    assert 0 <= lines[1]["transfer"]["lambda_nn"] <= 1
    assert "transfer" not in folds[0]
    assert [point["epoch"] for point in folds[0]["curve"]] == [1, 2]
    assert "curve" not in lines[0]


def test_images_from_webp_to_a_metric_in_a_folder(tmp_path):
    write_flowers(tmp_path)
    where = Run((0,), tmp_path, tmp_path / "out", tmp_path / "runs", items=32, device="cpu")
    settings = Settings("flowers102", "triplet", "gdfl+adapt_adv", "small", crop=24, strength=0.1, **SMALL)
    run.main(where, replace(settings, add="untrained"))
    run.main(where, replace(settings, epochs=1, validate=True))
    first, *folds = read_lines(where.out)
    assert first["loss"] == "untrained"
    assert [(line["train"], line["test"], line["validate"]) for line in folds] == [(16, 16, True)] * 2
    kept = tmp_path / "runs" / "flowers102, triplet, gdfl+adapt_adv, 1.0, seed 0, fold 1"
    assert isinstance(lw.Metric.load(kept, classes=[lw.models.RandomCrop]).encoder, lw.Embedder)


@pytest.mark.parametrize("loss", ["triplet", "angular", "proxy_nca", "am_softmax"])
def test_losses_and_additions_run_together(loss):
    add = "energy+jmmd" if loss in ("triplet", "proxy_nca") else "gdfl+soft_adv+mrd"
    settings = run.completed(Settings("flowers102", loss, add, "small", 4, crop=12, epochs=1, batch_size=8), "cpu")
    found = run.learn(Run(device="cpu"), settings, 0, images(), images(3), None)
    json.dumps(found)
    assert found["loss_last_epoch"] == found["loss_first_epoch"]


@pytest.mark.parametrize(
    "changes",
    [
        {"add": "pooled+jrd", "kernel": "laplace"},
        {"add": "jrd_c", "kernel": "mgf"},
        {"add": "jrd_pooling", "kernel": "polynomial"},
        {"add": "intra+adapt_adv", "ceiling": float("inf"), "threshold": 0.4},
    ],
)
def test_options_of_the_papers_run(changes):
    given = Settings("flowers102", "am_softmax", encoder="small", embedding=4, crop=12, epochs=2, batch_size=8)
    settings = run.completed(replace(given, **changes), "cpu")
    found = run.learn(Run(device="cpu"), settings, 0, images(), images(3), None)
    json.dumps(found)
    if "adapt_adv" in settings.added:
        assert len(found["lambdas"]) == 2
    with pytest.raises(SystemExit, match="choose one of gdfl and pooled"):
        run.completed(replace(settings, add="gdfl+pooled"), "cpu")


def test_the_control_is_attended_features_with_equal_weights():
    torch.manual_seed(0)
    backbone, x = lw.models.SmallCNN(3, out=8).eval(), torch.rand(2, 3, 16, 16)
    with captured("test", backbone, ["norms.0", "norms.1"]) as outputs:
        backbone(x)
    expected = torch.cat([outputs[name].mean((2, 3)) for name in ("norms.0", "norms.1")], 1)
    torch.testing.assert_close(Pooled(backbone, ["norms.0", "norms.1"])(x), expected)


def test_transfer_terms_by_hand():
    seen, unseen = torch.tensor([[0.0], [0.1], [5.0], [5.1]]), torch.tensor([[100.0], [100.1], [110.0], [110.1]])
    labels = torch.tensor([0, 0, 1, 1])
    assert transfer_terms(seen, labels, unseen, labels) == {"lambda_nn": 0.0, "divergence_nn": 2.0}
    mixed = transfer_terms(seen, labels, seen + 0.05, labels)  # every item's nearest is of the other set
    assert mixed["lambda_nn"] == 1.0
    assert mixed["divergence_nn"] == 0.0


def test_what_is_added_where_and_at_which_rate():
    given = Settings(loss="proxy_nca", add="gdfl+adapt_adv+jrd", encoder="small", strength=0.3, alpha=2)
    settings = run.completed(given, "cpu")
    loss = make_loss(settings, 5)
    terms, adversary = make_terms(settings, loss)
    assert isinstance(adversary, lw.training.AdaptiveAdversary)
    assert adversary.strength == 0.3
    assert terms[0].weight == 2
    assert terms[0].of == ["backbone", None, loss.distances]
    assert terms[1] is adversary
    assert make_rates(settings, loss, terms, adversary) == {
        "encoder.backbone": 1e-4, "encoder.backbone.encoder.attentions": 1e-3, "loss": 1e-2, "terms.1": 1e-3,
        "rest": 1e-3,
    }  # fmt: skip
    assert isinstance(make_encoder(settings, images()).backbone.encoder, lw.AttendedFeatures)
    plain = run.completed(Settings(encoder="small"), "cpu")
    assert make_terms(plain, make_loss(plain, 5)) == ([], None)
    assert isinstance(make_encoder(plain, images()).backbone.encoder, lw.models.SmallCNN)


def test_people_are_found_by_others():
    # Two classes; everyone's own repetition is nearest, and others' of the other class is nearer than theirs.
    x = torch.tensor([[0.0], [0.1], [4.0], [4.1], [1.0], [1.1], [9.0], [9.1]])
    part = lw.Dataset(x[:, None], [0, 0, 0, 0, 1, 1, 1, 1], groups=[0, 0, 1, 1, 2, 2, 3, 3])
    found = scores_of(x, part)
    assert found["recall_any"]["1"] == 1.0
    assert found["recall"]["1"] == 0.0
    assert scores_of(x, replace(part, groups=None))["recall"]["1"] == 1.0


def test_folds_are_a_half_and_the_other():
    part = lw.Dataset(torch.arange(51.0).repeat(2)[:, None, None], np.tile(np.arange(51), 2))
    (first, second), (other, again) = data.folds(part)
    assert (len(first.classes), len(second.classes)) == (26, 25)
    assert (other.classes, again.classes) == (second.classes, first.classes)
    assert not set(first.classes) & set(second.classes)
    with pytest.raises(SystemExit, match="3 training classes are too few"):
        data.folds(lw.Dataset(torch.zeros(3, 1, 1), [0, 1, 2]))


@pytest.mark.parametrize(
    ("name", "trains"), [("utd_mhad", [*range(13)]), ("utd_mixed", [*range(1, 27, 2)])]
)  # fmt: skip
def test_actions_that_train_and_that_test(tmp_path, name, trains):
    write_skeletons(tmp_path, classes=27, subjects=1)
    train, test = data.read(name, tmp_path)
    assert sorted({int(label) for label in train.labels}) == trains
    assert sorted({int(label) for label in test.labels}) == sorted(set(range(27)) - set(trains))
    assert train.items.values.shape == (26, data.FRAMES, 60)


def test_class_folders_and_their_trouble(tmp_path):
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
        for i in range(2):
            Image.new("RGB", (9, 9)).save(tmp_path / name / f"{i}.png")
    train, test = data.read(f"folder:{tmp_path}", tmp_path, size=8)
    assert (train.classes, test.classes, train.items.shape) == (("a", "b"), ("c", "d"), (4, 3, 8, 8))
    with pytest.raises(SystemExit, match="give the folder, as cub:PATH"):
        data.read("cub", tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "mnist"}, "--data is 'mnist'; expected one of flowers102"),
        ({"loss": "hinge"}, "--loss is 'hinge'; expected one of triplet"),
        ({"add": "gdfl+magic"}, "unknown addition 'magic'"),
        ({"add": "soft_adv+adapt_adv"}, "choose one of soft_adv and adapt_adv"),
        ({"data": "sad", "encoder": "small"}, "small does not take sad"),
    ],
)
def test_words_that_are_unknown_are_refused(given, message):
    with pytest.raises(SystemExit, match=message):
        run.main(Run(device="cpu"), Settings(**given))


def test_settings_suit_the_data_and_the_loss():
    found = [run.completed(Settings("sad", loss), "cpu") for loss in ("triplet", "am_softmax")]
    assert [(one.embedding, one.lr, one.encoder, one.epochs) for one in found] == [
        (64, 3e-4, "tcn", 20), (512, 1e-3, "tcn", 20)
    ]  # fmt: skip
    assert run.completed(Settings("sad", "triplet", lr=0.1), "cpu").lr == 0.1
    assert run.completed(Settings("flowers102"), "cuda").precision == "bf16-mixed"


def test_weights_are_chosen_on_held_out_classes(tmp_path, monkeypatch):
    write_digits(tmp_path, classes=10, train=40, test=20)
    seen = []

    def learn(where, settings, seed, train, scored, fold):
        seen.append((settings.factor, fold, settings.epochs, settings.weight("jrd")))
        good = 0.9 if settings.factor == 5 else 0.5
        points = [{"epoch": e, "recall": {"1": good - abs(e - 2)}, "map_at_r": 0.1, "nmi": 0} for e in (1, 2, 3)]
        return {"recall": {"1": good}, "nmi": 0.0, "knn": 0.0, "map_at_r": 0.1, "curve": points}

    monkeypatch.setattr(run, "learn", learn)
    run.main(Run((0, 1), tmp_path, device="cpu"), Settings("sad", "proxy_nca", "jrd"))
    assert seen == [
        *((factor, fold, 20, factor) for factor in run.TRIED for fold in (0, 1)), (5, None, 2, 5), (5, None, 2, 5),
    ]  # fmt: skip
    seen.clear()
    run.main(Run((0, 1), tmp_path, device="cpu"), Settings("sad", "proxy_nca", "gdfl"))
    assert [factor for factor, *_ in seen] == [1, 1, 1, 1]


def test_the_best_epoch_is_that_of_the_mean_of_folds():
    def line(*recalls):
        return {"curve": [{"epoch": i + 1, "recall": {"1": r}, "map_at_r": 0.5 + i} for i, r in enumerate(recalls)]}

    assert report.best_epoch([line(0.1, 0.5, 0.4)]) == report.Best(0.5, 1.5, 2)
    assert report.best_epoch([line(0.1, 0.5, 0.4), line(0.1, 0.2, 0.4)]).epoch == 3
    assert report.best_epoch([line(0.3, 0.3)]).epoch == 2  # by MAP@R


def test_gains_are_against_the_same_seed_of_the_loss_alone(monkeypatch):
    def line(add, seed, recall):
        return {"loss": "triplet", "add": add, "seed": seed, "validate": False, "recall": {"1": recall}}

    lines = [line("none", 0, 0.5), line("none", 1, 0.7)]
    lines += [line("gdfl", 1, 0.8), line("gdfl", 0, 0.5), line("gdfl", 2, 0.9)]
    monkeypatch.setattr(rows, "lines_of", lambda _: lines)
    assert report.gains("any", "triplet", "gdfl") == pytest.approx([10, 0])


def test_variants_stand_beside_the_tables_row(monkeypatch):
    def line(validate, recall, **more):
        curve = [{"epoch": 2, "recall": {"1": recall}, "map_at_r": 0.1}]
        return {"data": "utd_mhad", "loss": "triplet", "add": "adapt_adv", "validate": validate, "factor": 1, "epochs": 2,
                "ceiling": float("inf"), "strength": 0.5, "recall": {"1": recall}, "curve": curve} | more  # fmt: skip

    lines = [line(True, 0.9), line(True, 0.8), line(False, 0.5, lambdas=[-0.4, 0.2]), line(False, 0.7, lambdas=[0.3])]
    monkeypatch.setattr(report, "read_lines", lambda _: lines)
    monkeypatch.setattr(rows, "lines_of", lambda _: [line(False, 0.4, ceiling=0.1)])
    assert report.variants_table("utd_mhad").splitlines()[-1] == (
        "| triplet, adaptive adversary | ceiling inf, strength 0.5 | 2 of 2 | -0.4 to 0.3 | 85.0 | 2 | 60.0 ± 14.1 | 40.0 |"
    )


def test_figures_are_drawn_and_the_full_table_printed(tmp_path, capsys):
    report.main(report.Options(full=True, figures=tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"epochs.png", "lambda.png", "alpha.png"}
    assert "MAP@R" in capsys.readouterr().out


def test_learning_rates_fall_as_in_the_codes():
    rates = {}
    for drop_every, decay in ((None, 0.5), (2, 0.5)):
        optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule = run.falling(optimizer, Settings(decay=decay, drop_every=drop_every))
        rates[drop_every] = []
        for _ in range(4):
            rates[drop_every].append(round(optimizer.param_groups[0]["lr"], 6))
            optimizer.step()
            schedule.step()
    assert rates == {None: [1.0, 0.5, 0.25, 0.125], 2: [1.0, 0.1, 0.1, 0.01]}
