"""Signals: on Ctrl-C and SIGTERM, finish the step, and then write a checkpoint."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPED = 128 + signal.SIGTERM  # the exit status of a process ended by SIGTERM


class StoppedError(Exception):
    """A signal arrived while no step was running."""


class Stop:
    """The signal that was received, if any. A second one interrupts immediately.

    say: a function that prints a line of text.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self.signal: int | None = None
        self._say = say
        self._waiting = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record a signal; the handler that ``listening`` installs."""
        again, self.signal = self.signal is not None, number
        if again:
            raise self.exception()
        if self._waiting:
            raise StoppedError
        self._say("fit: stopping after this step; a second signal stops immediately")

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block that a signal ends immediately with a StoppedError; it must not change what a checkpoint saves."""
        if self.signal is not None:
            raise StoppedError
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def exception(self) -> BaseException:
        """Return the exception to raise for the signal: SystemExit for SIGTERM, otherwise KeyboardInterrupt."""
        return SystemExit(STOPPED) if self.signal == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def listening(say: Callable[[str], object] = lambda text: None) -> Iterator[Stop]:
    """A block in which SIGINT and SIGTERM are recorded; afterwards the former handlers are restored.

    Python lets only the main thread install handlers; in other threads, nothing is recorded.
    """
    stop = Stop(say)
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, stop) for number in SIGNALS} if main else {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: not installed from Python, so it cannot be restored
                signal.signal(number, handler)
