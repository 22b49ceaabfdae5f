import torch

import likewise as lw
from likewise.data.summary import summarize


def noise(count, steps=6, channels=2):
    return torch.randn(count, steps, channels, generator=torch.Generator().manual_seed(0))


def test_good_data_have_no_warnings():
    found = summarize(lw.Dataset(noise(8), ["a", "b"] * 4, groups=[0, 1] * 4))
    assert found.warnings == ()
    assert (found.items, found.channels, found.lengths, found.classes, found.groups) == (8, 2, (6, 6.0, 6), 2, 2)
    assert found.counts == {"a": 4, "b": 4}
    assert str(found) == "8 items, 2 channels, 6 to 6 steps (median 6), 2 groups\n2 classes: a 4, b 4"


def test_every_fault_is_named():
    items = [*noise(10), noise(1, 40)[0], noise(1, 1)[0]]
    for item in items:
        item[:, 1] = 3.0
    items[4], items[5] = items[0], items[1]
    labels = ["a", "b", "a", "b", "a", "c", *["a"] * 6]
    found = summarize(lw.Dataset(items, labels)).warnings
    assert found == (
        "channel 1 is constant",
        "2 items are far from the median length of 6 steps: 10 (40), 11 (1)",
        "1 item equals another one and has another label: 5 and 1",
        "1 item equals another one: 4 and 0",
        "1 class has a single item, which nothing can match: c",
    )


def test_padding_is_not_looked_at():
    values = noise(3)
    values[1, 4:] = torch.nan
    plain = summarize(lw.Dataset(lw.Batch(values, [6, 4, 6])))
    assert plain.warnings == ()
    assert (plain.classes, plain.groups, plain.counts) == (None, None, {})


def test_scales_and_uneven_classes():
    found = summarize(lw.Dataset(noise(24) * torch.tensor([1.0, 1e5]), ["a"] * 22 + ["b"] * 2)).warnings
    assert found[0].startswith("channel 1 varies ")
    assert found[0].endswith("standardise the channels")
    assert found[1] == "classes are uneven: a has 22 items, b has 2"
    many = torch.ones(2, 3, 9)
    many[1, 1, 0] = 2.0
    texts = summarize(lw.Dataset(many)).warnings
    assert texts[:6] == (*(f"channel {i} is constant" for i in range(1, 6)), "3 more channels are constant")


def test_images_and_nothing():
    images = torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
    found = summarize(lw.ImageSet(images, ["a", "a", "a"]))
    assert found.lengths is None
    assert found.warnings == ("2 items equal another one: 1 and 0, 2 and 0",)
    empty = summarize(lw.Dataset(lw.Batch(torch.zeros(0, 3, 2))))
    assert (empty.items, empty.warnings, empty.lengths) == (0, (), None)
