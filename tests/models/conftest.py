import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
