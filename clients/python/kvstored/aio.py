"""The client for asyncio. Nothing in it blocks the loop: a thread of the client
sends, reads and tells the loop, with the same connection and the same frames."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Optional, Type

from .ask import awaited
from .client import ClientCalls
from .fill import FillCalls
from .job import JobCalls


class AsyncJob(JobCalls):
    """A :class:`Job` whose calls are awaited. Leave its ``async with`` block, or
    await :meth:`release`, to give the lease back."""

    wait = awaited(JobCalls._wait)
    renew = awaited(JobCalls._renew)
    release = awaited(JobCalls._release)
    cancel = awaited(JobCalls._cancel)

    async def __aenter__(self) -> "AsyncJob":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.release()


class AsyncFill(FillCalls):
    """A :class:`Fill` whose calls are awaited. The ``async with`` block commits,
    or aborts if it is left by an exception."""

    commit = awaited(FillCalls._commit)
    abort = awaited(FillCalls._abort)

    async def __aenter__(self) -> "AsyncFill":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await (self.commit() if kind is None else self.abort())


class AsyncClient(ClientCalls[AsyncJob, AsyncFill]):
    """A :class:`Client` whose calls are awaited, from any loop. ``async with``
    attaches; what is called before, or while the daemon is away, is a miss."""

    _job, _fill = AsyncJob, AsyncFill

    ping = awaited(ClientCalls[AsyncJob, AsyncFill]._ping)
    lookup = awaited(ClientCalls[AsyncJob, AsyncFill]._lookup)
    prefetch = awaited(ClientCalls[AsyncJob, AsyncFill]._prefetch)
    warm = awaited(ClientCalls[AsyncJob, AsyncFill]._warm)
    hint = awaited(ClientCalls[AsyncJob, AsyncFill]._hint)
    batch = awaited(ClientCalls[AsyncJob, AsyncFill]._batch)
    reserve = awaited(ClientCalls[AsyncJob, AsyncFill]._reserve)
    put = awaited(ClientCalls[AsyncJob, AsyncFill]._put)
    get = awaited(ClientCalls[AsyncJob, AsyncFill]._get)
    pin = awaited(ClientCalls[AsyncJob, AsyncFill]._pin)
    unpin = awaited(ClientCalls[AsyncJob, AsyncFill]._unpin)
    delete = awaited(ClientCalls[AsyncJob, AsyncFill]._delete)
    delete_hashes = awaited(ClientCalls[AsyncJob, AsyncFill]._delete_hashes)
    delete_space = awaited(ClientCalls[AsyncJob, AsyncFill]._delete_space)
    flush = awaited(ClientCalls[AsyncJob, AsyncFill]._flush)
    stats = awaited(ClientCalls[AsyncJob, AsyncFill]._stats)

    def _start(self) -> None:
        pass  # __aenter__ does, as it may take a while

    async def wait_attached(self, timeout: Optional[float] = None) -> bool:
        """Waits until there is a connection that answers; whether there is."""
        return await asyncio.get_running_loop().run_in_executor(None, self._wait_attached, timeout)

    async def aclose(self) -> None:
        """:meth:`close`, which may wait for a callback, for asyncio."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    async def __aenter__(self) -> "AsyncClient":
        await asyncio.get_running_loop().run_in_executor(None, self._open)
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.aclose()
