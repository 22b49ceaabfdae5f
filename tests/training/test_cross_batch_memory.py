import pytest
import torch

import likewise as lw
from likewise import losses
from likewise.training.cross_batch_memory import CrossBatchMemory
from likewise.training.options import Checkpoints
from likewise.training.step import Step
from tests.training.problems import metric, problem, spread, train, weights


@pytest.mark.parametrize("vectors", [False, True])
def test_it_equals_a_naive_loop(vectors):
    torch.manual_seed(0)
    (x, y), kept = problem(), []
    m = metric(dropout=0.0).eval()
    if vectors:
        m = lw.Metric(lw.Embedder(lw.GRUEncoder(2, 4), 4), lw.Euclidean()).eval()
    term = CrossBatchMemory(batches=2, weight=0.3, start=1)
    for number, index in enumerate(torch.arange(24).split(5)):
        found = term(Step(m, x[index], y[index], spread, total=number))
        if number == 0:
            assert found == 0
        else:
            last = kept[-2:]
            D = torch.stack([torch.stack([m(x[[i]], x[[j]])[0] for some in last for j in some]) for i in index])
            columns = y[torch.cat(last)]
            torch.testing.assert_close(found, 0.3 * spread(D, y[index], columns))
            # The derivatives are those of the batch alone: kept items are constants.
            fixed = [m.encode(x[some]) for some in last]
            own = m.encode(x[index])
            fixed = lw.Batch.cat(fixed) if isinstance(own, lw.Batch) else torch.cat(fixed)
            fixed = lw.Batch(fixed.values.detach(), fixed.lengths) if isinstance(own, lw.Batch) else fixed.detach()
            expected = 0.3 * spread(m.distance.matrix(own, fixed), y[index], columns)
            parameters = list(m.parameters())
            for a, b in zip(
                *(torch.autograd.grad(v, parameters, allow_unused=True) for v in (found, expected)), strict=True
            ):
                assert (a is None) == (b is None)
                if a is not None:
                    torch.testing.assert_close(a, b)
        kept.append(index)
        assert len(term) == sum(map(len, kept[-2:]))


def test_resume_is_exact(tmp_path):
    def run(epochs, **options):
        m, term = metric(), CrossBatchMemory(batches=7)
        train(m, terms=[term], epochs=epochs, **options)
        return weights(m)

    whole = run(3)
    run(2, checkpoints=Checkpoints(tmp_path, every=1))
    assert torch.equal(run(3, checkpoints=Checkpoints(tmp_path, every=1, resume=True)), whole)
    m = metric()
    train(m)
    assert not torch.allclose(weights(m), whole)  # it matters


def test_it_begins_empty():
    term = CrossBatchMemory(batches=50)
    for _ in range(2):
        train(metric(), terms=[term], epochs=2)
        assert len(term) == 2 * 4 * 5


def test_checkpoints_with_false_claims():
    term, cpu = CrossBatchMemory(batches=2), torch.device("cpu")
    good = {"0.labels": torch.arange(3), "0.values": torch.randn(3, 4, 2), "0.lengths": torch.tensor([4, 1, 2])}
    term.load_state(good, cpu)
    assert {name: tensor.tolist() for name, tensor in term.state().items()} == {n: t.tolist() for n, t in good.items()}
    for wrong in (
        {"1.labels": torch.arange(3), "1.values": torch.randn(3, 2)},
        {
            f"{i}.{name}": tensor
            for i in range(3)
            for name, tensor in (("labels", torch.arange(1)), ("values", torch.ones(1, 2)))
        },
        {"0.labels": torch.arange(3)},
        good | {"0.labels": torch.arange(2)},
        good | {"0.labels": torch.arange(3.0)},
        good | {"0.values": torch.full((3, 4, 2), torch.nan)},
        good | {"0.lengths": torch.tensor([5, 1, 2])},
    ):
        with pytest.raises(ValueError):
            term.load_state(wrong, cpu)


def test_losses_of_vectors_are_refused():
    m = lw.Metric(lw.Embedder(lw.GRUEncoder(2, 4), 4), lw.Euclidean())
    with pytest.raises(ValueError, match="loss of a matrix"):
        lw.fit(m, problem(), losses.AMSoftmax(3, 4), terms=[CrossBatchMemory()], verbose=False)
