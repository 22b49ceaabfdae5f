"""Augmentations with a known alignment to the original sequence: x^ = plan.T @ x, exactly.

plan (Tx, T^) holds the weight of each frame of x in each frame of x^; its columns sum to 1. An augmentation takes a
Batch and a generator, and returns an ``Augmented``.

Reference: Su & Wen, Temporal alignment prediction (ICLR 2022), section 3.4. Its published code returns zeros for
sequences blurred by five frames; here they are blurred.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from likewise.data.batch import Batch, as_sequences

SHORT = 4  # sequences of up to this many frames are blurred by three with stride 1; those of up to two are copied


@dataclass(frozen=True)
class Augmented:
    """Augmented sequences, and the plans (B, Tx, T^) that made them: x^[b] = plans[b].T @ x[b]. Zero in the padding.

    Example:
        >>> x = torch.randn(1, 10, 2)
        >>> augmented = RandomMerge()(x)
        >>> augmented.batch.values.allclose(augmented.plans.mT @ x, atol=1e-6)
        True
    """

    batch: Batch
    plans: Tensor


class Augmentation:
    """Base class: makes a plan for every sequence, and x^ from it. Subclasses define ``plan``.

    Example:
        >>> class Reverse(Augmentation):
        ...     def plan(self, length, random):
        ...         return np.eye(length)[::-1]
        >>> Reverse()([[1.0, 2.0, 3.0]]).batch[0].T
        tensor([[3., 2., 1.]])
    """

    def plan(self, length: int, random: np.random.Generator) -> np.ndarray:
        """A plan (length, T^) for a sequence of that length."""
        raise NotImplementedError

    def __call__(self, batch: object, generator: torch.Generator | None = None) -> Augmented:
        """Augment every sequence of a batch; ``generator`` lives on the CPU."""
        batch = Batch(*as_sequences(type(self).__name__, "batch", batch))
        # NumPy is many times faster than PyTorch at small draws.
        random = np.random.default_rng(int(torch.randint(1 << 62, (), generator=generator)))
        plans = [self.plan(n, random) for n in batch.lengths.tolist()]
        lengths = [plan.shape[1] for plan in plans]
        padded = np.zeros((len(batch), batch.values.shape[1], max(lengths, default=0)))
        for b, plan in enumerate(plans):
            padded[b, : plan.shape[0], : plan.shape[1]] = plan
        whole = torch.from_numpy(padded).to(batch.values)
        x = batch.values.masked_fill(~batch.mask[..., None], 0)  # padding may hold NaN, and 0 * NaN is NaN
        return Augmented(Batch(whole.mT @ x, lengths) if plans else batch, whole)


class RandomBlur(Augmentation):
    """Average windows of three or five neighbouring frames, a stride of 1, 2 or 3 apart, with random weights.

    five: the probability of a window of five. In a window of three, the middle weighs 0.55 to 0.9 and the two sides
        share the rest. In a window of five, the middle weighs 0.33 to 0.5, the inner two 0.16 or more, and the outer
        two share the rest.

    Sequences of three or four frames are blurred by three with a stride of 1; shorter ones are copied.

    Example:
        >>> augmented = RandomBlur()(torch.randn(1, 10, 2), torch.Generator().manual_seed(0))
        >>> augmented.batch, augmented.plans.shape
        (Batch(1 sequence, 3 steps, 2 channels, torch.float32, cpu), torch.Size([1, 10, 3]))
        >>> augmented.plans[0].sum(0).allclose(torch.ones(3))
        True
    """

    def __init__(self, five: float = 0.4) -> None:
        self.five = five

    def plan(self, length: int, random: np.random.Generator) -> np.ndarray:
        """A plan with one column per window."""
        if length <= 2:
            return np.eye(length)
        if length > SHORT and random.random() < self.five:
            middle = random.uniform(0.33, 0.5)
            inner = random.uniform(0.16, (1 - middle) / 2)
            outer = (1 - middle) / 2 - inner
            weights = [outer, inner, middle, inner, outer]
        else:
            middle = random.uniform(0.55, 0.9)
            weights = [(1 - middle) / 2, middle, (1 - middle) / 2]
        stride = 1 if length <= SHORT else int(random.integers(1, 4))
        return _windows(length, weights, stride)


class RandomMerge(Augmentation):
    """Cut a sequence of T frames at random into 50 % to 80 % of T parts, and average each part.

    The weights within a part are the softmax of normal draws. Sequences of up to two frames are copied.

    Example:
        >>> augmented = RandomMerge()(torch.randn(1, 10, 2), torch.Generator().manual_seed(0))
        >>> 5 <= augmented.batch.lengths[0] <= 8
        tensor(True)
    """

    def plan(self, length: int, random: np.random.Generator) -> np.ndarray:
        """A plan with one column per part."""
        if length <= 2:
            return np.eye(length)
        least, most = max(1, length // 2), max(1, int(0.8 * length))
        parts = int(random.integers(least, most + 1))
        starts = np.zeros(length, np.int64)
        starts[random.permutation(length - 1)[: parts - 1] + 1] = 1
        part = starts.cumsum()  # per frame
        weights = np.exp(random.standard_normal(length))
        plan = np.zeros((length, parts))
        plan[np.arange(length), part] = weights / np.bincount(part, weights)[part]
        return plan


class RandomBlurOrMerge(Augmentation):
    """Blur or merge each sequence, at random: TAP's augmentation.

    merge: the probability of a merge. The defaults match the paper's code: 50 % are merged, 30 % blurred by three
        frames, 20 % by five. Sequences of up to four frames are blurred.

    Example:
        >>> augmented = RandomBlurOrMerge()([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0]])
        >>> augmented.plans.shape[:2]
        torch.Size([2, 6])
    """

    def __init__(self, merge: float = 0.5, five: float = 0.4) -> None:
        self.merge = merge
        self.five = five
        self._blur, self._merge = RandomBlur(five), RandomMerge()

    def plan(self, length: int, random: np.random.Generator) -> np.ndarray:
        """The plan of a blur or of a merge."""
        merged = length > SHORT and random.random() < self.merge
        return (self._merge if merged else self._blur).plan(length, random)


def _windows(length: int, weights: Sequence[float], stride: int) -> np.ndarray:
    """A plan whose column k holds the weights from row k * stride."""
    starts = np.arange(0, length - len(weights) + 1, stride)
    plan = np.zeros((length, len(starts)))
    plan[starts + np.arange(len(weights))[:, None], np.arange(len(starts))] = np.array(weights)[:, None]
    return plan
