"""The credit of bodies under way, against a real daemon."""

from __future__ import annotations

import struct
import unittest
from unittest import mock

import kvstored
from kvstored import Code, Result
from kvstored import _wire as wire
from kvstored.errors import Retry
from kvstored._connection import Link, due
from kvstored._wire import Op

from .daemon import Daemon
from .test_client import SPACE, chain

LEAST = 1 << 20  # the least credit
PAD = 900 << 10


def waits() -> bytes:
    """A request for events, which waits until it is cancelled, with an option that no
    daemon knows."""
    head = struct.pack("<QQB7x", 0, (1 << 64) - 1, 0)
    return head + struct.pack("<II", 1, 0) + struct.pack("<HHI", 0x7FFF, 0, PAD) + bytes(PAD)


def frugal(*given: object, **named: object) -> bytes:
    """Hello of a client that agrees to the least."""
    whole = bytearray(hello(*given, **named))  # type: ignore[arg-type]
    whole[12:16] = LEAST.to_bytes(4, "little")
    return bytes(whole)


hello = wire.hello


class Credit(unittest.TestCase):
    def test_who_exceeds_it_is_refused_and_others_go_on(self) -> None:
        daemon = Daemon(more="events: {enabled: true}\n")
        self.addCleanup(daemon.close)
        daemon.wait()
        other = kvstored.Client(daemon.socket, space=SPACE, timeout=60, inline=True)
        self.addCleanup(other.close)
        with mock.patch.object(wire, "hello", frugal):
            kv = kvstored.Client(daemon.socket, space=SPACE, timeout=60, inline=True)
        self.addCleanup(kv.close)
        link = kv._link
        assert link is not None and link.hello.credit == LEAST
        prompt = chain("credit", 1)
        kv.lookup(prompt)  # opens the space
        event = link.begin(Op.EVENTS, waits(), due(60, 0))
        for i in range(2):
            with self.assertRaises(kvstored.Refused) as caught:
                self.put(link, kv, prompt)
            self.assertEqual((caught.exception.code, caught.exception.retry), (Code.OVER_BUDGET, Retry.RELEASE))
            self.assertEqual(kv.put(prompt, [bytes(300 << 10)]), [])
            self.assertEqual(kv.lookup(prompt).total.chunks, 0)
            mine = chain(("other", i), 1)
            self.assertEqual([r.result for r in other.put(mine, [bytes(300 << 10)])], [Result.STORED])
            self.assertEqual([len(c.payload) for c in other.get(mine)], [300 << 10])
        link.call(Op.CANCEL, wire.cancel(event.id), due(60, 0), wire.cancel_reply)
        with self.assertRaises(kvstored.Refused) as caught:
            link.end(event, due(60, 0), wire.events_reply)
        self.assertEqual(caught.exception.code, Code.CANCELLED)
        self.assertEqual([r.result for r in kv.put(prompt, [bytes(300 << 10)])], [Result.STORED])

    def put(self, link: Link, kv: kvstored.Client, prompt: kvstored.Prompt) -> None:
        assert prompt.space is not None
        body = wire.put(prompt.chain(link.spaces[prompt.space]), 0, 300 << 10, [300 << 10]) + bytes(300 << 10)
        link.call(Op.PUT, body, due(60, 0), wire.put_reply)


if __name__ == "__main__":
    unittest.main()
