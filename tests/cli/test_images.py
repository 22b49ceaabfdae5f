"""Folders of images with a metric of images: what commands that take any items do with them."""

import numpy as np
import pytest
import torch

import likewise as lw
from tests.cli.commands import answer, refusal, run

GIVEN = ("--metric", "run", "--size", 24)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder of two kinds of pictures, and a metric of images, in the working directory."""
    image = pytest.importorskip("PIL.Image")
    for k, name in enumerate(("iris", "rose")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(4):
            pixels = torch.randint(0, 120, (30, 40, 3), generator=torch.Generator().manual_seed(10 * k + i))
            pixels[..., k] += 130
            image.fromarray(pixels.byte().numpy()).save(tmp_path / "photos" / name / f"{i}.png")
    torch.manual_seed(0)
    lw.Metric(lw.models.SmallCNN(3, out=8), lw.Euclidean()).eval().save(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return lw.read_image_folder(tmp_path / "photos", size=24)


def test_images_are_indexed_and_searched(photos):
    assert answer("index", "photos", "-o", "index", *GIVEN)["items"] == 8
    found = answer("search", "index", "photos", "--size", 24, "-k", 2)["hits"]
    assert [hit["item"] for hit in found if hit["rank"] == 0] == list(range(8))
    assert {hit["label"] for hit in found} == {"iris", "rose"}


def test_images_in_one_file_are_read_like_a_folder(photos):
    run("convert", "photos", "--size", 24, "-o", "photos.npz")
    assert (
        answer("distance", "photos.npz", *GIVEN[:2])["distances"] == answer("distance", "photos", *GIVEN)["distances"]
    )
    assert refusal(1, "average", "photos.npz") == "error: photos.npz: holds images, and this command takes sequences\n"


def test_images_are_compared_and_grouped(photos):
    found = answer("distance", "photos", *GIVEN)
    expected = lw.Metric.load("run").matrix(photos).detach().numpy()
    np.testing.assert_allclose(found["distances"], expected, rtol=1e-4, atol=1e-4)
    assert answer("fewshot", "photos", *GIVEN, "--ways", 2, "--episodes", 20)["sequences"] == 8
    found = answer("cluster", "photos", *GIVEN, "--method", "hierarchical", "-c", 2)
    assert sorted(found["sizes"].values()) == [4, 4]
    assert answer("pairs", "photos", *GIVEN, "--out", "D.zarr")["shape"] == [8, 8]


@pytest.mark.parametrize("command", ["distance", "evaluate", "fewshot", "index", "pairs", "cluster", "tune"])
def test_a_distance_of_sequences_refuses_images_in_one_line(photos, command):
    given = {"index": ("-o", "other"), "cluster": ("-c", 2)}.get(command, ())
    said = refusal(1, command, "photos", "-d", "dtw", *given)
    assert said == "error: photos: holds images; DTW compares sequences, so give --metric\n"


def test_commands_for_sequences_refuse_images_in_one_line(photos):
    for command in ("average", "align photos --metric run"):
        name, *more = command.split()
        assert refusal(1, name, "photos", *more) == "error: photos: holds images, and this command takes sequences\n"
    assert "--plot draws sequences" in refusal(1, "cluster", "photos", *GIVEN, "-c", 2, "--plot", "c.png")
