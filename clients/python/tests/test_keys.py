"""The hashes of prompts, which the daemon computes as well."""

from __future__ import annotations

import json
import random
import unittest
from typing import Any, List, Optional

from kvstored import Prompt, Space, hashes, keys, tokens
from kvstored.wire import SpaceInfo

from .daemon import ROOT

GIVEN = Space(model="m", dtype="u8", chunk_tokens=4, method="given:test")
SHA = GIVEN._replace(method="sha256")
RAW = random.Random(0).randbytes(96)


def chain(prompt: Prompt, space: Space) -> Optional[List[bytes]]:
    found = keys.chain(prompt, space, SpaceInfo(0, space.chunk_tokens, bytes(16)))
    if found is None:
        return None
    got = list(found.hashes)
    return got if len(got) == found.chunks else [*got, b"ended early"]


class Keys(unittest.TestCase):
    def test_vectors(self) -> None:
        checked = 0
        for of in json.loads((ROOT / "key/testdata/vectors.json").read_text())["spaces"]:
            space = Space(**{**of["space"], "tags": ()})
            ids, want = of["tokens"], [bytes.fromhex(h) for h in of["hashes"]]
            if space.method != "sha256":
                self.assertIsNone(chain(tokens(ids), space))
                continue
            full = len(ids) // space.chunk_tokens
            self.assertEqual(chain(tokens(ids), space), want[:full])
            self.assertEqual(chain(tokens(ids, save_unfull=True), space), want)
            self.assertEqual(chain(tokens(ids, skip=1), space), want[:full])
            checked += 1
        self.assertGreater(checked, 2)

    def test_hashes_of_each_width(self) -> None:
        cut = [RAW[i : i + 16] for i in range(0, 96, 16)]
        self.assertEqual(chain(hashes(RAW, [4] * 6), GIVEN), cut)
        self.assertEqual(chain(hashes(bytearray(RAW), [4] * 5 + [1]), SHA), cut)
        self.assertEqual(chain(hashes(RAW, [4] * 3, width=32), GIVEN), cut[::2])
        self.assertEqual(chain(hashes(RAW, [4] * 12, width=8), GIVEN), [RAW[i : i + 8] + bytes(8) for i in range(0, 96, 8)])
        self.assertEqual(chain(hashes(RAW, [4] * 6, alone=True), Space("m", "u8", 4, "given")), cut)

    def test_the_daemon_judges(self) -> None:
        refused: List[Any] = [
            (hashes(RAW, [4] * 3, width=32), SHA),
            (hashes(RAW, [4] * 12, width=8), SHA),
            (hashes(RAW, [4, 3, 4, 4, 4, 4]), GIVEN),
            (hashes(RAW, [4] * 5 + [5]), GIVEN),
            (hashes(RAW, [4] * 5 + [0]), GIVEN),
            (hashes(b"", []), GIVEN),
            (hashes(RAW, [4] * 6, skip=6), GIVEN),
            (hashes(RAW, [4] * 6, skip=-1), GIVEN),
            (tokens(range(8)), GIVEN),
            (tokens(range(8)), SHA._replace(method="")),
            (tokens(range(3)), SHA),
            (tokens(range(8))._replace(alone=True), SHA),
            (tokens(range(8))._replace(ref=3), SHA),
            (tokens(range(8))._replace(grain=2), SHA),
            (tokens(range(4 * keys.MOST_CHUNKS + 4)), SHA),
        ]
        for prompt, space in refused:
            with self.subTest(prompt):
                self.assertIsNone(chain(prompt, space))
        self.assertIsNotNone(chain(tokens(range(4 * keys.MOST_CHUNKS)), SHA))

    def test_it_ends_before_what_the_daemon_refuses(self) -> None:
        cut = [RAW[i : i + 16] for i in range(0, 96, 16)]
        for wrong in (cut[1], bytes(16)):
            self.assertEqual(chain(hashes(b"".join([*cut[:4], wrong, cut[5]]), [4] * 6), GIVEN), [*cut[:4], b"ended early"])
        for bad in ([1 << 32], [-1], ["a"], [None]):
            got = chain(tokens([*range(4), *bad, *range(3)]), SHA)
            self.assertEqual(got, [*(chain(tokens(range(4)), SHA) or []), b"ended early"])


if __name__ == "__main__":
    unittest.main()
