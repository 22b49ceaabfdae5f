"""The service against requests made from its own OpenAPI description, right and wrong: no 5xx, and nothing undescribed.

``python -m tests.web.test_schemathesis 600`` asks for ten minutes, with other requests each time.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")
import likewise as lw
from tests.web.problems import vectors, waves
from tests.web.servers import command

SECONDS = 60 if os.environ.get("CI") else 15


def ask(folder, *how):
    """Run schemathesis against a server of its own, with its limits as they are; what it printed, and its exit code."""
    lw.data.write_npz(waves(channels=1), folder / "waves.npz")
    vectors(channels=1).save(folder / "run")
    with command("serve", folder / "run", folder / "waves.npz", "-d", "dtw", "-d", "soft-dtw") as (_, port):
        found = subprocess.run(
            [
                *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
                "run",
                f"http://127.0.0.1:{port}/openapi.json",
                "--checks=all",
                # As many y as x, and a size that a body holds, are beyond what a schema can say.
                "--exclude-checks=positive_data_acceptance",
                "--suppress-health-check=all",
                "--request-timeout=60",
                "--warnings=off",
                *how,
            ],
            capture_output=True,
            text=True,
            cwd=folder,
        )
    return found.stdout, found.returncode


def test_no_request_breaks_the_service(tmp_path):
    text, code = ask(tmp_path, f"--max-time={SECONDS}", "--seed=1")
    assert code == 0, text[-5000:]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        text, code = ask(Path(name), f"--max-time={sys.argv[1]}")
    sys.stdout.write(text[-5000:])
    sys.exit(code)
