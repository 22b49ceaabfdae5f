"""The loop that recipes share, on a parabola."""

import pytest
import torch
from torch import nn

from likewise.recipes.tuning import keep_module, read_module, tune
from tests.recipes.foreign import second_device


class Point(nn.Module):
    def __init__(self):
        super().__init__()
        self.at = nn.Parameter(torch.zeros(()))


def learn(seen=None, validate=None, device="cpu", **changes):
    """Go to 1."""
    point = Point().to(device)

    def loss(index, generator):
        if seen is not None:
            seen.append(index.tolist())
        return (point.at - 1).square() * (1 + 0.1 * torch.rand((), generator=generator))

    settings = {"items": 10, "epochs": 2, "batch_size": 2, "lr": 0.1, "seed": 3} | changes
    return point, tune(point, loss, validate or (lambda: float((point.at.detach() - 1).abs())), **settings)


@pytest.mark.parametrize("checks", [1, 2, 5])
def test_every_epoch_sees_every_item_once(checks):
    seen = []
    curves = learn(seen, checks=checks)[1]
    assert len(curves.losses) == 2 * checks
    assert len(curves.validation) == 1 + 2 * checks
    for epoch in (seen[:5], seen[5:]):
        assert sorted(item for batch in epoch for item in batch) == list(range(10))
    assert seen[:5] != seen[5:]


def test_the_best_round_is_kept_and_patience_ends_the_rest():
    errors = iter([5.0, 3.0, 2.0, 4.0, 2.5, 7.0, 1.0])
    before = learn(epochs=2)[0].at
    point, curves = learn(epochs=9, validate=lambda: next(errors), patience=3)
    assert curves.validation == [5.0, 3.0, 2.0, 4.0, 2.5, 7.0]
    assert curves.best_round == 2
    assert torch.equal(point.at, before)


def test_the_averaged_weights_are_validated_and_left():
    point, weights, validated = Point(), [], []

    def loss(index, generator):
        weights.append(point.at.item())  # of the step before
        return (point.at - 1).square()

    def validate():
        validated.append(point.at.item())
        return -float(len(validated))

    tune(point, loss, validate, items=6, epochs=2, batch_size=2, lr=0.1, seed=0, average=0.75)
    mean = 0.0
    for weight in weights[1:4]:  # the three steps of the first epoch
        mean = 0.75 * mean + 0.25 * weight
    assert validated[:2] == pytest.approx([0.0, mean])
    assert point.at.item() == validated[2]
    assert weights == sorted(weights)  # validation gave the weights themselves back


def test_frozen_weights_stay():
    point = Point()
    point.still = nn.Parameter(torch.ones(()), requires_grad=False)
    tune(
        point,
        lambda *_: (point.at - point.still).square(),
        lambda: 0.0,
        items=4,
        epochs=1,
        batch_size=2,
        lr=0.1,
        seed=0,
    )
    assert point.at.item() > 0
    assert point.still.item() == 1


@pytest.mark.parametrize("average", [0.0, 0.8])
def test_it_goes_on_in_the_middle_of_an_epoch(tmp_path, average):
    def stopped():
        if not left:
            raise KeyboardInterrupt
        return left.pop()

    state, whole = tmp_path / "state.safetensors", learn(checks=2, average=average)
    left = whole[1].validation[1::-1]
    with pytest.raises(KeyboardInterrupt):  # in the second round, so that the first is kept
        learn(checks=2, state=state, validate=stopped, average=average)
    point, curves = learn(checks=2, state=state, average=average)
    assert torch.equal(point.at, whole[0].at)
    assert curves.losses == whole[1].losses
    assert curves.validation == whole[1].validation


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")  # the second device is none
def test_it_goes_on_on_another_device(tmp_path):
    state, whole = tmp_path / "state.safetensors", learn(clip=1.0)
    with second_device():
        learn(epochs=1, state=state, device="meta", clip=1.0)
        point, curves = learn(state=state, device="meta", clip=1.0)
        assert str(point.at.device) == "meta"
        assert point.at.item() == whole[0].at.item()
        keep_module(tmp_path / "point.safetensors", point, {"a": 1.0})
        again = Point().to("meta")
        assert read_module(tmp_path / "point.safetensors", again) == {"a": 1.0}
        assert again.at.item() == whole[0].at.item()
    assert curves.losses == whole[1].losses
