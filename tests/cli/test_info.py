import re
from importlib import metadata

import torch

from tests.cli.commands import answer, run


def test_info():
    found = answer("info")
    assert found["likewise"] == metadata.version("likewise")
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["simd"] in ("avx512", "avx2", "baseline")
    assert set(found["kernels"]) >= {"dtw", "soft_dtw"}
    assert found["kernels"]["dtw"]["cpu"] is True
    assert found["kernels"]["dtw"]["gpu"] is (found["triton"] is not None)
    text = run("info").stdout
    assert re.search(r"soft_dtw +yes +(yes|no)", text)
    assert re.search(rf"simd +{found['simd']}", text)


def test_info_without_triton(monkeypatch):
    version = metadata.version

    def absent(name):
        if name == "triton":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", absent)
    found = answer("info")
    assert found["triton"] is None
    assert found["kernels"]["dtw"] == {"cpu": True, "gpu": False}
    assert re.search(r"triton +absent", run("info").stdout)
