"""Work: requests computed in a few threads, with a queue, a time limit, and cancellation when the client leaves."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

import numpy as np
from starlette.requests import ClientDisconnect, Request

from likewise.ops.cpu import stoppable
from likewise.web.limits import Limits
from likewise.web.refusals import Refusal

Result = TypeVar("Result")


class Job:
    """The computation of a request. Long computations call ``check`` between pieces of their work.

    Example:
        >>> Job(seconds=10.0).check()
    """

    def __init__(self, seconds: float = float("inf")) -> None:
        self.end = time.monotonic() + seconds
        self._stop = np.zeros(1, np.uint8)  # kernels look at it

    def cancel(self) -> None:
        """The result is no longer needed: stop at the next check, or within a kernel."""
        self._stop[0] = 1

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer needed."""
        return bool(self._stop[0])

    def run(self, function: "Callable[[Job], Result]") -> "Result":
        """The function's result, computed by kernels that stop when the job is cancelled."""
        try:
            with stoppable(self._stop):
                return function(self)
        except KeyboardInterrupt:
            raise Refusal(499, "the client has left") from None

    def check(self) -> None:
        """Raise if the client has left or the time is up."""
        if self.cancelled:
            raise Refusal(499, "the client has left")
        if time.monotonic() > self.end:
            raise Refusal(503, "the computation took too long; ask for less", {"Retry-After": "1"})


class Work:
    """Runs functions of a Job in ``limits.parallel`` threads; at most ``limits.waiting`` more wait.

    A request that takes longer than ``limits.seconds`` gets 503, and one that finds the queue full 429. Its thread is
    free again at the job's next check.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pool = ThreadPoolExecutor(limits.parallel, thread_name_prefix="likewise")
        self.taken = 0  # running or waiting
        self.held = 0  # bytes of the bodies of these requests, and of those being read

    async def run(self, request: Request, function: Callable[[Job], Result]) -> Result:
        """The function's result, unless the time ends or the client leaves first."""
        if self.taken >= self.limits.parallel + self.limits.waiting:
            raise Refusal(429, "too many requests are waiting; try again", {"Retry-After": "1"})
        job = Job(self.limits.seconds)
        self.taken += 1
        loop = asyncio.get_running_loop()
        future = self.pool.submit(job.run, function)
        # A cancelled job keeps its thread until its next check.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._free) if not loop.is_closed() else None)
        result = asyncio.wrap_future(future)
        left = asyncio.ensure_future(_has_left(request))
        try:
            await asyncio.wait({result, left}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            if left.done():
                raise Refusal(499, "the client has left")
            raise Refusal(503, "the computation took too long; ask for less", {"Retry-After": "1"})
        finally:
            job.cancel()
            left.cancel()
            if not result.done():
                result.cancel()

    def _free(self) -> None:
        self.taken -= 1

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytearray]:
        """The body, within the limits on its size, on the time it takes, and on all bodies together."""
        length = request.headers.get("content-length", "0")
        if not length.isdecimal():
            raise Refusal(400, "the Content-Length is not a number")
        if int(length) > self.limits.body:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.reading):
                async for piece in request.stream():
                    body += piece
                    self.held += len(piece)
                    if len(body) > self.limits.body:
                        raise self._too_large()
                    if self.held > self.limits.bodies:
                        raise Refusal(503, "too many bodies are being read; try again", {"Retry-After": "1"})
            yield body
        except TimeoutError:
            raise Refusal(408, f"the body took longer than {self.limits.reading:g} s") from None
        except ClientDisconnect:
            raise Refusal(499, "the client has left") from None
        finally:
            self.held -= len(body)

    def _too_large(self) -> Refusal:
        return Refusal(413, f"the body is larger than {self.limits.body} bytes", {"Connection": "close"})

    def close(self) -> None:
        """Drop waiting jobs; running ones end by themselves."""
        self.pool.shutdown(wait=False, cancel_futures=True)


async def _has_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def checked(job: Job, pieces: Iterable[Result]) -> Iterator[Result]:
    """The pieces, with a check before each."""
    for piece in pieces:
        job.check()
        yield piece
