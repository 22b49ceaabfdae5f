import pytest
import torch

from likewise.data.batch import Batch
from likewise.models.embedder import Embedder
from tests.models.problems import SEQUENCES
from tests.training.problems import problem


@pytest.mark.parametrize("backbone", [b for b, _ in SEQUENCES], ids=lambda b: repr(b)[:9])
def test_an_embedder_averages_real_positions(backbone):
    torch.manual_seed(0)
    encoder = Embedder(backbone, 3, normalize=False).eval()
    batch, _ = problem(4)
    given = backbone(batch)
    means = torch.stack([item.mean(0) for item in given]) if isinstance(given, Batch) else given
    torch.testing.assert_close(encoder(batch), encoder.outward(means))
    unit = Embedder(backbone, 3)(batch)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(4))
    assert encoder(batch[:0]).shape == (0, 3)
