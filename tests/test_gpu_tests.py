"""The record of what passed on a GPU: tools/gpu_tests.py."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]
specification = importlib.util.spec_from_file_location("gpu_tests", ROOT / "tools" / "gpu_tests.py")
gpu_tests = importlib.util.module_from_spec(specification)
specification.loader.exec_module(gpu_tests)

PASSED = {"passed": 3, "failed": 0, "skipped": 1}


def test_every_file_of_gpu_tests_has_a_line():
    found = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*_gpu.py")}
    assert found <= set(gpu_tests.FILES)
    assert list(gpu_tests.read(gpu_tests.RECORD.read_text())) == gpu_tests.FILES
    assert all((ROOT / file).exists() for file in gpu_tests.FILES)


def test_a_record_is_read_as_it_was_written():
    line = gpu_tests.updated(gpu_tests.Line("tests/ops/test_x.py"), PASSED, "abc", "H200", "2026-11-18")
    assert gpu_tests.read(gpu_tests.HEADER + str(line)) == {"tests/ops/test_x.py": line}


def test_a_failure_keeps_the_commit_that_passed():
    line = gpu_tests.updated(gpu_tests.Line("tests/ops/test_x.py"), PASSED, "abc", "H200", "2026-11-18")
    later = gpu_tests.updated(line, {**PASSED, "failed": 2}, "def", "H200", "2026-11-19")
    assert (later.commit, later.since) == ("abc", "2 failed at def")
    assert gpu_tests.updated(later, PASSED, "123", "H200", "2026-11-20").since == ""


def test_counts_of_a_report():
    report = '<testsuites><testsuite tests="7" failures="1" errors="1" skipped="2"/></testsuites>'
    assert gpu_tests.counts(report) == {"passed": 3, "failed": 2, "skipped": 2}
