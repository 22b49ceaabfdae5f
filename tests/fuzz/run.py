"""``python -m tests.fuzz.run``: fuzz every reader with atheris, guided by coverage, each in a process of its own.

Corpora and inputs that were found are in build/fuzz; a found input becomes a file in tests/fuzz/found. A run that was
stopped continues, unless ``--fresh`` is given. The last line says how many inputs each reader saw, and what was found.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "fuzz"
INSTRUMENTED = [
    "likewise.data",
    "likewise.models",
    "likewise.scale",
    "likewise.search",
    "likewise.web",
    "likewise.training",
    "zipfile",
    "json",
]


def import_plainly() -> None:
    """Let likewise be imported from src by Python's own loader: atheris covers nothing of an editable install's."""
    finder = next((f for f in sys.meta_path if type(f).__name__ == "ScikitBuildRedirectingFinder"), None)
    if finder is None:
        return
    spec = finder.find_spec("likewise._native", None)
    assert spec is not None
    assert spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    sys.modules["likewise._native"] = native
    sys.meta_path.remove(finder)
    sys.path.insert(0, str(ROOT / "src"))


def inputs_seen(name: str) -> int:
    """How many inputs a target has read, also in earlier runs."""
    tally = WORK / name / "inputs.txt"
    return int(tally.read_text()) if tally.exists() else 0


def fuzz(name: str, runs: int) -> None:
    """Fuzz one target in this process, which ends when it is done or something is found."""
    import atheris

    import_plainly()
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import Prober

    corpus = WORK / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    tally = WORK / name / "inputs.txt"
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # quicker than a disk
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        probe = Prober(name, Path(folder))
        for k, seed in enumerate(probe.seeds):
            (corpus / f"seed-{k}").write_bytes(seed)
        before, seen = inputs_seen(name), 0

        def counted(data: bytes) -> None:
            nonlocal seen
            probe(data)
            seen += 1
            if seen % 500 == 0 or before + seen == runs:
                tally.write_text(str(before + seen))

        options = [f"-runs={runs - before}", "-max_len=8192", "-timeout=60", "-rss_limit_mb=4096"]
        atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={WORK / name}/found-", str(corpus)], counted)
        atheris.Fuzz()


def verdict(name: str, runs: int, code: int) -> tuple[str, bool]:
    """What became of a target, and whether it is sound: all inputs were read, and the code was seen being covered."""
    log = (WORK / name / "log.txt").read_text(errors="replace")
    seen = inputs_seen(name)
    covered = [int(found) for found in re.findall(r"cov: (\d+)", log)]
    kept = sum(1 for _ in (WORK / name / "corpus").glob("*"))
    facts = f"{seen} inputs, {covered[-1] if covered else 0} branches, corpus of {kept}"
    if code:
        lines = [line for line in log.splitlines() if "Error" in line]
        return f"{facts}: FOUND {lines[-1][:200] if lines else f'exit {code}'}", False
    if seen < runs:
        return f"{facts}: STOPPED before {runs}", False
    if len(set(covered)) < 2 or "Skipping import with custom loader" in log:
        return f"{facts}: BLIND, the code is not instrumented", False
    return f"{facts}: sound", True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="all, if none is named")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each")
    parser.add_argument("--fresh", action="store_true", help="do not go on where an earlier run was stopped")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        fuzz(options.one, options.runs)
        return 0
    from tests.fuzz.targets import TARGETS

    failed, start = [], time.monotonic()
    names = options.targets or list(TARGETS)
    for name in names:
        began = time.monotonic()
        (WORK / name).mkdir(parents=True, exist_ok=True)
        if options.fresh or inputs_seen(name) >= options.runs:
            (WORK / name / "inputs.txt").unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.fuzz.run", "--one", name, "--runs", str(options.runs)]
        with open(WORK / name / "log.txt", "w") as log:
            code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode
        text, sound = verdict(name, options.runs, code)
        print(f"{name}: {text}, {time.monotonic() - began:.0f} s", flush=True)
        if not sound:
            failed.append(name)
    seconds = time.monotonic() - start
    result = f"look at {', '.join(failed)}" if failed else "nothing found"
    print(f"fuzz: {len(names)} readers, {options.runs} inputs each, {seconds:.0f} s: {result}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
