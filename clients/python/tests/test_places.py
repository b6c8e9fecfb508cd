"""Payloads to places and places to slots, in one call and proved."""

import math
import random
import time
import unittest
from typing import Any, List, Optional
from unittest import mock

from kvstored import bulk
from kvstored.places import Payload, gather, scatter

from .daemon import skip

SIZES = (100, 5000, 1, 300_000)


class Places(unittest.TestCase):
    def setUp(self) -> None:
        if not bulk.SUMS:
            skip(self, "neither the extension nor libxxhash is here: nothing is verified")
        rnd = random.Random(self.id())
        self.values = [rnd.randbytes(n) for n in SIZES]
        self.payloads: List[Payload] = []
        for value in self.values:
            at = bulk.address(value)
            self.payloads.append((at, len(value), bulk.total(at, len(value)) or 0))
        self.target = bytearray(sum(SIZES) + 1000)
        self.at = bulk.address(self.target, writable=True)

    def places(self) -> List[Any]:
        """Of each value two pieces, the second before the first."""
        out, at = [], self.at
        for n in SIZES:
            out.append(((at + n - n // 3, n // 3), (at, n - n // 3)))
            at += n
        return out

    def loaded(self) -> List[bytes]:
        out, at = [], 0
        for n in SIZES:
            whole = bytes(self.target[at : at + n])
            out.append(whole[n - n // 3 :] + whole[: n - n // 3])
            at += n
        return out

    def test_all_and_back(self) -> None:
        self.assertEqual(scatter(self.payloads, self.places(), True, math.inf), 4)
        self.assertEqual(self.loaded(), self.values)
        back = bytearray(sum(SIZES))
        slots, at = [], bulk.address(back, True)
        for place, n in zip(self.places(), SIZES):
            slots.append((at, place))
            at += n
        gather(slots, math.inf)
        self.assertEqual(back, b"".join(self.values))

    def test_up_to_one_of_another_length(self) -> None:
        for i in range(4):
            places = self.places()
            places[i] = places[i][:1]
            self.assertEqual([scatter(self.payloads, places, verify, math.inf) for verify in (True, False)], [i, i])
        self.assertEqual(scatter(self.payloads, self.places()[:2], True, math.inf), 2)
        self.assertEqual(scatter([], self.places(), True, math.inf), 0)

    def test_up_to_other_bytes(self) -> None:
        for i in range(4):
            payloads = list(self.payloads)
            payloads[i] = (*payloads[i][:2], payloads[i][2] ^ 1)
            self.assertEqual(scatter(payloads, self.places(), True, math.inf), i)
            self.assertEqual(scatter(payloads, self.places(), False, math.inf), 4)

    def test_places_are_made_for_right_bytes_only(self) -> None:
        payloads = [*self.payloads[:2], (*self.payloads[2][:2], 5), self.payloads[3]]
        asked, places = [], self.places()

        def target(i: int) -> Any:
            def made(at: int, size: int) -> Optional[Any]:
                asked.append((at, size))
                return places[i]

            return made

        self.assertEqual(scatter(payloads, [target(i) for i in range(4)], True, math.inf), 2)
        self.assertEqual(asked, [p[:2] for p in self.payloads[:2]])
        self.assertEqual(scatter(self.payloads, [*places[:3], lambda at, size: None], True, math.inf), 3)

    def test_nothing_late(self) -> None:
        self.assertEqual(scatter(self.payloads, self.places(), True, time.monotonic()), 0)
        gather([(self.at, [p[:2]]) for p in self.payloads], time.monotonic())
        self.assertEqual(self.target, bytes(len(self.target)))

    def test_one_call_however_many(self) -> None:
        many = self.payloads[:1] * 50
        with mock.patch.object(bulk, "copy", wraps=bulk.copy) as copy:
            self.assertEqual(scatter(many, [[(self.at + 100 * i, 100)] for i in range(50)], True, math.inf), 50)
            gather([(self.at + 100 * i, [self.payloads[0][:2]]) for i in range(50)], math.inf)
        self.assertEqual(copy.call_count, 2)
