"""Measurements of a trained network besides its scores: noise, chaos, synchronisation, candidates."""

import copy
import time
from collections.abc import Iterator

import torch

import likewise as lw
from likewise.dynamics.lyapunov import lyapunov

NOISE = tuple(0.25 * level for level in range(9))  # deviations, of the paper's Figure 4
NOISY_ITEMS = 400
PAIRS_OVER_TIME = 200
EXPONENT_STEPS = 300
SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the references that pass the coupled network


def measure(
    distance: lw.Distance,
    train: lw.Dataset,
    test: lw.Dataset,
    *,
    candidates: bool = False,
    siamese: lw.Distance | None = None,
) -> dict:
    """Distances under noise, the largest exponent, errors over time, and retrieval by candidates.

    siamese: a siamese GRU that was trained by itself; it may choose candidates too.
    """
    found: dict = {"noise": under_noise(distance, test), "largest_exponent": largest_exponent(distance)}
    if isinstance(distance, lw.CoupledGRU):
        found["synchronization"] = synchronization(distance, test)
        if candidates:
            found["candidates"] = list(by_candidates(distance, siamese, train, test))
    return found


def largest_exponent(distance: lw.Distance) -> float | None:
    """The largest Lyapunov exponent of one side of a network, without input: chaotic if it is positive."""
    siamese = lw.SiameseGRU.of(distance) if isinstance(distance, lw.CoupledGRU) else distance
    if not isinstance(siamese, lw.SiameseGRU):
        return None
    network, threads = copy.deepcopy(siamese).cpu().double(), torch.get_num_threads()
    torch.set_num_threads(1)  # matrices of 20 x 20: threads of many processes only wait for each other
    try:
        return float(lyapunov(network, steps=EXPONENT_STEPS, burn_in=EXPONENT_STEPS // 2, count=1))
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def synchronization(coupled: lw.CoupledGRU, test: lw.Dataset) -> dict:
    """Mean error ||h_t - h'_t|| at each step, and mean coupling, of positive and negative pairs of test sequences."""
    device = next(coupled.parameters()).device
    labels = test.codes
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    first, second = order[: len(order) // 2], order[len(order) // 2 :][: len(order) // 2]
    found: dict = {}
    for name, wanted in (("positive", True), ("negative", False)):
        chosen = ((labels[first] == labels[second]) == wanted).nonzero()[:PAIRS_OVER_TIME, 0]
        if len(chosen):
            x, y = (test.items[side[chosen]].to(device) for side in (first, second))
            alignment = coupled.align(x, y)
            found[name] = alignment.error.mean(0).tolist()
            found[f"{name}_coupling"] = float(alignment.coupling.mean())
    return found


@torch.no_grad()
def under_noise(distance: lw.Distance, test: lw.Dataset) -> dict:
    """Mean distances of positive and of negative pairs of test sequences to which noise was added (Figure 4)."""
    device = next(distance.parameters()).device
    step = max(1, len(test) // NOISY_ITEMS)
    x, y = test.items[::step].to(device), test.codes[::step].to(device)
    same = y[:, None] == y
    other = torch.eye(len(y), dtype=torch.bool, device=device)
    found: dict[str, list[float]] = {"levels": list(NOISE), "positive": [], "negative": []}
    for level in NOISE:
        draw = torch.randn(x.values.shape, generator=torch.Generator().manual_seed(0)).to(x.values)
        D = distance.matrix(lw.Batch(x.values + level * draw, x.lengths))
        found["positive"].append(float(D[same & ~other].mean()))
        found["negative"].append(float(D[~same].mean()))
    return found


def by_candidates(
    coupled: lw.CoupledGRU, siamese: lw.Distance | None, train: lw.Dataset, test: lw.Dataset
) -> Iterator[dict]:
    """Scores and times when only a share of the references passes the coupled network.

    Candidates come from the siamese GRU, if there is one, and from the network's own twin: its weights without the
    coupling.
    """
    choosers = {"twin": lw.SiameseGRU.of(coupled)} | ({} if siamese is None else {"sgru": siamese})
    for chooser, cheap in choosers.items():
        for share in SHARES:
            start = time.perf_counter()
            scores = lw.evaluate(coupled, test, train, candidates=lw.evaluation.Candidates(cheap, share))
            yield {
                "by": chooser,
                "share": share,
                "accuracy": scores.accuracy,
                "f1": scores.f1,
                "map": scores.map,
                "seconds": time.perf_counter() - start,
            }
