"""People who talk with an engine, as ``kvstored demo --engine`` plays them, over one that
pretends."""

import unittest
from typing import List, Tuple

from llamacpp import talk
from llamacpp.chat import Answer


class Pretender:
    """An engine and a daemon that remember their calls."""

    vocabulary = 512

    def __init__(self, wrong: int = 0) -> None:
        self.asked: List[Tuple[List[int], bool, bool]] = []
        self.ways: List[str] = []
        self.starts = self._stored = self._disk = 0
        self._cold = False
        self._wrong = wrong  # the answer, from 1, that is unlike the others

    def restart(self) -> None:
        self.starts, self._disk, self._cold = self.starts + 1, 0, True

    def loaded(self) -> int:
        return self._disk

    def answer(self, prompt: List[int], reply: int, restore: bool, store: bool) -> Answer:
        self.asked.append((prompt[:], restore, store))
        restored, seconds = 0, 8.0
        if restore and self._stored:
            restored, seconds = talk.SYSTEM, 1.0
            if self._cold:
                self._disk, self._cold, seconds = self._disk + 100, False, 2.0
        self._stored += store
        tokens = [3 + (len(prompt) + i) % 5 for i in range(reply)]
        return Answer(restored, seconds, tokens, "other" if len(self.asked) == self._wrong else "same")

    def play(self, users: int, turns: int):
        return talk.Talk(self, self.restart, lambda _user, _turn, way: self.ways.append(way)).play(users, turns, 1)


class TalkTest(unittest.TestCase):
    def test_ways(self) -> None:
        """Each prompt is answered computed, from disk after a restart, then from DRAM; the next
        one of its user goes on from it and the reply."""
        p = Pretender()
        r = p.play(2, 3)
        self.assertEqual(p.ways, ["computed", "from_dram"] + 5 * list(talk.WAYS))  # at the first prompt nothing is stored
        self.assertEqual((p.starts, r["restarts"], r["answers_compared"], r["answers_different"]), (5, 5, 11, 0))
        for (_, restore, store), way in zip(p.asked, p.ways):
            self.assertEqual((restore, store), (way != "computed", way == "from_dram"))
        first, second, again = (p.asked[i][0] for i in (0, 2, 5))
        self.assertEqual(first[: talk.SYSTEM], second[: talk.SYSTEM])
        self.assertNotEqual(first[talk.SYSTEM :][:9], second[talk.SYSTEM :][:9])
        goes_on = first + [3 + (len(first) + i) % 5 for i in range(talk.REPLY)]
        self.assertEqual(again[: len(goes_on)], goes_on)
        self.assertEqual(r["bytes_loaded_from_disk"], {"computed": 0, "from_disk": 500, "from_dram": 0})
        self.assertEqual(r["follow_ups"]["first_token_seconds"], {"computed": 8, "from_disk": 2, "from_dram": 1})
        self.assertEqual(r["follow_ups"]["times_sooner"], {"computed": 1, "from_disk": 4, "from_dram": 8})
        self.assertEqual((r["follow_ups"]["prompts"], r["by_turn"][0]["prompts"]), (4, 2))
        self.assertEqual(r["prompts"][0]["first_token_seconds"], {"computed": 8, "from_disk": 0, "from_dram": 0})

    def test_differs(self) -> None:
        """An answer with other logits is counted, in whichever way."""
        for wrong, different in {2: 1, 4: 1, 5: 1, 3: 2}.items():  # the third is computed: two are unlike it
            self.assertEqual(Pretender(wrong).play(2, 2)["answers_different"], different, wrong)

    def test_one_turn(self) -> None:
        r = Pretender().play(3, 1)
        self.assertEqual((r["follow_ups"]["prompts"], r["follow_ups"]["first_token_seconds"]["from_dram"]), (3, 1))

    def test_fits(self) -> None:
        """The longest talk that the command allows ends before the context does."""
        self.assertLessEqual(talk.SYSTEM + 11 * (talk.ASKED[1] + talk.REPLY), talk.CONTEXT)
