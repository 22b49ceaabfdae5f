"""A warning before training if steps would take longer than a minute."""

import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from likewise._modes import evaluating
from likewise.data.batch import Batch
from likewise.models.metric import Metric, take
from likewise.training.source import Source

LEAST_CELLS = 1 << 22  # cells of the cost matrices of a batch: with fewer, steps are fast and no trial is needed
LONGEST = 60.0  # seconds
TRIED = 4  # items
SURE = 0.5  # seconds for two items; above this, fixed costs are negligible


def warn_if_slow(metric: Metric, source: Source, batch_size: int, fabric: Mapping[str, Any]) -> None:
    """Warn if a step on all pairs of a batch would take longer than a minute, and suggest remedies.

    A few items are compared, forward and backward, and the time per pair is scaled up. Short sequences and small
    batches need no trial.
    """
    items = source.items
    if not isinstance(items, Batch) or batch_size <= 2 * TRIED:
        return
    steps = int(items.lengths.max())
    if batch_size * batch_size * steps * steps < LEAST_CELLS:
        return
    if fabric.get("accelerator", "auto") not in ("auto", "cpu") or metric_device(fabric) != "cpu":
        return
    longest = items.lengths.argsort(descending=True, stable=True)[:TRIED] if source.chosen is None else slice(0, TRIED)
    seconds = step_time(metric, source.take(longest), batch_size)
    if seconds > LONGEST:
        warnings.warn(
            f"fit: a step of {batch_size} sequences of up to {steps} frames takes about {seconds / 60:.1f} minutes on "
            "this CPU. Shorten the sequences (keep every n-th frame, or cut windows), lower batch_size (half of it "
            'takes a quarter of the time), or train on a GPU: accelerator="gpu", precision="bf16-mixed"',
            stacklevel=3,
        )


def step_time(metric: Metric, few: Batch, batch_size: int) -> float:
    """The estimated seconds of a step, from a trial with two items and, unless that is slow already, with four.

    The time of two items includes fixed costs; its difference from the time of four does not. For slow steps, the trial
    takes about a thousandth of the step.
    """
    pairs = batch_size * batch_size
    with evaluating(metric), torch.enable_grad():
        if _time(metric, few, 2) * pairs / 4 < LONGEST:  # a warm-up, for one-time costs
            return 0.0
        two = _time(metric, few, 2)
        if two > SURE:
            return two * pairs / 4
        return max(0.0, _time(metric, few, TRIED) - two) * pairs / (TRIED * TRIED - 4)


def _time(metric: Metric, few: Batch, count: int) -> float:
    start = time.perf_counter()
    value = metric.matrix(take(few, slice(0, count))).sum()
    if value.requires_grad:
        torch.autograd.grad(value, [p for p in metric.parameters() if p.requires_grad], allow_unused=True)
    return time.perf_counter() - start


def metric_device(fabric: Mapping[str, Any]) -> str:
    """Fabric's default accelerator: "cpu" if no other is available."""
    if fabric.get("accelerator", "auto") == "cpu":
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
