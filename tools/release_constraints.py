"""constraints.txt with the hash of every file, for a release: writes constraints-release.txt.

pip resolves likewise and its extras against constraints.txt, without installing anything, and reports the files that it
would take for this platform and this Python, with their hashes. ``pip install --require-hashes`` then takes no others.
torch is pinned to its CPU build. No address of an index is written.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("audio", "clusters", "images", "milvus", "scale", "search", "tables", "umap", "web")  # not for developers


def lines(report: dict) -> list[str]:
    """A line with a hash for each package of pip's report."""
    found = {}
    for package in report["install"]:
        name, version = package["metadata"]["name"], package["metadata"]["version"]
        if re.sub(r"[-_.]+", "-", name).lower() == "likewise":
            continue
        hashes = package["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            sys.exit(f"{name} {version} has no hash: it does not come from an archive")
        found[name.lower()] = f"{name}=={version} --hash=sha256:{hashes['sha256']}"
    return [found[name] for name in sorted(found)]


def main() -> None:
    """Resolve, and write the file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        wanted = f"{ROOT}[{','.join(EXTRAS)}]"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--no-build-isolation", "--constraint", str(ROOT / "constraints.txt")]
        command += ["--report", str(report), wanted]
        subprocess.run(command, check=True, cwd=ROOT)
        found = lines(json.loads(report.read_text()))
    python = f"Python {sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"
    head = f"# Made by tools/release_constraints.py, for {python}: pip install --require-hashes -r"
    (ROOT / "constraints-release.txt").write_text("\n".join([head, *found, ""]))
    print(f"constraints-release.txt: {len(found)} packages with hashes")


if __name__ == "__main__":
    main()
