"""Signals: Ctrl-C and SIGTERM let the step end first, so that a checkpoint can be written."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPED = 128 + signal.SIGTERM  # the exit status of a process that SIGTERM ended


class StoppedError(Exception):
    """A signal came where nothing needs to be finished first."""


class Stop:
    """Which signal came, if one did. The second one interrupts at once.

    say: a function that tells the user, of a line of text.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self.signal: int | None = None
        self._say = say
        self._waiting = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; the handler that ``listening`` installs."""
        again, self.signal = self.signal is not None, number
        if again:
            raise self.exception()
        if self._waiting:
            raise StoppedError
        self._say("fit: stopping after this step; a second signal stops at once")

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block that a signal ends at once, by a StoppedError: it changes nothing that a checkpoint holds."""
        if self.signal is not None:
            raise StoppedError
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def exception(self) -> BaseException:
        """What the signal means to Python."""
        return SystemExit(STOPPED) if self.signal == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def listening(say: Callable[[str], object] = lambda text: None) -> Iterator[Stop]:
    """A block in which SIGINT and SIGTERM are noted, and after which the former handlers are back.

    Python lets only the main thread install handlers: in others, nothing is noted.
    """
    stop = Stop(say)
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, stop) for number in SIGNALS} if main else {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: not installed from Python, and not to be had back
                signal.signal(number, handler)
