"""A real Milvus server for tests, from the PyPI package ``milvus``: started, killed and started again."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from tests.ports import free_ports

# The server forgets a killed predecessor after a few seconds, not after a minute.
QUICK = {"COMMON_SESSION_TTL": "5", "GOMAXPROCS": "2"}


def missing() -> str | None:
    """Why no server can be started here; None if one can."""
    for name in ("pymilvus", "milvus"):
        if find_spec(name) is None:
            return f"{name} is not installed"
    return None


class Server:
    """A server process on a free port of this machine, with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        from milvus import MilvusServer, _initialize_data_files

        self.folder = folder
        self.port, self.health = free_ports(2)
        made = MilvusServer()
        made.set_base_dir(str(folder))
        made.config.configs.update(proxy_port=self.port)
        made.config.resolve()
        _initialize_data_files(str(folder))
        self.process: subprocess.Popen | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process; it answers some seconds later."""
        program = self.folder / "bin" / "milvus"
        place = {"DEPLOY_MODE": "STANDALONE", "METRICS_PORT": str(self.health), "LD_LIBRARY_PATH": str(program.parent)}
        place |= {"MILVUS_RUN_DIR": str(self.folder / "run")} | QUICK
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(program), "run", "standalone"],
                env=os.environ | place,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self, seconds: float = 120) -> None:
        """Return when it says that it is well."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/healthz", timeout=5) as answer:
                    if b"OK" in answer.read():
                        return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.1)
        raise TimeoutError(f"the server did not start within {seconds} s")

    def kill(self) -> None:
        """End the process at once, whatever it is doing."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
