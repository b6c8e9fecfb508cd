"""People who talk with an engine: each prompt is answered computed, from disk by a daemon
that was just restarted, and from DRAM."""

from __future__ import annotations

import random
import statistics
from typing import Any, Callable, Dict, List, Protocol, Sequence

from .chat import Answer

CONTEXT, CHUNK = 4096, 256  # tokens
SYSTEM, REPLY = 2048, 16  # tokens of the prompt that all begin with, and of each answer
ASKED = (40, 160)  # tokens of a question
_FIRST = 3  # of the vocabulary; those before it have a meaning

COMPUTED, FROM_DISK, FROM_DRAM = WAYS = ("computed", "from_disk", "from_dram")


class Engine(Protocol):
    vocabulary: int

    def loaded(self) -> int: ...
    def answer(self, prompt: List[int], reply: int, restore: bool, store: bool) -> Answer: ...


class Talk:
    """Users who ask in turn. Only once a prompt was answered in each way is it stored."""

    def __init__(self, engine: Engine, restart: Callable[[], None], told: Callable[[int, int, str], None]) -> None:
        self._engine, self._restart, self._told = engine, restart, told
        self._prompts: List[Dict[str, Any]] = []
        self._compared = self._different = self._restarts = 0
        self._disk = dict.fromkeys(WAYS, 0)

    def play(self, users: int, turns: int, seed: int) -> Dict[str, Any]:
        """Plays all turns of all users, and returns the result."""
        rng = random.Random(seed)

        def say(n: int) -> List[int]:
            return [rng.randrange(_FIRST, self._engine.vocabulary) for _ in range(n)]

        system = say(SYSTEM)
        prompts = [system[:] for _ in range(users)]
        for turn in range(turns):
            for user, prompt in enumerate(prompts):
                prompt += say(rng.randrange(*ASKED))
                prompt += self._ask(user, turn, prompt)
        by_turn = [self._summary(lambda p, turn=turn: p["turn"] == turn) for turn in range(turns)]
        return {
            "users": users, "turns": turns, "chunk_tokens": CHUNK, "system_prompt_tokens": SYSTEM, "reply_tokens": REPLY,
            "prompts": self._prompts, "by_turn": by_turn, "follow_ups": self._summary(lambda p: turns == 1 or p["turn"] > 0),
            "restarts": self._restarts, "bytes_loaded_from_disk": self._disk,
            "answers_compared": self._compared, "answers_different": self._different,
        }  # fmt: skip

    def _ask(self, user: int, turn: int, prompt: List[int]) -> List[int]:
        """Has one prompt answered in each way, and returns the reply."""
        stored = bool(self._prompts)  # the first prompt is only stored
        seconds, restored = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0)
        answers: List[Answer] = []
        for way in WAYS if stored else (COMPUTED, FROM_DRAM):
            if way == FROM_DISK:
                self._restart()
                self._restarts += 1
            before = self._engine.loaded()
            answer = self._engine.answer(prompt, REPLY, restore=way != COMPUTED, store=way == FROM_DRAM)
            self._disk[way] += self._engine.loaded() - before
            answers.append(answer)
            if way == COMPUTED or stored:
                seconds[way], restored[way] = answer.seconds, answer.restored
            self._told(user, turn, way)
        computed = answers[0]
        self._compared += len(answers) - 1
        self._different += sum((a.tokens, a.logits) != (computed.tokens, computed.logits) for a in answers[1:])
        self._prompts.append({"user": user, "turn": turn, "tokens": len(prompt), "first_token_seconds": seconds, "restored_tokens": restored})
        return computed.tokens

    def _summary(self, of: Callable[[Dict[str, Any]], bool]) -> Dict[str, Any]:
        """Of some prompts: means of tokens, medians of times, and of how many times sooner
        than computed the first token was there."""
        prompts = [p for p in self._prompts if of(p)]
        times = [p["first_token_seconds"] for p in prompts]
        return {
            "prompts": len(prompts),
            "tokens": statistics.fmean(p["tokens"] for p in prompts),
            "restored_tokens": statistics.fmean(p["restored_tokens"][FROM_DRAM] for p in prompts),
            "first_token_seconds": {way: _median([t[way] for t in times if t[way]]) for way in WAYS},
            "times_sooner": {way: _median([t[COMPUTED] / t[way] for t in times if t[way]]) for way in WAYS},
        }


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
