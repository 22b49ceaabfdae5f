"""The second device refuses what a GPU refuses."""

import pytest
import torch

import likewise as lw
from tests.papers.foreign import second_device


def test_tensors_of_two_devices_do_not_meet():
    with second_device():
        there, here = torch.arange(3.0, device="meta"), torch.arange(3.0)
        assert str((there * 2).device) == "meta"
        assert (there * 2).sum().item() == 6
        assert (there + torch.tensor(1.0)).cpu().tolist() == [1, 2, 3]  # numbers may
        assert there[torch.tensor([2, 0])].cpu().tolist() == [2, 0]  # and so may indices
        assert torch.equal(there.cpu(), here)
        with pytest.raises(RuntimeError, match=r"aten.add.Tensor: tensors of two devices; those on the CPU"):
            torch.add(there, here)
        with pytest.raises(RuntimeError, match="tensors of two devices"):
            there.gather(0, torch.tensor([0]))
        total = torch.zeros(())
        with pytest.raises(RuntimeError, match=r"aten.add_.Tensor: a tensor on the CPU cannot take"):
            total += there.sum()
        with pytest.raises(ValueError, match="x is on meta and y is on cpu"):
            lw.DTW()(there[None, :, None], here[None, :, None])


def test_derivatives_stay_there():
    with second_device():
        layer = torch.nn.Linear(3, 1).to("meta")
        layer(torch.ones(2, 3, device="meta")).sum().backward()
        grad = layer.weight.grad
        assert grad is not None
        assert str(grad.device) == "meta"
        assert grad.cpu().tolist() == [[2, 2, 2]]
