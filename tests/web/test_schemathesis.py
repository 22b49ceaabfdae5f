"""The service against requests made from its own OpenAPI description, right and wrong: no 5xx, and nothing undescribed.

``schemathesis run http://127.0.0.1:8000/openapi.json --max-time 600`` does the same for ten minutes.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")
import likewise as lw
from tests.web.problems import vectors, waves
from tests.web.servers import command


def test_no_request_breaks_the_service(tmp_path):
    lw.data.write_npz(waves(channels=1), tmp_path / "waves.npz")
    vectors(channels=1).save(tmp_path / "run")
    with command("serve", tmp_path / "run", tmp_path / "waves.npz", "-d", "dtw", "-d", "soft-dtw") as (_, port):
        found = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                "run",
                f"http://127.0.0.1:{port}/openapi.json",
                "--max-examples=25",
                "--checks=all",
                # As many y as x, and a size that a body holds, are beyond what a schema can say.
                "--exclude-checks=positive_data_acceptance",
                "--seed=1",
                "--suppress-health-check=all",
                "--request-timeout=60",
                "--warnings=off",
            ],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
        )
    assert found.returncode == 0, found.stdout[-5000:]
