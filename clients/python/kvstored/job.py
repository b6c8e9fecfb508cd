"""Jobs: the prefix of a prompt, on its way into DRAM and leased as it arrives."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, Optional, Type

from . import wire
from .ask import Ask, Asker, Going, Steps, Wakeup, awaited, call, give_later
from .call import Request, Watch
from .errors import DeadlineExceeded, Disconnected, Error
from .lease import Lease
from .link import Link
from .state import Reason, State, reason_of
from .wire import Op

__all__ = ["ALL", "Job", "JobCalls", "Reason", "State", "Wakeup", "reason_of"]

#: Seconds before the end of a wait at which the daemon answers, so that its
#: answer comes in time.
_ANSWER = 0.05
#: As the number of tokens to wait for: everything that will be.
ALL = (1 << 63) - 1


class JobCalls(Lease, Asker):
    """What can be asked of a job."""

    @property
    def timeout(self) -> float:  # type: ignore[override]
        return self._timeout

    def _attached(self) -> Link:
        if self._link is None:
            raise Disconnected("there is no connection to the daemon")
        return self._link

    # ---- waiting -------------------------------------------------------------

    def _enough(self, min_tokens: int) -> bool:
        s = self._state
        return s.done or s.ready.tokens >= min_tokens or not self._leased()

    def _wait_request(self, min_tokens: int, left: float) -> Request:
        left -= min(_ANSWER, left / 2)
        millis = min(max(1, int(left * 1000)), wire.MAX_U32) if left > 0 else 0
        return Request(Op.WAIT, wire.wait(self.id, min_tokens, millis, len(self._refs) // self.ranks), self._update)

    def _wait(self, min_tokens: int = ALL, timeout: Optional[float] = None) -> Ask[State]:
        """Returns when that much is ready, when the job is done, or just before
        the timeout; the state says what can be used."""

        def steps(going: Going) -> Steps[State]:
            while not self._enough(min_tokens) and going.left > 0:
                try:
                    yield self._wait_step(min_tokens, going)
                except DeadlineExceeded:
                    break
                except Error as e:
                    self._lose(e)
            return self.state

        return Ask(steps, lambda _: self.state, timeout, raises=False)

    def _wait_step(self, min_tokens: int, going: Going) -> "Request | Watch":
        """The daemon pushes what comes. It is asked as well where it does not, and
        once where its policy may be that the first wait ends the loading."""
        if not self.id:
            return Watch(self._watches, lambda: self.id > 0 or self._state.done)
        if not going.link.pushes:
            return self._wait_request(min_tokens, going.left)
        if not self._asked:
            self._asked = True
            return self._wait_request(min_tokens, 0)
        return Watch(self._watches, lambda: self._enough(min_tokens))

    # ---- the end -------------------------------------------------------------

    def _renew(self, timeout: Optional[float] = None) -> Ask[float]:
        """Starts the age of the lease anew; seconds it holds from now, 0 if it does not."""

        def steps(going: Going) -> Steps[float]:
            if not self._leased() or not self.id:
                return 0.0
            return (yield Request(Op.RENEW, wire.numbered(self.id), wire.renew_reply)) / 1000

        return Ask(steps, lambda _: 0.0, timeout, raises=False)

    def _release(self, timeout: Optional[float] = None) -> Ask[bool]:
        """Gives the lease back. What was read is good only if this returns True."""

        def steps(going: Going) -> Steps[bool]:
            if self._given is not None and self.good is None:
                going.link.rouse()
                yield Watch(self._watches, lambda: self.good is not None)
            elif self.good is None and self.id:
                yield from self._end(self._given_back)
            else:
                self._drop()
            return bool(self.good)

        return Ask(steps, self._not_good, timeout, raises=False)

    def _cancel(self, timeout: Optional[float] = None) -> Ask[State]:
        """Ends the loading and the lease, where nothing was read."""

        def steps(going: Going) -> Steps[State]:
            if self._leased() and self.id:
                try:
                    yield from self._end(lambda body: self._news(wire.ended_reply(body)))
                except Error as e:
                    self._lose(e)
            else:
                self._drop()
            return self.state

        def miss(_: Error) -> State:
            self._drop()
            return self.state

        return Ask(steps, miss, timeout, raises=False)

    def _end(self, take: Callable[[bytes], Any]) -> Steps[None]:
        """Gives the lease back, sooner or later."""
        self.good = False
        self._let_go()
        request = Request(Op.RELEASE, wire.numbered(self.id), take)
        try:
            yield request
        except BaseException as e:
            give_later(self._attached(), request._replace(take=wire.empty_reply), e)
            raise

    def _not_good(self, _: Error) -> bool:
        if self.good is None:
            self._let_go()
            self.good = False
        return self.good


class Job(JobCalls):
    """Made by :meth:`Client.prefetch`. Leave its ``with`` block, or call
    :meth:`release`, to give the lease back; only if ``good`` is true afterwards
    are the bytes that were read the right ones."""

    wait = call(JobCalls._wait)
    renew = call(JobCalls._renew)
    release = call(JobCalls._release)
    cancel = call(JobCalls._cancel)
    #: :meth:`wait` for asyncio; all of it is in :class:`AsyncClient`.
    wait_async = awaited(JobCalls._wait)

    def on_ready(self, callback: Callable[["Job"], Any], min_tokens: int = ALL, timeout: Optional[float] = None) -> None:
        """Calls back, from a thread of the client, when that much is ready, the
        job is done, or just before the timeout; at once if that is so already.
        There is one such thread: while it is in a callback, others wait."""
        self._then(self._wait(min_tokens, timeout), lambda _: callback(self))

    def __enter__(self) -> "Job":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.release()
