from importlib import resources
from pathlib import Path

import pytest
import torch

import likewise as lw
from likewise.data.japanese_vowels import load_japanese_vowels


def test_they_are_the_archives():
    aeon = pytest.importorskip("aeon")
    folder = Path(aeon.__file__).parent / "datasets" / "data" / "JapaneseVowels"
    for ours, part in zip(load_japanese_vowels(), ("TRAIN", "TEST"), strict=True):
        theirs = lw.read_ts(folder / f"JapaneseVowels_{part}.ts")
        assert ours.classes == theirs.classes
        assert list(ours.labels) == list(theirs.labels)
        assert torch.equal(ours.items.lengths, theirs.items.lengths)
        assert torch.equal(ours.items.values, theirs.items.values)


def test_licence_and_citation_come_along():
    text = (resources.files("likewise.data") / "japanese_vowels.txt").read_text(encoding="utf-8")
    assert "CC BY 4.0" in text
    assert "Kudo, J. Toyama and M. Shimbo (1999)" in text
