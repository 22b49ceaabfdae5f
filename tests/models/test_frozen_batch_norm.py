import copy

import torch
from torch import nn

from likewise.models import freeze_batch_norm


def test_statistics_stay_and_weights_learn():
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    assert freeze_batch_norm(network) is network
    freeze_batch_norm(network)
    assert len(network[1]._forward_pre_hooks) == 1, "freezing twice is freezing once"
    x = torch.randn(5, 2)
    network.train()(x).sum().backward()
    assert network[2].training
    assert network[1].num_batches_tracked == 0
    assert torch.equal(network[1].running_mean, torch.zeros(3))
    assert network[1].weight.grad is not None
    copied = copy.deepcopy(network).train()
    copied(x)
    assert copied[1].num_batches_tracked == 0
