"""``python -m tests.fuzz.run``: fuzz every reader with atheris, guided by coverage, each in a process of its own, forked.

Corpora and inputs that were found are in build/fuzz; a found input becomes a file in tests/fuzz/found. A run that was
stopped continues, unless ``--fresh`` is given. With ``--rows``, benchmarks/results/fuzz.jsonl keeps a row for each reader.
"""

import argparse
import datetime
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "fuzz"
ROWS = ROOT / "benchmarks" / "results" / "fuzz.jsonl"
INSTRUMENTED = [
    "likewise.data",
    "likewise.models",
    "likewise.scale",
    "likewise.search",
    "likewise.selection",
    "likewise.web",
    "likewise.training",
    "PIL",
    "csv",
    "json",
    "numpy.lib",
    "zipfile",
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


class Tally(NamedTuple):
    """How many inputs a target has read, and in how many seconds; earlier runs that were stopped count."""

    inputs: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, name: str) -> "Tally":
        path = WORK / name / "tally.json"
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def write(self, name: str) -> None:
        (WORK / name / "tally.json").write_text(json.dumps(self._asdict()))


def instrument() -> None:
    """Import the readers so that atheris sees their branches."""
    import atheris

    import_plainly()
    with atheris.instrument_imports(include=INSTRUMENTED):
        import tests.fuzz.targets  # noqa: F401


def forked(name: str, runs: int) -> int:
    """Fuzz one target in a process of its own; returns its exit code."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 1
    try:
        with open(WORK / name / "log.txt", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        fuzz(name, runs)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def fuzz(name: str, runs: int) -> None:
    """Fuzz one target in this process, which ends when it is done or something is found."""
    import atheris

    from tests.fuzz.prober import Prober
    from tests.fuzz.targets import TARGETS

    corpus = WORK / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # quicker than a disk
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        probe = Prober(TARGETS[name], Path(folder))
        for k, seed in enumerate(probe.seeds):
            (corpus / f"seed-{k}").write_bytes(seed)
        before, seen, start = Tally.of(name), 0, time.monotonic()

        def counted(data: bytes) -> None:
            nonlocal seen
            try:
                probe(data)
            except Exception:
                (WORK / name / f"found-{hashlib.sha1(data).hexdigest()[:12]}").write_bytes(data)
                raise
            seen += 1
            if seen % 500 == 0 or before.inputs + seen == runs:
                Tally(before.inputs + seen, before.seconds + time.monotonic() - start).write(name)
            if (
                before.inputs + seen == runs
            ):  # libFuzzer would exit without Python, and PyTorch's destructors crash then
                shutil.rmtree(folder, ignore_errors=True)
                os._exit(0)

        # The prober counts CPU time; libFuzzer's clock goes on while a busy machine lets nothing run.
        options = ["-runs=-1", "-max_len=8192", "-len_control=0", "-timeout=1200", "-rss_limit_mb=4096"]
        options.append(f"-artifact_prefix={WORK / name}/")
        atheris.Setup([sys.argv[0], *options, str(corpus)], counted)
        atheris.Fuzz()


def verdict(name: str, runs: int, code: int) -> dict[str, object]:
    """The result of a target. It is sound if it read all inputs, and the coverage of its code was seen to grow."""
    log = (WORK / name / "log.txt").read_text(errors="replace")
    seen = Tally.of(name)
    covered = [int(found) for found in re.findall(r"cov: (\d+)", log)]
    corpus = [path.name for path in (WORK / name / "corpus").glob("*")]
    grown = any(not path.startswith("seed-") for path in corpus)  # in an earlier part of the run
    result = "sound"
    if code:
        lines = [line for line in log.splitlines() if "Error" in line]
        result = f"FOUND {lines[-1][:200] if lines else f'exit {code}'}"
    elif seen.inputs < runs:
        result = f"STOPPED before {runs}"
    elif len(set(covered)) < 2 and not grown:
        result = "BLIND, the code is not instrumented"
    return {
        "reader": name,
        "inputs": seen.inputs,
        "seconds": round(seen.seconds, 1),
        "inputs_per_second": round(seen.inputs / max(seen.seconds, 1e-9)),
        "branches": max(covered, default=0),
        "corpus": len(corpus),
        "result": result,
    }


def keep(row: dict[str, object]) -> None:
    """Put a reader's row in the place of its last one."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    row = row | {"date": datetime.date.today().isoformat(), "commit": commit}
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    rows = sorted([*(old for old in rows if old["reader"] != row["reader"]), row], key=lambda row: row["reader"])
    ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="all, if none is named")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each")
    parser.add_argument("--fresh", action="store_true", help="do not go on where an earlier run was stopped")
    parser.add_argument("--rows", action="store_true", help="keep a row for each in benchmarks/results/fuzz.jsonl")
    options = parser.parse_args()
    instrument()
    from tests.fuzz.targets import TARGETS

    failed, start = [], time.monotonic()
    names = options.targets or list(TARGETS)
    for name in names:
        (WORK / name).mkdir(parents=True, exist_ok=True)
        if options.fresh or Tally.of(name).inputs >= options.runs:
            Tally().write(name)
        row = verdict(name, options.runs, forked(name, options.runs))
        facts = f"{row['inputs']} inputs, {row['branches']} branches, corpus of {row['corpus']}, {row['seconds']} s"
        print(f"{name}: {facts}: {row['result']}", flush=True)
        if options.rows:
            keep(row)
        if row["result"] != "sound":
            failed.append(name)
    seconds = time.monotonic() - start
    result = f"look at {', '.join(failed)}" if failed else "nothing found"
    print(f"fuzz: {len(names)} readers, {options.runs} inputs each, {seconds:.0f} s: {result}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
