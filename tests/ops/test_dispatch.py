"""Which calls skip the dispatcher. Unknown versions of PyTorch are tested in test_private.py."""

from types import SimpleNamespace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from likewise.ops import dispatch


def test_only_plain_tensors_go_past_the_dispatcher():
    on_gpu, x = SimpleNamespace(is_cuda=True), torch.randn(2, 3, 1)

    class Subclass(torch.Tensor):
        pass

    assert dispatch.are_plain((on_gpu, x, None, 1.0))
    assert dispatch.are_plain((on_gpu, torch.nn.Parameter(x)))
    assert not dispatch.are_plain((x, x))  # the CPU has its own way
    assert not dispatch.are_plain((on_gpu, x.as_subclass(Subclass)))
    with FakeTensorMode():
        assert not dispatch.are_plain((on_gpu, x))
    seen = []
    torch.func.vmap(lambda t: seen.append(dispatch.are_plain((on_gpu, t))) or t)(x)
    torch.jit.trace(lambda t: seen.append(dispatch.are_plain((on_gpu, t))) or t, x, check_trace=False)
    assert seen == [False, False]
