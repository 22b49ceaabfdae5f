import pytest
import torch
from torch import nn

from likewise.training.averaging import MovingAverage
from likewise.training.options import Checkpoints
from tests.training.problems import metric, problem, train, weights
from tests.training.test_resume import CrashError, crash_at


def test_it_is_the_mean_by_hand():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    average = MovingAverage(module, 0.9)
    expected = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    for _ in range(4):
        module(torch.randn(5, 2))
        nn.init.normal_(module[0].weight)
        average.update()
        for name, tensor in module.state_dict().items():
            expected[name] = tensor if tensor.dtype == torch.int64 else 0.9 * expected[name] + 0.1 * tensor
    for name, tensor in expected.items():
        torch.testing.assert_close(average.tensors[name], tensor)
    assert average.tensors["1.num_batches_tracked"] == 4
    before = module[0].weight.clone()
    with average.in_place():
        torch.testing.assert_close(module[0].weight.detach(), expected["0.weight"])
    assert torch.equal(module[0].weight, before)


def test_the_average_is_validated_and_kept():
    seen, means = [], []

    def note(step):
        seen.append(weights(step.metric))
        return step.features.values.sum() * 0

    m = metric(dropout=0.0)
    start = weights(m)
    history = train(m, average=0.8, terms=[note], epochs=2, val=lambda m: means.append(weights(m)) or len(means))
    plain = metric(dropout=0.0)
    train(plain, epochs=2)
    mean, after = start, [*seen[1:], weights(plain)]
    expected = []
    for number, now in enumerate(after, 1):
        mean = 0.8 * mean + 0.2 * now
        expected += [mean] * (number % 4 == 0)
    torch.testing.assert_close(torch.stack(means), torch.stack(expected))
    torch.testing.assert_close(weights(m), mean)
    assert history.best_epoch == 2
    last = metric(dropout=0.0)
    train(last, average=0.8, epochs=2)
    torch.testing.assert_close(weights(last), mean), "without validation too"
    none = metric(dropout=0.0)
    train(none, average=0, epochs=2)
    assert torch.equal(weights(none), weights(plain))


@pytest.mark.parametrize("total", [2, 9])
def test_it_is_resumed_bit_for_bit(tmp_path, total):
    options = {"average": 0.7, "epochs": 4, "val": problem(9, seed=1)}
    with pytest.raises(CrashError):
        train(metric(), checkpoints=Checkpoints(tmp_path, every=2), terms=[crash_at(total)], **options)
    m, whole = metric(seed=7), metric()
    train(m, checkpoints=Checkpoints(tmp_path, resume=True), **options)
    train(whole, **options)
    assert torch.equal(weights(m), weights(whole))
    again = metric(seed=7)
    train(again, checkpoints=Checkpoints(tmp_path, resume=True), **options)
    assert torch.equal(weights(again), weights(whole)), "a run that is done"
