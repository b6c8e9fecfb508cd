"""A thread that asks the daemon in place of an event loop."""

import asyncio
import threading
import time
from queue import SimpleQueue
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

_HOLD_SECONDS = 0.003  # that an answer waits for the next ones: waking a loop costs as much as ten answers


class _Call(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    call: Callable[[], Any]
    otherwise: Any


class Aside:
    """Makes calls that wait, one after the other. What a loop asks for in one turn is
    handed over together, and answers come back together: to a loop each handing over
    is a system call or two, and the switch to another thread. Safe for threads."""

    def __init__(self, name: str) -> None:
        self._mu = threading.Lock()  # guards the fields below; nothing is handed over behind the end
        self._closed = False
        self._turn: List[_Call] = []  # what has not been handed over
        self._turns: "SimpleQueue[Optional[List[_Call]]]" = SimpleQueue()
        threading.Thread(target=_run, args=(self._turns,), name=name, daemon=True).start()

    async def wait(self, call: Callable[[], Any], otherwise: Any) -> Any:
        """What a call returns, which raises nothing; ``otherwise`` once this is closed."""
        if self._closed:
            return otherwise
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._mu:
            self._turn.append(_Call(loop, future, call, otherwise))
            first = len(self._turn) == 1
        if first:
            loop.call_soon(self._hand_over)
        return await future

    def _hand_over(self) -> None:
        with self._mu:
            turn, self._turn = self._turn, []
            if not self._closed:
                self._turns.put(turn)
                return
        for asked in turn:
            _tell(asked.loop, [(asked.future, asked.otherwise)])

    def close(self) -> None:
        """Lets the thread end behind what it has been given, which is not waited for."""
        with self._mu:
            self._closed = True
            self._turns.put(None)


def _run(turns: "SimpleQueue[Optional[List[_Call]]]") -> None:
    while True:
        turn = turns.get()
        if turn is None:
            return
        since, done = time.monotonic(), []  # type: ignore[var-annotated]
        for n, (loop, future, call, _) in enumerate(turn):
            done.append((future, call()))
            last = n + 1 == len(turn) or turn[n + 1].loop is not loop
            if last or time.monotonic() - since > _HOLD_SECONDS:
                _tell(loop, done)
                since, done = time.monotonic(), []


def _tell(loop: asyncio.AbstractEventLoop, done: List[Tuple["asyncio.Future[Any]", Any]]) -> None:
    try:
        loop.call_soon_threadsafe(_deliver, done)
    except RuntimeError:
        pass  # the loop is closed: nothing waits


def _deliver(done: List[Tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, answer in done:
        if not future.done():  # cancelled
            future.set_result(answer)
