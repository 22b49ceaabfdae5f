"""The prober: feeds inputs to a target and reports violations.

A reader may return, or raise a ValueError or an OSError that names its file. Everything else is a finding: any other
exception, more than two seconds of CPU time, or more than 512 MB beyond the size of the file.
"""

import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SECONDS, BYTES = 2.0, 512 << 20


@dataclass(frozen=True)
class Target:
    """A reader: ``prepare`` fills a folder and gives the seeds, ``read`` reads bytes, with that folder to write to.

    named: whether an error must name a file of that folder; if not, there must be no error at all.
    """

    prepare: Callable[[Path], list[bytes]]
    read: Callable[[Path, bytes], object]
    named: bool = True


class FoundError(AssertionError):
    """A violation."""


class Prober:
    """Feeds inputs to a target; raises FoundError on a violation."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.folder, self.target = folder, target
        self.seeds = target.prepare(folder)
        for seed in self.seeds:
            self(seed)
        self.memory = _peak()

    def __call__(self, data: bytes) -> None:
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.target.read(self.folder, data)
        except (ValueError, OSError) as error:
            ours = type(error) is ValueError or isinstance(error, OSError)
            if not (ours and self.target.named):
                raise FoundError(f"{type(error).__name__}: {error}") from error
            if str(self.folder) not in str(error):
                raise FoundError(f"names no file: {type(error).__name__}: {error}") from error
        except Exception as error:
            raise FoundError(f"{type(error).__name__}: {error}") from error
        taken = time.process_time() - start
        if taken > SECONDS:
            raise FoundError(f"took {taken:.1f} s")
        if _peak() > getattr(self, "memory", 1 << 60) + BYTES + len(data):
            raise FoundError(f"took {(_peak() - self.memory) >> 20} MB")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
