"""Which page follows which, from what SGLang passes with its calls.

With ``hicache_storage_pass_prefix_keys`` most calls for keys and values have the
pages before theirs; an empty list is that of a prompt that begins here, or of a
later batch of one that does. The calls for the pools beside have nothing, so what
the others said is remembered.
"""

import json
import logging
import threading
from typing import Any, List, Optional, Sequence, Tuple

from ..chains import Chains, digests
from .space import get

log = logging.getLogger("kvstored.sglang")

FLAG = "hicache_storage_pass_prefix_keys"
_BATCH = 128  # pages of one call of SGLang's, where it has more of a prompt
_PATIENCE = 64  # calls without a page before theirs, until that is said


class Order:
    """The chains of one back end. Safe for threads."""

    def __init__(self, passes: bool) -> None:
        """``passes``: the configuration says that SGLang passes prefixes."""
        self._chains = Chains()
        self._passed = passes
        self._calls = 0  # without a prefix; counted without a lock, as it need not be exact
        self._thread = threading.local()  # .query, .set: the last page of a whole batch without a prefix

    def said(self, kind: str, keys: Sequence[bytes], extra_info: Any) -> List[bytes]:
        """Takes note of what a call says, and returns the digests of its pages. The
        calls of one ``kind`` on one thread go on with one prompt after another."""
        run, prefix = digests(keys), _prefix(extra_info)
        if not run:
            return run
        if prefix:
            self._passed = True
            self._chains.learn([*digests([k.encode() for k in prefix]), *run], begins=True)
            return run
        last: Optional[bytes] = getattr(self._thread, kind, None)
        setattr(self._thread, kind, None)
        if extra_info is None or self._chains.knows(run[0]):
            self._chains.learn(run, begins=False)
        elif last is not None:
            self._chains.learn([last, *run], begins=False)
        else:
            self._chains.learn(run, begins=True)
        self._miss(extra_info)
        return run

    def went_on(self, kind: str, run: Sequence[bytes], whole: bool, extra_info: Any) -> None:
        """After a call: the next of its kind may be the next batch of the same prompt,
        if all of this one was there or stored."""
        if whole and run and len(run) % _BATCH == 0 and not _prefix(extra_info):
            setattr(self._thread, kind, run[-1])

    def before(self, run: Sequence[bytes]) -> Optional[List[bytes]]:
        """The chain before pages; None: each stands alone."""
        return self._chains.before(run)

    def _miss(self, extra_info: Any) -> None:
        if self._passed or extra_info is None:
            return
        self._calls += 1
        if self._calls == _PATIENCE:
            log.warning(
                "kvstored: SGLang has passed no prefix_keys in %d calls, so the order of its pages is not known: "
                'add "%s": true to --hicache-storage-backend-extra-config, unless it is there',
                _PATIENCE,
                FLAG,
            )


def _prefix(extra_info: Any) -> Sequence[str]:
    prefix = get(extra_info, "prefix_keys", None)
    return prefix if isinstance(prefix, (list, tuple)) and all(isinstance(k, str) for k in prefix) else ()


def hints(extra_info: Any) -> Tuple[Tuple[str, str], ...]:
    """The request configs of the daemon for what SGLang says of the request: its
    envelope of KV hints, in versions that have one."""
    extra = get(extra_info, "extra_info", None)
    envelope = extra.get("kv_hints") if isinstance(extra, dict) else None
    if not envelope:
        return ()
    return (("kv_hints", envelope if isinstance(envelope, str) else json.dumps(envelope)),)
