"""Japanese Vowels, a small real data set that is included in likewise."""

from importlib import resources

from likewise.data.dataset import Dataset
from likewise.data.npz import read_npz


def load_japanese_vowels() -> tuple[Dataset, Dataset]:
    """Load Japanese Vowels, the training and the test set: nine men say /ae/, and the class is the speaker.

    The sets have 270 and 370 utterances of 7 to 29 frames; a frame has 12 cepstral coefficients. The licence is CC BY
    4.0; japanese_vowels.txt names the source.

    Example:
        >>> train, test = load_japanese_vowels()
        >>> len(train), len(test), train.classes
        (270, 370, ('1', '2', '3', '4', '5', '6', '7', '8', '9'))

    Reference: Kudo, Toyama & Shimbo (1999), Pattern Recognition Letters 20(11-13), doi:10.24432/C5NS47
    """
    with resources.as_file(resources.files("likewise.data") / "japanese_vowels.npz") as path:
        return read_npz(path, split="train"), read_npz(path, split="test")
