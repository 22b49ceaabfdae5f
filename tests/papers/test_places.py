"""Place recognition, on a track of small random images."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import likewise as lw
from likewise.training import Step
from likewise.training.path_step import warp_of
from papers.common import read_lines
from papers.decdtw import run_places as run
from papers.decdtw.data_places import BLOCKS, FILE, SPLITS, draw_query, read_places, standardized, stretches_of
from papers.decdtw.place_encoder import PlaceEncoder, best_encoder, mirrored, nearest_negatives, recall
from papers.decdtw.run import dtw_warp
from papers.decdtw.run_places import Rides, Settings
from tests.papers.foreign import second_device

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
    return replace(Settings(widths=(4,), features=8, reg=0.03, epochs=2, batch_size=16, base_epochs=1), **changes)


def encoder():
    torch.manual_seed(0)
    return PlaceEncoder(8, 16, 8, widths=(4,))


def test_in_order_is_the_best_of_all_orders():
    cost = torch.rand(20, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    orders = torch.tensor(list(itertools.combinations_with_replacement(range(5), 4)))  # (N, 4), never going back
    sums = cost[:, torch.arange(4), orders].sum(2)  # (20, N)
    assert torch.equal(run.in_order(cost), orders[sums.argmin(1)])


def test_the_paper_s_loss_is_an_option(data, tmp_path):
    where = Rides((3,), data, tmp_path / "lines", items=16, device="cpu")
    run.main(where, small(method="decdtw", loss="squared_max", epochs=1, batch_size=8))
    run.main(where, small(method="retrieval"))
    run.main(where, small(method="monotone"))
    assert [line["method"] for line in read_lines(where.out)] == ["decdtw", "retrieval", "monotone"]
    with pytest.raises(SystemExit, match="error: --loss is 'median'"):
        run.main(where, small(loss="median"))


def test_it_chooses_tunes_scores_and_draws(data, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "REGS", (0.01, 0.1))
    where = Rides(
        (3,), data, tmp_path / "some" / "lines", tmp_path / "runs", items=16, device="cpu", plot=tmp_path / "query.png"
    )
    for method in ("base_dtw", "base_gdtw", "dilate", "decdtw", "decdtw"):  # the last one is there already
        run.main(where, small(method=method, reg=0.0, epochs=1, batch_size=8, lr=1e-3))
    lines = read_lines(where.out)
    assert [line["method"] for line in lines] == ["base_dtw", "base_gdtw", "dilate", "decdtw"]
    assert len({line["base_val_recall"] for line in lines}) == 1  # the same encoder
    for line in lines:
        shares = list(line["below"].values())
        assert shares == sorted(shares)
        assert line["seed"] == 3
        assert line["trajectory_error"] <= line["max_error"]
        assert 1 <= line["pace"] <= 2.4
    assert lines[3]["reg_chosen"] in (0.01, 0.1)
    assert "reg_chosen" not in lines[1]
    assert 3 <= len(lines[3]["val_curve"]) <= 6
    assert (tmp_path / "query.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("method", run.METHODS)
def test_nothing_is_left_on_the_cpu(parts, method):
    settings, found = small(method=method, gamma=0.1), []
    for device in ("cpu", "meta"):
        with second_device():
            network, train, test = encoder().to(device), parts["train"].to(device), parts["test"].thinned(8).to(device)
            if method in run.LOSSES:
                generator = torch.Generator().manual_seed(0)
                step = Step(lw.Metric(network, lw.GDTW()), None, None, index=torch.arange(8), generator=generator)
                run.tuning_loss(settings, network, train, step).backward()
                assert all(str(p.grad.device) == device for p in network.parameters())
            found.append([run.found_and_true(settings, network, test)[0], torch.tensor(recall(network, test))])
    assert all(map(torch.equal, *found))


def test_no_place_is_in_two_splits_and_gaps_lie_between():
    owner = np.full(PLACES, -1)
    for number, split in enumerate(SPLITS):
        for first, stop in stretches_of(split, PLACES):
            assert (owner[first:stop] == -1).all()
            owner[first:stop] = number
    changes = np.flatnonzero(np.diff(owner))
    for first, stop in zip(changes[::2], changes[1::2], strict=True):  # from one split to none, or from none to one
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
    return run.aligned(features, features[:, truth[0]], truth.float(), 1.7)


def test_gdtw_finds_the_frames_that_dtw_passes_over():
    pairs = known_pairs()
    assert torch.allclose(warp_of(run.gdtw(small()), pairs).values, pairs.truth, atol=0.1)
    found = dtw_warp(pairs).values
    assert (found >= pairs.truth).all()
    assert (found - pairs.truth).max() <= 2  # frames between two of the query's go to either


def test_the_losses_at_the_truth():
    pairs = known_pairs()
    losses = {name: loss(small(gamma=0.01), pairs).item() for name, loss in run.LOSSES.items()}
    assert losses["along_gt"] == pytest.approx(0, abs=1e-10)
    assert losses["decdtw"] < 0.1
    plan = lw.SoftDTW(0.01, subsequence=True).align(pairs.x, pairs.y).plan[0]
    total = sum(
        plan[i, j].item() * (pairs.truth[0, i].item() - j) ** 2 for i in range(plan.shape[0]) for j in range(25)
    )
    assert losses["dilate"] == pytest.approx(total / 250, rel=1e-5)


@pytest.mark.parametrize("method", run.LOSSES)
def test_a_step_against_the_gradient_lowers_the_loss(parts, method):
    network, index = encoder(), torch.arange(0, len(parts["train"]), 5)
    settings, loss = small(gamma=0.1), run.LOSSES[method]
    before = loss(settings, run.features_of(network, parts["train"], index))
    before.backward()
    torch.optim.SGD(network.parameters(), 1e-4).step()
    assert loss(settings, run.features_of(network, parts["train"], index)) < before


def test_new_queries_are_true(parts):
    class Mark(torch.nn.Module):
        def forward(self, images):
            return images[:, 0, 0, :3].sort(1).values  # says which image it was, mirrored or not

    train, index, generator = parts["train"], torch.arange(3), torch.Generator().manual_seed(0)
    winter = torch.arange(float(len(train.winter)))[:, None, None, None].expand(-1, 1, 8, 16)
    marked = replace(train, winter=winter, summer=winter)
    found = [run.features_of(Mark(), marked, index, draw) for draw in (generator, generator, None)]
    for pairs in found:
        query, reference = pairs.x.values, pairs.y.values
        assert torch.equal(query[..., 0] - reference[:, :1, 0], pairs.truth)
        assert (pairs.truth <= 24).all()
        assert (pairs.truth.diff(dim=1) >= 1).all()
    assert not torch.equal(found[0].truth, found[1].truth)
    assert torch.equal(found[2].truth, train.truth[index])


def test_only_the_last_layer_is_tuned(parts, monkeypatch):
    falling = iter(range(100, 0, -1))
    monkeypatch.setattr(run, "validation", lambda *_: float(next(falling)))
    base, tuned = encoder(), encoder()
    run.learn(tuned, small(epochs=1), 1, parts["train"].thinned(20), parts["val"])
    assert all(map(torch.equal, base.blocks.parameters(), tuned.blocks.parameters()))
    assert not torch.equal(base.outward.weight, tuned.outward.weight)


def test_regularisation_is_chosen_on_validation_pairs(parts):
    val = parts["val"].thinned(12)
    chosen = run.best_reg(small(), encoder(), val)
    scores = {reg: run.validation(small(method="base_gdtw", reg=reg), encoder(), val) for reg in run.REGS}
    assert scores[chosen] == min(scores.values())


def test_bad_input_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="error: --method is 'softdtw'"):
        run.main(Rides(data_dir=tmp_path), small(method="softdtw"))
    with pytest.raises(SystemExit, match=r"nordland_sw_64x32.npz does not exist; give --data-dir"):
        read_places(tmp_path)
    with pytest.raises(ValueError, match="a track of 100 frames is too short to split; expected 600 or more"):
        list(stretches_of("val", 100))
    np.savez(tmp_path / FILE, summer=np.zeros(3))
    with pytest.raises(ValueError, match="expected an array winter"):
        read_places(tmp_path)
    with pytest.raises(ValueError, match=r"expected images of shape \(N, H, W, 3\), got \(2, 8, 8\)"):
        standardized(np.zeros((2, 8, 8)))
