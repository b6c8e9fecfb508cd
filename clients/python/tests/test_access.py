"""A user that may not map the daemon's memory stores and loads all the same."""

import os
import unittest
from pathlib import Path
from typing import List

import kvstored
from kvstored.memory import address
from kvstored.pages import Pages

from .daemon import Daemon, enter, skip

PATIENCE = 60.0  # seconds; bounds what should take none
USER = 12345
SPACE = kvstored.Space(model="a-1", dtype="u8", chunk_tokens=4, method="given:test")
RULES = f'access: [{{uids: [{USER}], match: "a-*", rights: [read, write]}}]\n'


class WithoutMapping(unittest.TestCase):
    def setUp(self) -> None:
        if os.geteuid() != 0:
            skip(self, "to be another user takes root")
        self.daemon = enter(self, Daemon())
        self.daemon.kill()
        config = Path(f"{self.daemon.dir}/c.yaml")
        config.write_text(config.read_text().replace("listen: {", 'listen: {mode: "0666", ') + RULES)
        os.chmod(self.daemon.dir, 0o755)
        self.daemon.start()
        self.daemon.wait()
        os.seteuid(USER)
        try:  # the connection is made at once
            self.kv = kvstored.Client(self.daemon.socket, timeout=PATIENCE)
            self.assertTrue(self.kv.wait_attached(PATIENCE))
        finally:
            os.seteuid(0)
        self.addCleanup(self.kv.close)

    def test_pages_cross_the_socket(self) -> None:
        self.assertIsNone(self.kv.arena)
        pages = Pages(self.kv, SPACE)
        self.addCleanup(pages.close)
        keys = [b"key %d" % i for i in range(40)]
        values: List[bytearray] = [bytearray([i]) * (100 + i) for i in range(40)]
        places = [[(address(v), 50), (address(v) + 50, len(v) - 50)] for v in values]
        self.assertEqual(pages.store(keys, places, PATIENCE), [True] * 40)
        got = [bytearray(len(v)) for v in values]
        into = [[(address(g), len(g))] for g in got]
        self.assertEqual(pages.load([*keys, b"none"], [*into, []], PATIENCE), 40)
        self.assertEqual(got, values)
        self.assertEqual(pages.load_each([keys[0], b"none", keys[1]], [into[0], [], into[1]], PATIENCE), [True, False, True])
        self.assertEqual(pages.load(keys[:2], [into[0], into[0]], PATIENCE), 1)  # another length

    def test_another_model_is_denied(self) -> None:
        other = kvstored.Space(model="b-1", dtype="u8", chunk_tokens=4, method="given:test")
        with self.assertRaises(kvstored.Refused) as raised:
            self.kv.lookup(kvstored.Prompt(width=16, raw=b"h" * 16, lengths=[4], space=other))
        self.assertEqual(raised.exception.code, kvstored.Code.DENIED)
        self.assertIn('model "b-1"', raised.exception.text)
        pages = Pages(self.kv, other)
        self.addCleanup(pages.close)
        self.assertEqual(pages.exists([b"k"], PATIENCE), [False])
