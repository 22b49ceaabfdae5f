"""Known vulnerabilities of the installed packages, by pip-audit; part of ``make check``.

Prints how many packages its index knew, or that nothing was audited if it knew none or did not answer.
"""

import json
import subprocess
import sys

SECONDS = 60


def summary(text: str) -> tuple[str, bool]:
    """A line that sums up pip-audit's JSON, and whether it found nothing."""
    found = json.loads(text)["dependencies"]
    known = [package for package in found if "skip_reason" not in package]
    wrong = [f"{p['name']} {p['version']}: {v['id']}" for p in known for v in p["vulns"]]
    if wrong:
        return f"pip-audit: {len(wrong)} known vulnerabilities: {'; '.join(wrong)}", False
    if not known:
        return f"pip-audit: skipped, its index knows none of the {len(found)} packages", True
    return f"pip-audit: {len(known)} of {len(found)} packages were audited, no known vulnerability", True


def main() -> int:
    """Run it, within a minute."""
    command = [sys.executable, "-m", "pip_audit", "--local", "--progress-spinner", "off", "--format", "json"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        print(f"pip-audit: skipped, its index did not answer within {SECONDS} s")
        return 0
    try:
        line, sound = summary(found.stdout)
    except (ValueError, KeyError):
        lines = found.stderr.strip().splitlines()
        print(f"pip-audit: skipped, {lines[-1][:200] if lines else 'no answer'}")
        return 0
    print(line)
    return not sound


if __name__ == "__main__":
    sys.exit(main())
