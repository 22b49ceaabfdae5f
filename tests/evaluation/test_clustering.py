import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from likewise.evaluation.clustering import clustering_agreement, normalized_mutual_information


def blobs(classes=6, each=40, spread=0.6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    centers = torch.randn(classes, 5, generator=generator) * 2
    return centers[labels] + spread * torch.randn(len(labels), 5, generator=generator), labels


@pytest.mark.parametrize("seed", range(5))
def test_mutual_information_equals_scikit_learns(seed):
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 5, 60), generator.integers(-2, 3, 60)
    second[:30] = first[:30]
    found = normalized_mutual_information(torch.from_numpy(first), torch.from_numpy(second))
    assert found == pytest.approx(normalized_mutual_info_score(first, second), abs=1e-12)


def test_mutual_information_at_its_ends():
    one, many = torch.zeros(4), torch.arange(4)
    assert normalized_mutual_information(one, one) == normalized_mutual_info_score(one, one) == 1
    assert normalized_mutual_information(one, many) == normalized_mutual_info_score(one, many) == 0
    assert normalized_mutual_information(many, many.flip(0)) == 1


def test_clusters_are_scikit_learns_best_of_ten():
    x, labels = blobs(spread=1.2)
    peer = KMeans(6, n_init=10, random_state=0).fit(x.numpy())
    assert clustering_agreement(x, labels) == pytest.approx(normalized_mutual_info_score(labels, peer.labels_))


def test_separate_blobs_are_found_for_every_type():
    x, labels = blobs(spread=0.01)
    assert clustering_agreement(x, labels) == 1
    assert clustering_agreement(x.double() + 1000, labels * 7 - 3) == 1
    assert clustering_agreement(x.half(), labels, starts=2) == 1
    assert clustering_agreement(x.clone().requires_grad_(), labels) == 1


def test_a_seed_decides():
    x, labels = blobs(spread=3.0)
    before = torch.get_rng_state()
    found = {clustering_agreement(x, labels, starts=1, seed=seed) for seed in (3, 3, 3)}
    assert len(found) == 1
    assert torch.equal(torch.get_rng_state(), before)


def test_duplicates_and_as_many_clusters_as_vectors():
    assert clustering_agreement(torch.arange(4.0)[:, None], torch.arange(4)) == 1
    assert clustering_agreement(torch.ones(4, 2), torch.tensor([0, 0, 1, 1])) == 0
    assert clustering_agreement(torch.ones(3, 2), torch.tensor([4, 4, 4])) == 1


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (lambda: clustering_agreement(torch.zeros(3), [0, 1, 2]), ValueError, r"expected x of shape \(N, C\), not empty"),
        (lambda: clustering_agreement(np.zeros((3, 2)), [0, 1, 2]), TypeError, "expected x to be a torch.Tensor"),
        (lambda: clustering_agreement(torch.tensor([[0.0], [torch.inf]]), [0, 1]), ValueError, "infinity in row 1"),
        (lambda: clustering_agreement(torch.zeros(3, 1), [0, 1]), ValueError, r"expected labels of shape \(3,\)"),
        (lambda: normalized_mutual_information([0, 1], [0]), ValueError, r"expected clusters of shape \(2,\), got \(1,\)"),
        (lambda: normalized_mutual_information([], []), ValueError, "expected at least one label"),
        (lambda: clustering_agreement(torch.zeros(2, 1), [0, 1], starts=0), ValueError, "starts must be a whole number"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(run, error, message):
    with pytest.raises(error, match=message):
        run()
