"""Calls that a thread makes in place of an event loop."""

import asyncio
import functools
import threading
import unittest
from typing import Any, List
from unittest import mock

import kvstored.aside
from kvstored.aside import Aside


class Calls(unittest.TestCase):
    def setUp(self) -> None:
        self.aside = Aside("test")
        self.addCleanup(self.aside.close)

    def test_a_turn_is_one_handing_over(self) -> None:
        """There and back, and each has its own answer."""

        async def many() -> List[Any]:
            return await asyncio.gather(*(self.aside.wait(functools.partial(str, n), None) for n in range(64)))

        handed, told = self.aside._turns.put, kvstored.aside._tell
        turns: List[Any] = []

        def put(turn: Any) -> None:
            turns.append(turn)
            handed(turn)

        with mock.patch.object(kvstored.aside, "_HOLD_SECONDS", 600.0), mock.patch.object(self.aside, "_turns", mock.Mock(put=put)):
            with mock.patch.object(kvstored.aside, "_tell", mock.Mock(side_effect=told)) as tell:
                self.assertEqual(asyncio.run(many()), [str(n) for n in range(64)])
                self.assertEqual(([len(turn) for turn in turns], tell.call_count), ([64], 1))

    def test_cancelled_ones_hold_nothing_up(self) -> None:
        go = threading.Event()

        async def cancel() -> Any:
            first = asyncio.ensure_future(self.aside.wait(functools.partial(go.wait, 30), None))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
            go.set()
            return await self.aside.wait(lambda: "next", None)

        self.assertEqual(asyncio.run(cancel()), "next")

    def test_a_loop_that_ends_first(self) -> None:
        go, done = threading.Event(), threading.Event()

        def call() -> None:
            go.wait(30)
            done.set()

        async def leave() -> None:
            asyncio.ensure_future(self.aside.wait(call, None))
            await asyncio.sleep(0.01)

        asyncio.run(leave())
        go.set()
        self.assertTrue(done.wait(30))

        async def again() -> Any:
            return await self.aside.wait(lambda: 7, None)

        self.assertEqual(asyncio.run(again()), 7)

    def test_closed(self) -> None:
        self.aside.close()

        async def ask() -> Any:
            return await self.aside.wait(lambda: 1, 0)

        self.assertEqual(asyncio.run(ask()), 0)

    def test_closed_within_a_turn(self) -> None:
        async def ask() -> Any:
            asked = asyncio.ensure_future(self.aside.wait(lambda: 1, 0))
            await asyncio.sleep(0)
            self.aside.close()  # before the turn is handed over
            return await asyncio.wait_for(asked, 10)

        self.assertEqual(asyncio.run(ask()), 0)
