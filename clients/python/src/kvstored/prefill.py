"""How fast an engine computes prompts, as far as its calls show it.

A tier is asked for a prompt before it is computed, and given the chunks that were
missing afterwards. So they were computed in the time between: an engine that
waited meanwhile computes faster, never slower, unless it had them itself. The
median of the last prompts is told, once there are some; what it errs by makes more
be loaded, not less.
"""

import collections
import time
from typing import Any, Callable, Deque, Iterable, NamedTuple, Optional, Sequence, Tuple, Union

#: Instead of tokens a second: as measured.
MEASURED = "measured"

_DEPTH = "prefill_depth"  # of the request configs
_LEAST_TOKENS = 2048  # of a prompt that says something
_LEAST_PROMPTS = 8
_PROMPTS = 32  # that count
_WAITING = 1024  # prompts that are asked for and not stored yet
_SECONDS = 300.0  # after which one is not waited for
_FASTEST = 10_000_000  # tokens a second; more is no computing


class Said(NamedTuple):
    """What an engine says with a question of a prompt."""

    #: Tokens a second that it computes: more than is worth loading is not found.
    prefill_rate: int = 0
    #: Its request configs that are hints: see docs/protocol-more.md.
    configs: Sequence[Tuple[str, str]] = ()


class Prefill:
    """The prompt tokens that an engine computes a second, and how much longer deep ones
    take. Safe for threads."""

    def __init__(
        self, rate: Union[int, float, str], depth: Optional[int] = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``rate``: as the user says it, 0 for not known, or ``MEASURED``. ``depth``: into a
        prompt, in tokens, at which one takes twice as long as the first; None for not known."""
        self._given = None if rate == MEASURED else int(rate)
        self._configs = () if depth is None else ((_DEPTH, str(depth)),)
        self._clock = clock
        # Each operation on them is atomic. By its last chunk: since when, and how many tokens.
        self._waiting: "collections.OrderedDict[Any, Tuple[float, int]]" = collections.OrderedDict()
        self._rates: Deque[float] = collections.deque(maxlen=_PROMPTS)

    @property
    def rate(self) -> int:
        """Tokens a second; 0: not known."""
        if self._given is not None:
            return self._given
        rates = sorted(self._rates)
        middle = len(rates) // 2
        return round((rates[middle] + rates[~middle]) / 2) if len(rates) >= _LEAST_PROMPTS else 0

    def says(self, configs: Sequence[Tuple[str, str]] = ()) -> Said:
        """The rate, and the configs of a request with the depth, unless they have their own."""
        if self._configs and not any(name == _DEPTH for name, _ in configs):
            configs = (*self._configs, *configs)
        return Said(self.rate, configs)

    def asked(self, last: Any, missing: int) -> None:
        """So many tokens are missing, up to the end of a prompt's last whole chunk. The
        first question for it counts."""
        if self._given is None and missing >= _LEAST_TOKENS and last not in self._waiting:
            self._waiting[last] = self._clock(), missing
            while len(self._waiting) > _WAITING:
                self._forget()

    def stored(self, keys: Iterable[Any]) -> None:
        """The engine hands over chunks."""
        if not self._waiting:
            return
        now = self._clock()
        for key in keys:
            since, tokens = self._waiting.pop(key, (now, 0))
            if since < now <= since + _SECONDS and tokens <= _FASTEST * (now - since):
                self._rates.append(tokens / (now - since))

    def _forget(self) -> None:
        try:
            self._waiting.popitem(last=False)
        except KeyError:
            pass  # another thread was faster
