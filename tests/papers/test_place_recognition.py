"""The recipe of place recognition, on a track of small random images."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from likewise.recipes import place_recognition
from likewise.recipes.place_encoder import PlaceEncoder, best_encoder, mirrored, nearest_negatives, recall
from likewise.recipes.place_recognition import Sequences, Settings
from likewise.recipes.place_sequences import BLOCKS, FILE, SPLITS, draw_query, read_places, standardized, stretches_of
from tests.recipes.foreign import second_device

PLACES = 12 * 56


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a track: places are random, winter is darker and noisy; a few frames are to be dropped."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("track")
    frames = PLACES + 7
    summer = rng.integers(0, 256, (frames, 8, 16, 1)).repeat(3, 3)
    winter = 20 + 0.6 * summer + rng.normal(0, 12, summer.shape)
    dark, still = np.zeros((2, frames), bool)
    dark[:4] = still[3:7] = True
    arrays = {"summer": summer.astype(np.uint8), "winter": winter.astype(np.uint8), "dark": dark, "still": still}
    np.savez(folder / FILE, **arrays, frame_id=10 * np.arange(frames))
    return folder


@pytest.fixture(scope="module")
def parts(data):
    return read_places(data, stride=8, queries=2)


def small(**changes):
    return replace(Settings(widths=(4,), out=8, reg=0.03, pace=1.7, epochs=2, batch_size=16), **changes)


def encoder():
    torch.manual_seed(0)
    return PlaceEncoder(8, 16, 8, widths=(4,))


def test_all_methods_make_a_table(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(place_recognition, "Settings", lambda **given: small(**given))
    monkeypatch.setattr(place_recognition, "REGS", (0.01, 0.1))
    out, methods = tmp_path / "results" / "lines.jsonl", place_recognition.BASE + place_recognition.LEARNED
    place_recognition.main(
        methods=",".join(methods), reg=None, seeds=1, first_seed=3, epochs=1, base_epochs=1, batch_size=8, lr=1e-3,
        items=16, validate=False, data_dir=data, out=out, folder=tmp_path / "runs", plot=tmp_path / "query.png",
        device="cpu",
    )  # fmt: skip
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["method"] for line in lines] == list(methods)
    assert lines[4]["gamma"] == 0.1
    for line in lines:
        shares = list(line["below"].values())
        assert shares == sorted(shares)
        assert line["seed"] == 3
        assert line["trajectory_error"] <= line["max_error"]
        assert 1 <= line["pace"] <= 2.4
    assert lines[5]["reg_chosen"] in (0.01, 0.1)
    assert "reg_chosen" not in lines[1]
    assert "< 10" in capsys.readouterr().out
    assert (tmp_path / "query.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("method", place_recognition.BASE + place_recognition.LEARNED)
def test_nothing_is_left_on_the_cpu(parts, method, tmp_path):
    settings, three = small(method=method, epochs=1, checks=2), tuple(parts[split].thinned(8) for split in SPLITS)
    found = []
    for device in ("cpu", "meta"):
        with second_device():
            moved = tuple(places.to(device) for places in three)
            network, recall_found = encoder().to(device), 0.0
            if method in place_recognition.CONTINUOUS:
                recall_found = best_encoder(network, moved[0], moved[1], epochs=1, lr=1e-3, seed=0)
            tuned, line = place_recognition.run(settings, 1, network, moved, None)
            found.append([recall_found, *(line.get(name) for name in ("below", "max_error", "losses", "val_curve"))])
            if method == "decdtw":
                place_recognition.draw(tmp_path / f"{device}.png", (settings, settings), (network, tuned), moved[2])
    assert found[0] == found[1]


def test_a_report_of_several_files(tmp_path, capsys):
    line = {"method": "decdtw", "validate": False, "max_error": 1.0}
    for seed in (1, 2, 3):
        below = {str(t): 0.5 + 0.01 * seed for t in place_recognition.THRESHOLDS}
        (tmp_path / str(seed)).write_text(json.dumps(line | {"seed": seed, "below": below}) + "\n")
    place_recognition.main(report=[tmp_path / "1", tmp_path / "2", tmp_path / "3", tmp_path / "1"])
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert next(cells for cells in printed if "decdtw" in cells)[3:9] == ["3", "│", "52.0", "±", "1.0", "│"]


def test_no_place_is_in_two_splits_and_gaps_lie_between():
    owner = np.full(PLACES, -1)
    for number, split in enumerate(SPLITS):
        for first, stop in stretches_of(split, PLACES):
            assert (owner[first:stop] == -1).all()
            owner[first:stop] = number
    changes = np.flatnonzero(np.diff(owner))
    for first, stop in zip(changes[::2], changes[1::2], strict=True):  # from one split to nobody, from nobody to one
        assert owner[first + 1] == -1
        assert stop - first == 25
    assert set(BLOCKS) == set(SPLITS)


def test_pairs_stay_within_a_stretch_and_queries_within_references(parts):
    for split, places in parts.items():
        lengths = [stop - first for first, stop in stretches_of(split, PLACES)]
        assert len(places.summer) == len(places.winter) == sum(lengths)
        stretch = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        of_pair = stretch[places.references]
        assert (of_pair == of_pair[:, :1]).all()
        assert (places.references.diff(dim=1) == 1).all()
        assert places.references.shape[1:] == (25,)
        assert (places.truth >= 0).all()
        assert (places.truth <= 24).all()
        assert torch.equal(places.references.gather(1, places.truth.long()), places.queries)
        assert len(places.thinned(2)) in (2, 3)


def test_dropped_frames_are_gone(data, parts):
    with np.load(data / FILE) as file:
        images = file["summer"][7:]
    first, stop = next(stretches_of("val", PLACES))
    expected = standardized(images[first:stop])
    assert torch.equal(parts["val"].summer[: stop - first], expected)
    assert expected.mean((1, 2, 3)).abs().max() < 1e-5
    assert (expected.std((2, 3)) - 1).abs().max() < 1e-5


def test_queries_vary_in_speed():
    generator = torch.Generator().manual_seed(0)
    steps = torch.stack([draw_query(generator).diff() for _ in range(200)])
    assert steps.shape == (200, 9)
    assert steps.min() == 1
    assert steps.max() >= 5
    assert 1.3 < steps.float().mean() < 2.1


def test_the_triplet_loss_learns_places(parts):
    untrained, trained = recall(encoder(), parts["val"]), encoder()
    assert best_encoder(trained, parts["train"], parts["val"], epochs=4, lr=1e-2, seed=0) > untrained
    assert torch.equal(trained(parts["val"].summer).norm(dim=1).round(decimals=5), torch.ones(len(parts["val"].summer)))


def test_the_ten_nearest_negatives_in_loops():
    from likewise.losses.pairs import Pairs

    D = torch.rand(14, 14, generator=torch.Generator().manual_seed(0))
    found = nearest_negatives(Pairs.of("test", D, torch.arange(14), torch.arange(14)), 0.1)
    for i in range(14):
        others = sorted(D[i, j].item() for j in range(14) if j != i)[:10]
        assert sorted(found.negative[i, 0].tolist()) == others
        assert found.positive[i].item() == D[i, i].item()


def test_all_images_of_a_batch_are_mirrored_or_none():
    images, generator = torch.rand(3, 1, 4, 5), torch.Generator().manual_seed(0)
    found = [mirrored(images, generator) for _ in range(20)]
    turned = [torch.equal(each, images.flip(3)) for each in found]
    assert all(turn or torch.equal(each, images) for turn, each in zip(turned, found, strict=True))
    assert 4 < sum(turned) < 16


def known_pairs():
    """Features that tell every place from every other: the truth is where they are equal."""
    features = torch.nn.functional.one_hot(torch.arange(25)).float()[None]
    truth = torch.tensor([[3, 4, 6, 8, 9, 12, 13, 14, 16, 17]])
    return Sequences(features, features[:, truth[0]], truth.float())


def test_gdtw_finds_the_frames_that_dtw_passes_over():
    pairs = known_pairs()
    assert torch.allclose(place_recognition.gdtw_warp(small(), pairs).values, pairs.truth, atol=0.1)
    found = place_recognition.dtw_warp(small(), pairs).values
    assert (found >= pairs.truth).all()
    assert (found - pairs.truth).max() <= 2  # frames between two of the query's go to either


def test_the_losses_at_the_truth():
    pairs = known_pairs()
    losses = {name: loss(small(gamma=0.01), pairs).item() for name, loss in place_recognition.LOSSES.items()}
    assert losses["along_gt"] == pytest.approx(0, abs=1e-10)
    assert losses["decdtw"] < 0.1
    plan = place_recognition.lw.SoftDTW(0.01, subsequence=True).align(pairs.query, pairs.reference).plan[0]
    total = sum(
        plan[i, j].item() * (pairs.truth[0, i].item() - j) ** 2 for i in range(plan.shape[0]) for j in range(25)
    )
    assert losses["dilate"] == pytest.approx(total / 250, rel=1e-5)


@pytest.mark.parametrize("method", place_recognition.LEARNED)
def test_a_step_against_the_gradient_lowers_the_loss(parts, method):
    network, index = encoder(), torch.arange(0, len(parts["train"]), 5)
    settings, loss = small(gamma=0.1), place_recognition.LOSSES[method]
    before = loss(settings, place_recognition.sequences(network, parts["train"], index))
    before.backward()
    torch.optim.SGD(network.parameters(), 1e-4).step()
    assert loss(settings, place_recognition.sequences(network, parts["train"], index)) < before


def test_new_queries_are_true(parts):
    class Mark(torch.nn.Module):
        def forward(self, images):
            return images[:, 0, 0, :3].sort(1).values  # says which image it was, mirrored or not

    train, index, generator = parts["train"], torch.arange(3), torch.Generator().manual_seed(0)
    winter = torch.arange(float(len(train.winter)))[:, None, None, None].expand(-1, 1, 8, 16)
    marked = replace(train, winter=winter, summer=winter)
    found = [
        place_recognition.sequences(Mark(), marked, index, generator, redraw=redraw) for redraw in (True, True, False)
    ]
    for pairs in found:
        assert torch.equal(pairs.query[..., 0] - pairs.reference[:, :1, 0], pairs.truth)
        assert (pairs.truth <= 24).all()
        assert (pairs.truth.diff(dim=1) >= 1).all()
    assert not torch.equal(found[0].truth, found[1].truth)
    assert torch.equal(found[2].truth, train.truth[index])


def test_the_triplet_loss_is_added(parts):
    def loss(weight):
        generator = torch.Generator().manual_seed(0)
        return place_recognition.tuning_loss(
            small(triplet=weight), encoder(), parts["train"], torch.arange(3), generator
        ).item()

    plain, once, twice = loss(0.0), loss(1.0), loss(2.0)
    assert once > plain
    assert twice - plain == pytest.approx(2 * (once - plain), rel=1e-4)


@pytest.mark.parametrize("last", [False, True])
def test_the_last_layer_may_be_tuned_alone(parts, last, monkeypatch):
    falling = iter(range(100, 0, -1))
    monkeypatch.setattr(place_recognition, "validation", lambda *_: float(next(falling)))
    base, tuned = encoder(), encoder()
    place_recognition.learn(tuned, small(last=last, epochs=1), 1, parts["train"].thinned(20), parts["val"], None)
    same = [torch.equal(a, b) for a, b in zip(base.blocks.parameters(), tuned.blocks.parameters(), strict=True)]
    assert same == [last] * 4
    assert not torch.equal(base.outward.weight, tuned.outward.weight)


def test_tuning_goes_on_where_it_stopped(parts, tmp_path):
    state, three = tmp_path / "state.safetensors", tuple(parts[split].thinned(20) for split in SPLITS)
    whole = place_recognition.run(small(lr=1e-2), 1, encoder(), three, None)[1]
    place_recognition.run(small(lr=1e-2, epochs=1), 1, encoder(), three, state)
    rest = place_recognition.run(small(lr=1e-2), 1, encoder(), three, state)[1]
    for name in ("losses", "val_curve", "max_error", "best_epoch", "below"):
        assert rest[name] == whole[name]
    assert len(whole["val_curve"]) == 11
    assert 0 <= whole["best_epoch"] <= 2


def test_the_base_encoder_is_kept(parts, tmp_path):
    state, three = tmp_path / "base.safetensors", (parts["train"], parts["val"])
    first, about = place_recognition.base_encoder(small(base_epochs=1), 0, *three, state)
    again, known = place_recognition.base_encoder(small(base_epochs=9), 5, *three, state)
    assert known == about
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_regularisation_is_chosen_on_validation_pairs(parts):
    chosen = place_recognition.best_reg(small(), encoder(), parts["val"])
    scores = {
        reg: place_recognition.validation(small(method="base_gdtw", reg=reg), encoder(), parts["val"])
        for reg in place_recognition.REGS
    }
    assert scores[chosen] == min(scores.values())


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: unknown method 'softdtw'"):
        place_recognition.main(methods="softdtw", data_dir=tmp_path)
    with pytest.raises(SystemExit, match=r"nordland_sw_64x32.npz is not there; give --data-dir"):
        read_places(tmp_path)
    with pytest.raises(ValueError, match="a track of 100 frames is too short to split; expected 600 or more"):
        list(stretches_of("val", 100))
    np.savez(tmp_path / FILE, summer=np.zeros(3))
    with pytest.raises(ValueError, match="expected an array winter"):
        read_places(tmp_path)
    with pytest.raises(ValueError, match=r"expected images of shape \(N, H, W, 3\), got \(2, 8, 8\)"):
        standardized(np.zeros((2, 8, 8)))
