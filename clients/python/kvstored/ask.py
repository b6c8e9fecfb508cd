"""What a call asks of the daemon, step by step, and how it is carried out: by a
thread that waits, or by a coroutine.

The steps of a call are a generator. It yields requests and is sent what their
replies say; what it returns is the answer. Errors are raised where it waits.
"""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Generator, Generic, NamedTuple, Optional, TypeVar, Union, cast

from .call import Call, Request, Watch
from .errors import MISTAKES, DeadlineExceeded, Disconnected, Error, Refused
from .link import Link

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")

Step = Union[Request, Watch]
Steps = Generator[Step, Any, T]


class Going(NamedTuple):
    """A call on its way."""

    link: Link
    deadline: float
    #: Seconds that a request which waits for its turn has from that on; None
    #: where the caller has set a timeout, which then bounds all of it.
    grace: Optional[float]

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()

    def ends(self, step: Watch) -> float:
        return self.deadline if step.seconds is None else time.monotonic() + step.seconds


class Ask(Generic[T]):
    """A call to be made. ``miss`` is its answer where the daemon is away, late,
    full or stopping; what is raised, unless ``raises`` is false, is a mistake of
    the caller."""

    def __init__(
        self, steps: Callable[[Going], Steps[T]], miss: Callable[[Error], T], timeout: Optional[float], raises: bool = True
    ) -> None:
        self.steps, self.miss, self.timeout, self.raises = steps, miss, timeout, raises

    def failed(self, error: Error) -> T:
        if self.raises and isinstance(error, Refused) and error.code in MISTAKES:
            raise error.fresh()
        return self.miss(error)


def or_later(link: Link, request: Request, instead: Request) -> Steps[Any]:
    """A request that gives something back. Where it was late or cancelled, perhaps
    before it was sent, the other one follows it later."""
    try:
        return (yield request)
    except BaseException as e:
        give_later(link, instead, e)
        raise


def give_later(link: Link, instead: Request, error: BaseException) -> None:
    """Sends a request later where the error of another is that it was late or cancelled."""
    if not isinstance(error, (Disconnected, Refused)):
        link.later(instead)


class Asker:
    """What calls are made with."""

    timeout: float

    def _attached(self) -> Link:
        """The connection. Raises Disconnected or DeadlineExceeded."""
        raise NotImplementedError

    def _failed(self, error: Error) -> None:
        """Hears of a call that failed."""

    def _going(self, ask: Ask[Any]) -> Going:
        link = self._attached()
        timeout = self.timeout if ask.timeout is None else ask.timeout
        return Going(link, time.monotonic() + timeout, timeout if ask.timeout is None else None)

    def _now(self, ask: Ask[T]) -> T:
        """Asks, and waits for the answer."""
        try:
            going = self._going(ask)
            return waited(going, ask.steps(going))
        except Error as e:
            self._failed(e)
            return ask.failed(e)

    async def _soon(self, ask: Ask[T]) -> T:
        """Asks, and awaits the answer. Nothing in it blocks."""
        try:
            going = self._going(ask)
            steps = ask.steps(going)
            step = next(steps)
            while True:
                try:
                    answer = await _awaited_step(going, step)
                except BaseException as e:  # cancelled, for example
                    step = steps.throw(e)
                else:
                    step = steps.send(answer)
        except StopIteration as e:
            return e.value
        except Error as e:
            self._failed(e)
            return ask.failed(e)

    def _then(self, ask: Ask[T], told: Callable[[T], Any]) -> None:
        """Asks, and tells the answer: from the thread that tends the link, or at
        once where there is nothing to wait for."""

        def go_on(advance: Callable[[], Step]) -> None:
            try:
                step = advance()
            except StopIteration as e:
                told(e.value)
            except Error as e:
                self._failed(e)
                told(ask.failed(e))
            else:
                try:
                    _submitted(going, step, answered)
                except Error as e:
                    error = e
                    go_on(lambda: steps.throw(error))

        def answered(call: Call) -> None:
            error = call.error
            go_on((lambda: steps.send(call.value)) if error is None else (lambda: steps.throw(error.fresh())))

        try:
            going = self._going(ask)
        except Error as e:
            self._failed(e)
            told(ask.failed(e))
            return
        steps = ask.steps(going)
        go_on(lambda: next(steps))


def waited(going: Going, steps: Steps[T]) -> T:
    """Takes one step after the other, and waits for each."""
    link, deadline, grace = going
    try:
        step = next(steps)
        while True:
            try:
                answer = _watched(going, step) if isinstance(step, Watch) else link.call(step, deadline, grace)
            except BaseException as e:  # a signal's handler may raise anything
                step = steps.throw(e)
            else:
                step = steps.send(answer)
    except StopIteration as e:
        return e.value


def _watched(going: Going, step: Watch) -> Any:
    link, deadline = going.link, going.ends(step)
    return link.wait(link.watch(step, deadline), deadline)


def _submitted(going: Going, step: Step, callback: Callable[[Call], None]) -> Call:
    if isinstance(step, Watch):
        return going.link.watch(step, going.ends(step), callback)
    return going.link.submit(step._replace(callback=callback), going.deadline, going.grace)


async def _awaited_step(going: Going, step: Step) -> Any:
    ended = Wakeup()
    call = _submitted(going, step, lambda _: ended.set())
    try:
        await ended
    except BaseException:  # cancelled: nobody will have what it brings
        going.link._disown(call)
        raise
    if call.error is not None:
        raise call.error.fresh()
    return call.value


class Wakeup:
    """What a coroutine awaits and any thread sets."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: "asyncio.Future[None]" = self._loop.create_future()

    def set(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:
            pass  # the loop is closed: nobody awaits it any more

    def _resolve(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()


def call(f: "Callable[P, Ask[T]]") -> "Callable[P, T]":
    """The method that asks what f says, and waits."""

    @functools.wraps(f)
    def waits(self: Any, *args: Any, **options: Any) -> T:
        return self._now(cast(Any, f)(self, *args, **options))

    return cast(Any, waits)


def awaited(f: "Callable[P, Ask[T]]") -> "Callable[P, Coroutine[Any, Any, T]]":
    """:func:`call` for coroutines."""

    @functools.wraps(f)
    async def awaits(self: Any, *args: Any, **options: Any) -> T:
        return await self._soon(cast(Any, f)(self, *args, **options))

    return cast(Any, awaits)
