"""``make sanitize``: build the kernels with sanitisers, as far as they have changed, and run random problems.

The address and undefined-behaviour sanitisers watch every kernel of every instruction set; the thread sanitiser watches
several threads. A deliberate error must be found first, so that silence means something.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
KINDS = {"address": "address,undefined", "thread": "thread"}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:report_signal_unsafe=0",
    "OMP_NUM_THREADS": "1",
    "PYTHONMALLOC": "malloc",
}


def build(kind: str) -> Path:
    """The library with that sanitiser; ninja compiles only what has changed."""
    folder = ROOT / "build" / f"sanitize-{kind}"
    nanobind = subprocess.check_output([sys.executable, "-m", "nanobind", "--cmake_dir"], text=True).strip()
    configure = [BIN / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind}"]
    configure += [f"-DLIKEWISE_SANITIZE={KINDS[kind]}"]
    subprocess.run([str(part) for part in configure], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([str(BIN / "ninja"), "-C", str(folder)], check=True)
    return next(folder.glob("_native*.so"))


def environment(kind: str) -> dict[str, str]:
    """With the sanitiser's library loaded before Python."""
    name = "libasan.so" if kind == "address" else "libtsan.so"
    runtime = subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip()
    return os.environ | OPTIONS | {"LD_PRELOAD": runtime}


CONTROL = """
import sys
sys.path.insert(0, {root!r})
from tests.sanitize.problems import import_with
from pathlib import Path
import_with(Path({library!r}))
import sys, threading
import numpy as np
native = sys.modules["likewise._native"]
isa = native.instruction_sets()[0]
if {kind!r} == "address":  # one sequence more than there is
    values, lengths = np.zeros((4, 8, 2)), np.full(5, 8)
    native.first_nonfinite(isa, values.ctypes.data, lengths.ctypes.data, 5, 8, 2, True)
"""


def is_awake(kind: str, library: Path) -> bool:
    """Whether a kernel that is made to read too far is caught; of threads there is no such kernel."""
    if kind != "address":
        return True
    code = CONTROL.format(root=str(ROOT), library=str(library), kind=kind)
    found = subprocess.run([sys.executable, "-c", code], env=environment(kind), capture_output=True, text=True)
    return found.returncode != 0 and "AddressSanitizer: heap-buffer-overflow" in found.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, help="both, unless one is named")
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("ops", nargs="*")
    options = parser.parse_args()
    for kind in [options.kind] if options.kind else KINDS:
        library = build(kind)
        if not is_awake(kind, library):
            print(f"sanitize ({kind}): a deliberate error was not found: the sanitiser is not at work")
            return 1
        command = [sys.executable, "-m", "tests.sanitize.problems", str(library), *options.ops, "--kind", kind]
        command += ["--problems", str(options.problems if kind == "address" else max(1, options.problems // 3))]
        command += ["--threads", "1" if kind == "address" else "4"]
        code = subprocess.run(command, env=environment(kind), cwd=ROOT).returncode
        if code:
            print(f"sanitize ({kind}): FOUND an error, see above")
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
