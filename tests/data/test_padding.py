import numpy as np
import pytest
import torch

from likewise.data.batch import Batch
from likewise.data.bounds import padding_limit
from likewise.data.padding import pad_stacked


@pytest.mark.parametrize("lengths", [[], [1], [3, 3], [1, 4, 2]])
def test_like_from_list(lengths):
    values = np.arange(2.0 * sum(lengths)).reshape(-1, 2)
    items = np.split(values, np.cumsum(lengths)[:-1]) if lengths else []
    batch = pad_stacked("x", values, np.array(lengths, np.int64), 1000)
    assert batch == (Batch.from_list(items) if items else Batch(torch.empty(0, 0, 2)))
    assert not batch.values[~batch.mask].any()


def test_limit_counts_padded_bytes():
    values, lengths = np.zeros((5, 3), np.float32), np.array([4, 1])
    assert len(pad_stacked("x", values, lengths, 2 * 4 * 3 * 4)) == 2
    with pytest.raises(ValueError, match="x: 2 sequences padded to the longest, item 0 with 4 steps, take 96 bytes"):
        pad_stacked("x", values, lengths, 95)


def test_limit_of_a_text_file():
    assert padding_limit(1) == 1 << 28
    assert padding_limit(1 << 30) == 1 << 36
