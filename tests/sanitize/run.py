"""``make sanitize``: build the kernels with sanitisers, as far as they have changed, and run random problems.

The address and undefined-behaviour sanitisers watch every kernel of every instruction set; the thread sanitiser watches
several threads. Each must first report a deliberate error, so that silence means something.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ERRORS = {"address": "AddressSanitizer: heap-buffer-overflow", "thread": "ThreadSanitizer: data race"}
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
    configure += [f"-DLIKEWISE_SANITIZE={kind}"]
    if shutil.which("ccache"):
        configure += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    subprocess.run([str(part) for part in configure], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([str(BIN / "ninja"), "-C", str(folder)], check=True)
    return next(folder.glob("_native*.so"))


def environment(kind: str) -> dict[str, str]:
    """With the sanitiser's library loaded before Python."""
    name = "libasan.so" if kind == "address" else "libtsan.so"
    runtime = subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip()
    return os.environ | OPTIONS | {"LD_PRELOAD": runtime}


def is_awake(kind: str, library: Path) -> bool:
    """Whether a deliberate error is reported: a read beyond the end, or two threads that write the same results."""
    command = [sys.executable, "-m", "tests.sanitize.control", kind, str(library)]
    found = subprocess.run(command, cwd=ROOT, env=environment(kind), capture_output=True, text=True)
    return found.returncode != 0 and ERRORS[kind] in found.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=ERRORS, help="both, unless one is named")
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("ops", nargs="*")
    options = parser.parse_args()
    for kind in [options.kind] if options.kind else ERRORS:
        library = build(kind)
        if not is_awake(kind, library):
            print(f"sanitize ({kind}): a deliberate error was not reported: the sanitiser is not at work")
            return 1
        print(f"sanitize ({kind}): a deliberate error is reported", flush=True)
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
