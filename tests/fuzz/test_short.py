"""The short form of ``make fuzz``: mutated files for every reader, and those that were found once."""

import random
from pathlib import Path

import pytest

from tests.fuzz import prober
from tests.fuzz.prober import FoundError, Prober, Target
from tests.fuzz.targets import TARGETS

FOUND = Path(__file__).parent / "found"
TOKENS = [b":", b",", b"\n", b"?", b"1e999", b"nan", b"@data", b"\xff", b"\0", b"9" * 30, b"PK\1\2", b"-", b"[", b"{}"]
INPUTS = 40
NEEDS = {
    "csv": "pyarrow",
    "tsv": "pyarrow",
    "parquet": "pyarrow",
    "wide": "pyarrow",
    "wav": "soundfile",
    "images": "PIL",
    "cub-images": "PIL",
    "cub-labels": "PIL",
    "products": "PIL",
    "cars": "PIL",
    "flowers": "PIL",
    "tile": "google_crc32c",
    "tiles-manifest": "google_crc32c",
    "service-picture": "PIL",
}


def mutated(seed: bytes, draw: random.Random) -> bytes:
    """Bits flipped, parts cut out, copied elsewhere or put in, and perhaps the end lost."""
    content = bytearray(seed)
    for _ in range(draw.randint(1, 5)):
        start, stop, at = (draw.randint(0, len(content)) for _ in range(3))
        match draw.choice(["flip", "cut", "copy", "put", "number", "end"]):
            case "flip" if start < len(content):
                content[start] ^= 1 << draw.randint(0, 7)
            case "cut":
                del content[start : min(stop, start + 20)]
            case "copy":
                content[at:at] = content[start : min(stop, start + 200)]
            case "put":
                content[at:at] = draw.choice([draw.randbytes(draw.randint(1, 4)), draw.choice(TOKENS)])
            case "number":
                content[at : at + 8] = draw.choice([0, 1, 2**31, 2**32 - 1, 2**60, 2**64 - 1]).to_bytes(8, "little")
            case "end":
                del content[start:]
    return bytes(content)


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs(name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "json"))
    if name.startswith("service-"):
        pytest.importorskip("fastapi")
    probe, draw = Prober(TARGETS[name], tmp_path), random.Random(name)
    for _ in range(INPUTS):
        probe(mutated(draw.choice(probe.seeds), draw))


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_inputs_that_were_found(path, tmp_path):
    Prober(TARGETS[path.parent.name], tmp_path)(path.read_bytes())


def test_the_prober_sees_what_must_not_happen(tmp_path, monkeypatch):
    clock, peaks = iter(range(1000)), [0]
    monkeypatch.setattr(prober, "SECONDS", 1.5)  # by a clock that goes on by a second at each look
    monkeypatch.setattr(prober.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(prober, "_peak", lambda: max(peaks))
    for read, message in (
        (lambda folder, data: {}["missing"], "KeyError"),
        (lambda folder, data: int("nothing"), "names no file: ValueError"),
        (lambda folder, data: b"\xff".decode(), "UnicodeDecodeError"),
        (lambda folder, data: next(clock), "took 2.0 s"),
        (lambda folder, data: peaks.append(513 << 20), "took 513 MB"),
    ):
        good = Target(lambda folder: [b""], lambda folder, data: None)
        probe = Prober(good, tmp_path)
        probe.target = Target(good.prepare, read)
        with pytest.raises(FoundError, match=message):
            probe(b"")
