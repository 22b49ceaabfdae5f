import sys
from pathlib import Path

import pytest
import torch

PACKAGES = Path(sys.prefix) / "backbones"  # where make installs timm and torchvision, which likewise does not require
declared = []


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def real_packages(monkeypatch):
    """timm and torchvision, the real ones; tests that need them are skipped without them."""
    if PACKAGES.is_dir():
        monkeypatch.syspath_prepend(PACKAGES)
    try:
        import torchvision
    except ModuleNotFoundError:
        pytest.skip(f"timm and torchvision are not installed; make setup puts them in {PACKAGES}")
    except RuntimeError:  # torchvision for another torch: its operators are missing, but their names must exist
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        declared.append(library)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        import torchvision  # noqa: F401
    return pytest.importorskip("timm", reason="timm is not installed; make setup does that")
