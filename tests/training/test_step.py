import pytest
import torch

import likewise as lw
from likewise.training.step import Step
from tests.training.problems import metric, problem
from tests.training.test_fit import noisy


def test_the_matrix_of_a_step():
    m, (x, y) = metric(distance=lw.DTW(open_end=True)).eval(), problem()
    augmented = noisy(x, torch.Generator().manual_seed(0))
    step = Step(m, x, y, augment=lambda batch, generator: augmented)
    expected = m.matrix(x)
    for b in range(len(x)):
        expected[b, b] = (m([x[b]], [augmented.batch[b]])[0] + m([augmented.batch[b]], [x[b]])[0]) / 2
    torch.testing.assert_close(step.D, expected)
    assert step.features == m.encode(x)
    assert step.augmented_features == m.encode(augmented.batch)


def test_unused_results_are_not_computed():
    calls = []
    m, (x, y) = metric(), problem()
    m.encoder.register_forward_hook(lambda *_: calls.append(1))
    step = Step(m, x, y)
    assert not calls
    assert step.features is step.features
    step.D  # noqa: B018
    assert len(calls) == 1
    assert step.augmented is step.augmented_features is None


def test_the_generator_decides_the_augmentation():
    m, (x, y) = metric(), problem()
    made = [Step(m, x, y, augment=noisy, generator=torch.Generator().manual_seed(k)).augmented.batch for k in (0, 0, 1)]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_errors():
    m, (x, y) = metric(), problem()
    with pytest.raises(ValueError, match="augment returned 2 items for a batch of 24"):
        Step(m, x, y, augment=lambda batch, generator: noisy(batch[:2], generator)).D  # noqa: B018
    with pytest.raises(ValueError, match=r"layer 'x' was not requested .requested: none"):
        Step(m, x, y).layer("x")
    with pytest.raises(ValueError, match=r"layer 'x' was not requested .requested: outward"):
        Step(m, x, y, layers=("outward",)).layer("x")
