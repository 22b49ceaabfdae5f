"""Augmentations that know how the augmented sequence aligns with its original: x^ = plan.T @ x, exactly.

plan (Tx, T^) says how much of each frame of x went into each frame of x^; its columns sum to 1. An augmentation takes a
Batch and a generator, and returns an ``Augmented``.

Reference: Su & Wen, Temporal alignment prediction (ICLR 2022), section 3.4. Its published code leaves sequences that
are blurred by five frames as zeros; here they are blurred.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from likewise.data.batch import Batch, as_sequences

SHORT = 4  # sequences of up to this many frames are blurred by three with a stride of one; of up to two, copied


@dataclass(frozen=True)
class Augmented:
    """Augmented sequences, and the plans (B, Tx, T^) that made them: x^[b] = plans[b].T @ x[b]. Zero in the padding."""

    batch: Batch
    plans: Tensor


class Augmentation:
    """Makes a plan for every sequence, and x^ from it. Subclasses write ``plan``.

    Example:
        >>> class Reverse(Augmentation):
        ...     def plan(self, length, generator):
        ...         return torch.eye(length).flip(0)
        >>> Reverse()([[1.0, 2.0, 3.0]]).batch[0].T
        tensor([[3., 2., 1.]])
    """

    def plan(self, length: int, generator: torch.Generator | None) -> Tensor:
        """A plan (length, T^) for a sequence of that length, on the CPU."""
        raise NotImplementedError

    def __call__(self, batch: object, generator: torch.Generator | None = None) -> Augmented:
        """Augment every sequence of a batch; ``generator`` lives on the CPU."""
        batch = Batch(*as_sequences(type(self).__name__, "batch", batch))
        plans = [self.plan(int(n), generator) for n in batch.lengths]
        lengths = [plan.shape[1] for plan in plans]
        whole = torch.zeros(len(batch), batch.values.shape[1], max(lengths, default=0))
        for b, plan in enumerate(plans):
            whole[b, : plan.shape[0], : plan.shape[1]] = plan
        whole = whole.to(batch.values)
        x = batch.values.masked_fill(~batch.mask[..., None], 0)  # padding may hold NaN, and 0 NaN is NaN
        return Augmented(Batch(whole.mT @ x, lengths) if plans else batch, whole)


class RandomBlur(Augmentation):
    """Average windows of three or five neighbouring frames, a stride of 1, 2 or 3 apart, with random weights.

    five: how likely a window of five is. Of three, the middle weighs 0.55 to 0.9 and the two sides the same; of five,
        the middle weighs 0.33 to 0.5, the inner two 0.16 or more, the outer two what is left.

    Sequences of three or four frames are blurred by three with a stride of 1; shorter ones are copied.

    Example:
        >>> augmented = RandomBlur()(torch.randn(1, 10, 2), torch.Generator().manual_seed(0))
        >>> augmented.batch, augmented.plans.shape
        (Batch(1 sequence, 3 steps, 2 channels, torch.float32, cpu), torch.Size([1, 10, 3]))
        >>> augmented.plans[0].sum(0)
        tensor([1., 1., 1.])
    """

    def __init__(self, five: float = 0.4) -> None:
        self.five = five

    def plan(self, length: int, generator: torch.Generator | None) -> Tensor:
        """Windows as columns."""
        if length <= 2:
            return torch.eye(length)
        if length > SHORT and _uniform(0, 1, generator) < self.five:
            middle = _uniform(0.33, 0.5, generator)
            inner = _uniform(0.16, (1 - middle) / 2, generator)
            outer = (1 - middle) / 2 - inner
            weights = [outer, inner, middle, inner, outer]
        else:
            middle = _uniform(0.55, 0.9, generator)
            weights = [(1 - middle) / 2, middle, (1 - middle) / 2]
        stride = 1 if length <= SHORT else int(torch.randint(1, 4, (), generator=generator))
        return _windows(length, weights, stride)


class RandomMerge(Augmentation):
    """Cut a sequence at random places into 50 % to 80 % as many parts as it has frames, and average each part.

    The weights within a part are the softmax of normal draws. Sequences of up to two frames are copied.

    Example:
        >>> augmented = RandomMerge()(torch.randn(1, 10, 2), torch.Generator().manual_seed(0))
        >>> 5 <= augmented.batch.lengths[0] <= 8
        tensor(True)
    """

    def plan(self, length: int, generator: torch.Generator | None) -> Tensor:
        """Parts as columns."""
        if length <= 2:
            return torch.eye(length)
        least, most = max(1, length // 2), max(1, int(0.8 * length))
        parts = int(torch.randint(least, most + 1, (), generator=generator))
        cuts = torch.randperm(length - 1, generator=generator)[: parts - 1] + 1
        part = torch.zeros(length, dtype=torch.int64)
        part[cuts] = 1
        part = part.cumsum(0)  # of each frame
        mine = torch.arange(parts) == part[:, None]  # (length, parts)
        draws = torch.randn(length, generator=generator)
        return draws[:, None].masked_fill(~mine, -torch.inf).softmax(0)


class RandomBlurOrMerge(Augmentation):
    """Blur or merge each sequence, at random: TAP's augmentation.

    merge: how likely a merge is. The defaults give what the paper's code draws: half are merged, three in ten blurred
        by three frames, two in ten by five. Sequences of up to four frames are blurred.

    Example:
        >>> augmented = RandomBlurOrMerge()([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0]])
        >>> augmented.plans.shape[:2]
        torch.Size([2, 6])
    """

    def __init__(self, merge: float = 0.5, five: float = 0.4) -> None:
        self.merge = merge
        self.five = five
        self._blur, self._merge = RandomBlur(five), RandomMerge()

    def plan(self, length: int, generator: torch.Generator | None) -> Tensor:
        """A blur's plan, or a merge's."""
        merged = length > SHORT and _uniform(0, 1, generator) < self.merge
        return (self._merge if merged else self._blur).plan(length, generator)


def _uniform(low: float, high: float, generator: torch.Generator | None) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


def _windows(length: int, weights: Sequence[float], stride: int) -> Tensor:
    """A plan whose column k holds the weights at rows k * stride and on."""
    starts = torch.arange(0, length - len(weights) + 1, stride)
    rows = starts + torch.arange(len(weights))[:, None]  # (window, T^)
    return torch.zeros(length, len(starts)).scatter_(0, rows, torch.tensor(weights)[:, None].expand(-1, len(starts)))
