import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("PIL", reason="the script reads images with pillow")
from PIL import Image

SCRIPT = Path(__file__).parents[2] / "scripts" / "extract_frame_features.py"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("extract_frame_features", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frames(folder, clip, count, color=0):
    (folder / clip).mkdir(parents=True)
    for t in range(count):
        Image.new("RGB", (40, 30), (color, 10 * t, 255)).save(folder / clip / f"{t:04d}.png")


def options(folder, script, monkeypatch, network):
    monkeypatch.setattr(script, "make_backbone", lambda name: network)
    return {
        "frames_folder": folder / "frames", "features_folder": folder / "features", "backbone": "any:thing", "frames": 3,
        "resize": 16, "crop": 12, "normalize": False, "batch_size": 2, "device": "cpu",
    }  # fmt: skip


def test_clips_become_features(tmp_path, script, monkeypatch, capsys):
    frames(tmp_path / "frames", "Wave/one", 5)
    frames(tmp_path / "frames", "Run/two", 2, color=51)
    seen = []

    def colors(images):
        assert images.shape[1:] == (3, 12, 12)
        seen.append(len(images))
        return images  # (B, 3, h, w): averaged

    given = options(tmp_path, script, monkeypatch, colors)
    script.main(**given)
    one = np.load(tmp_path / "features" / "Wave" / "one.npy")
    np.testing.assert_allclose(one, [[0, 10 * t / 255, 1] for t in (0, 2, 4)], atol=1e-6)
    two = np.load(tmp_path / "features" / "Run" / "two.npy")
    np.testing.assert_allclose(two[:, 0], 0.2, atol=1e-6)
    assert max(seen) == 2
    script.main(**given)
    assert "0 of 2 clips" in capsys.readouterr().out
    (tmp_path / "features" / "Run" / "two.npy").unlink()
    script.main(**given | {"frames": 0, "normalize": True})
    assert np.load(tmp_path / "features" / "Run" / "two.npy").shape == (2, 3)


def test_what_does_not_fit_is_refused(tmp_path, script, monkeypatch):
    (tmp_path / "frames").mkdir()
    given = options(tmp_path, script, monkeypatch, lambda images: images.mean())
    with pytest.raises(SystemExit, match="no folders Class/clip with images"):
        script.main(**given)
    frames(tmp_path / "frames", "Wave/one", 1)
    with pytest.raises(SystemExit, match=r"expected the backbone to give \(B, C\) or"):
        script.main(**given)
    assert not list((tmp_path / "features").rglob("*.npy"))
    monkeypatch.undo()
    with pytest.raises(SystemExit, match="expected torchvision:NAME, timm:NAME or module:function, got 'resnet'"):
        script.make_backbone("resnet")


def test_as_a_command_with_a_backbone_of_ones_own(tmp_path):
    frames(tmp_path / "frames", "Wave/one", 2)
    (tmp_path / "own.py").write_text("def make():\n    return lambda images: images.mean((2, 3))\n")
    command = [
        sys.executable,
        SCRIPT,
        tmp_path / "frames",
        tmp_path / "out",
        "--backbone",
        "own:make",
        "--device",
        "cpu",
    ]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    values = np.load(tmp_path / "out" / "Wave" / "one.npy")
    assert values.shape == (8, 3)
    assert torch.from_numpy(values).isfinite().all()
