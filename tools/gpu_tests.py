"""Run the tests of the GPU kernels on a real GPU and record in tests/gpu_tests.md which passed at which commit.

CI has no GPU and runs these kernels in Triton's interpreter only. A file whose tests fail keeps the line of the last
commit at which they passed, and says at which they fail.

    python tools/gpu_tests.py [--jobs N] [FILE ...]

Most of the time goes into compiling kernels, on one core a file: give it as many jobs as there are cores.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "gpu_tests.md"
FILES = [
    "tests/ops/test_engine.py",
    "tests/ops/test_elastic_gpu.py",
    "tests/ops/test_dtw_matched.py",
    "tests/ops/test_dtw_rotation.py",
    "tests/ops/test_soft_dtw.py",
    "tests/ops/test_gdtw_gpu.py",
    "tests/ops/test_transport_gpu.py",
    "tests/ops/test_tap_gpu.py",
    "tests/ops/test_tap_gradients.py",
    "tests/ops/test_pair_convolution.py",
    "tests/ops/test_coupled_gru_gpu.py",
    "tests/ops/test_additive_attention_gpu.py",
    "tests/ops/test_joint_gaussians_gpu.py",
    "tests/ops/test_checkpoint.py",
    "tests/search/test_device_windows.py",
    "tests/search/test_devices.py",
    "tests/cli/test_devices.py",
]
HEADER = """# Tests on a GPU

Written by `make gpu-test` on a machine with a CUDA device. CI runs these kernels in Triton's interpreter only.

| tests | passed | skipped | commit | GPU | date | since then |
|---|---|---|---|---|---|---|
"""
NEVER = "never"


@dataclass(frozen=True)
class Line:
    """The last commit at which all tests of a file passed, and later results."""

    file: str
    passed: str = ""
    skipped: str = ""
    commit: str = NEVER
    gpu: str = ""
    date: str = ""
    since: str = ""

    def __str__(self) -> str:
        cells = self.file, self.passed, self.skipped, self.commit, self.gpu, self.date, self.since
        return f"| {' | '.join(cells)} |"


def read(text: str) -> dict[str, Line]:
    """The lines of a record, by file."""
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("| tests/")
    ]
    return {row[0]: Line(*row) for row in rows}


def counts(report: str) -> dict[str, int]:
    """Passed, failed and skipped tests of a JUnit report."""
    suite = next(ElementTree.fromstring(report).iter("testsuite"))
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return {"passed": total - skipped - failed, "failed": failed, "skipped": skipped}


def updated(line: Line, found: dict[str, int], commit: str, gpu: str, date: str) -> Line:
    """The line after one more run."""
    if found["failed"] or not found["passed"]:
        what = f"{found['failed']} failed" if found["failed"] else "nothing ran"
        return Line(**{**line.__dict__, "since": f"{what} at {commit}"})
    return Line(line.file, str(found["passed"]), str(found["skipped"]), commit, gpu, date)


def run(file: str, report: Path) -> dict[str, int]:
    """The tests of one file, in a process of their own: a fault on a GPU ends the process."""
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", file]
    subprocess.run(["env", "TRITON_INTERPRET=0", *command], cwd=ROOT, check=False)
    return counts(report.read_text()) if report.exists() else {"passed": 0, "failed": 1, "skipped": 0}


def commit_here() -> str:
    """The commit of the checkout; of a copy without git, what the environment variable COMMIT says."""
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "tests").splitlines()
    changed = [line for line in changed if not line.endswith("tests/gpu_tests.md")]
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def main() -> int:
    """Run every file and write the record. The exit status is 1 if anything failed."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="files side by side")
    parser.add_argument("files", nargs="*", metavar="FILE", help="some of the files; all of them if none is given")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("make gpu-test: there is no CUDA device here; tests/gpu_tests.md stays as it is")
        return 1
    commit, gpu, date = commit_here(), torch.cuda.get_device_name().replace("|", " "), time.strftime("%Y-%m-%d")
    lines = {file: Line(file) for file in FILES} | (read(RECORD.read_text()) if RECORD.exists() else {})
    failed = False
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = {}
        for file in options.files or FILES:
            jobs[pool.submit(run, file, ROOT / "build" / (file.replace("/", "-") + ".xml"))] = file
        for job in as_completed(jobs):
            file, found = jobs[job], job.result()
            failed |= found["failed"] > 0
            lines[file] = updated(lines[file], found, commit, gpu, date)
            RECORD.write_text(HEADER + "\n".join(str(lines[file]) for file in FILES) + "\n")
    print(RECORD.read_text())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
