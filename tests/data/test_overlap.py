import numpy as np
import pytest
import torch

import likewise as lw
from likewise.data import overlap as module
from likewise.data.files import Files, FileSet, open_sequence_folder
from likewise.data.overlap import overlap


def naive(x, y):
    """The definition: every item against every item, over the real steps."""
    return {
        i: equal
        for i, item in enumerate(x)
        if (equal := [j for j, other in enumerate(y) if item.shape == other.shape and torch.equal(item, other)])
    }


def sequences(count, seed=0, channels=2):
    generator = torch.Generator().manual_seed(seed)
    return lw.Batch.from_list([
        torch.randint(0, 2, (int(torch.randint(1, 4, (1,), generator=generator)), channels), generator=generator).float()
        for _ in range(count)
    ])  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
def test_sequences_are_those_of_a_naive_search(chunk, monkeypatch):
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", chunk)
    x, y = sequences(40), sequences(60, seed=1)
    expected = naive(x, y)
    assert 0 < len(expected) < 40, "choose another seed: some items must be in both"
    assert overlap(x, y).places == expected


@pytest.mark.parametrize("shape", [(3,), (1, 2, 2), (2, 1, 2)])
def test_vectors_and_images(shape):
    x, y = (torch.randint(0, 2, (n, *shape), dtype=torch.uint8) for n in (20, 30))
    assert overlap(x, y).places == naive(x, y)
    assert overlap(x.float(), y.float()).places == naive(x, y)
    strided = x[:, None].expand(-1, 2, *shape)[:, 1]
    assert overlap(strided, y).places == naive(x, y)


def test_all_numbers_of_an_item_count():
    x = torch.randn(1, 500, 3)
    for step in range(500):
        y = x.clone()
        y[0, step, 1] += 1e-3
        assert not overlap(lw.Batch(x), lw.Batch(y))
    image = torch.zeros(1, 3, 16, 16)
    for i in range(256):
        other = image.clone()
        other[0, 1].view(-1)[i] = 1
        assert not overlap(image, other)


def test_padding_does_not_count():
    x = lw.Batch(torch.zeros(2, 5, 1), [3, 5])
    y = lw.Batch(torch.nn.functional.pad(x.values, (0, 0, 0, 4), value=torch.nan), x.lengths)
    y.values[0, 3:] = torch.nan
    assert overlap(x, y).places == {0: [0], 1: [1]}
    assert not overlap(x, lw.Batch(torch.zeros(1, 4, 1))), "another length is another item"


def test_the_shorter_type_decides_and_zero_has_no_sign():
    x = torch.randn(5, 4, 2, dtype=torch.float64)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert len(overlap(lw.Batch(x), lw.Batch(x.to(dtype)))) == 5
        assert len(overlap(lw.Batch(x.to(dtype)), lw.Batch(x))) == 5
    assert overlap(torch.zeros(1, 2), -torch.zeros(1, 2)).places == {0: [0]}
    assert overlap(torch.ones(1, 3, 2, 2, dtype=torch.uint8), torch.ones(1, 3, 2, 2)).places == {0: [0]}


def test_what_cannot_be_compared_has_nothing_in_common():
    x = torch.zeros(2, 3)
    for other in (torch.zeros(2, 4), lw.Batch(torch.zeros(2, 3, 1)), ["a", "b"], torch.zeros(0, 3)):
        assert not overlap(x, other)
        assert not overlap(other, x)
    assert not overlap(lw.Batch(torch.zeros(1, 2, 1)), lw.Batch(torch.zeros(1, 2, 2)))


def test_some_of_the_items():
    x = sequences(30)
    rows, columns = np.array([3, 5, 8]), np.arange(10, 30)
    found = overlap(x, x, rows, columns)
    assert found.places == naive(x[rows], x[columns])
    assert module.Overlap({0: [0]}).named("item", "item", rows, columns) == "item[3] is item[10]"


def test_pairs_are_equal_if_both_sides_are():
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[5.0], [6.0], [7.0]])
    assert overlap((x, y), (x.clone(), y.clone())).places == {0: [0], 1: [1], 2: [2]}
    assert overlap((x, y), (x, y.flip(0))).places == {1: [1]}


def test_ids():
    x = torch.arange(4.0)[:, None]
    positions = tuple("0123")
    assert overlap(x, x, ids=(positions, positions)).known == (), "positions are not evidence"
    assert overlap(x[1:], x, ids=(positions[1:], positions)).known == (0, 1, 2), "a part keeps its ids"
    assert overlap(x, x, ids=(tuple("abcd"), tuple("aecd"))).known == (0, 2, 3)
    twice = torch.cat([x, x])
    assert overlap(x[:1], twice, ids=(("e",), tuple("abcdefgh"))).known == (0,), "any equal item may have the id"
    assert overlap(x, x, ids=(("a",) * 4, None)).known == ()
    found = overlap(x, x, ids=(tuple("abcd"), tuple("efgd")))
    assert found.named("q", "r") == "q[3] is r[3], q[0] is r[0], q[1] is r[1], ..."


def save(folder, arrays):
    (folder / "walk").mkdir(parents=True)
    for i, array in enumerate(arrays):
        np.save(folder / "walk" / f"{i}.npy", array)
    return open_sequence_folder(folder)


def test_files_are_compared_by_their_contents(tmp_path):
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=(5000, 1)).astype(np.float32) for _ in range(4)]
    changed = arrays[2].copy()
    changed[1500] += 1  # not at the beginning, the middle or the end
    one, other = save(tmp_path / "one", arrays[:3]), save(tmp_path / "other", [changed, arrays[3], arrays[1]])
    assert overlap(one, other).places == {1: [2]}
    last = one[[2]]
    assert overlap(one, last, ids=(one.ids, last.ids)).known == (2,), "ids are the files"
    assert not overlap(one, lw.Batch(torch.zeros(1, 2, 1)))


def test_a_missing_file_is_left_to_the_reader(tmp_path):
    gone = FileSet(Files((str(tmp_path / "gone"),), np.load), ["walk"])
    other = FileSet(Files((str(tmp_path / "lost"),), np.load), ["walk"])
    assert not overlap(gone, other)
    assert overlap(gone, gone).places == {0: [0]}


class Noisy(torch.utils.data.Dataset):
    """Items that are read one by one, some with noise."""

    def __init__(self, values, noise=0.0):
        self.values, self.noise, self.labels, self.reads = values, noise, ["walk"] * len(values), 0

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        self.reads += 1
        return self.values[i] + self.noise * torch.randn(self.values[i].shape), "walk"


def test_map_style_datasets_are_read_if_they_are_small(monkeypatch):
    x = torch.randn(6, 3, 1)
    state = torch.get_rng_state()
    assert not overlap(Noisy(x), Noisy(x))
    assert overlap(Noisy(x[2:4]), Noisy(x), read=True).places == {0: [2], 1: [3]}
    assert overlap(Noisy(x[2:4]), lw.Batch(x), read=True).places == {0: [2], 1: [3]}
    assert not overlap(Noisy(x, noise=1.0), Noisy(x), read=True), "what is drawn anew is not the same"
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setattr(module, "MOST_READ", 5)
    large = Noisy(x)
    assert not overlap(Noisy(x[2:4]), large, read=True)
    assert large.reads == 0


def test_a_hundred_thousand_distinct_items_are_not_hashed(monkeypatch):
    monkeypatch.setattr(module, "_digest", None)
    x = torch.arange(200_000.0)[:, None, None].expand(-1, 4, 1)
    assert not overlap(lw.Batch(x[:100_000]), lw.Batch(x[100_000:]))
