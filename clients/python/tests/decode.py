"""Whether the Python client takes frames of the daemon, for comparison with the
other clients: `python3 -m tests.decode` reads frames, each behind its length of 4
bytes, and prints "accepted" or "refused" for each."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict

from kvstored import vllm_follow, wire
from kvstored.wire import HEADER, PUSH, REPLY, Op

_REPLIES: Dict[int, Callable[[bytes], Any]] = {
    Op.HELLO: wire.hello_reply,
    Op.OPEN_SPACE: wire.open_space_reply,
    Op.LOOKUP: wire.lookup_reply,
    Op.PREFETCH: wire.prefetch_reply,
    Op.WAIT: wire.job_state,
    Op.CANCEL: wire.cancel_reply,
    Op.RESERVE: wire.reserve_reply,
    Op.COMMIT: wire.store_reply,
    Op.ABORT: wire.plain_reply,
    Op.PUT: wire.store_reply,
    Op.GET: wire.get_reply,
    Op.RELEASE: wire.release_reply,
    Op.RENEW: wire.renew_reply,
    Op.PIN: wire.pin_reply,
    Op.UNPIN: wire.number_reply,
    Op.DELETE: wire.number_reply,
    Op.FLUSH: wire.flush_reply,
    Op.STATS: wire.stats_reply,
    Op.PING: wire.plain_reply,
    Op.WARM: wire.warm_reply,
    Op.BATCH: wire.batch_reply,
    Op.HINT: wire.hint_reply,
    Op.EVENTS: wire.number_reply,
}
_PUSHES: Dict[int, Callable[[bytes], Any]] = {
    Op.PREFETCH: wire.job_state,
    Op.RESERVE: wire.fill_push,
    Op.EVENTS: vllm_follow.push,
}


def accepted(frame: bytes) -> bool:
    if len(frame) < HEADER.size:
        return False
    length, kind, op, code, _ = HEADER.unpack_from(frame)
    body = frame[HEADER.size :]
    if length != len(body) or length % 8:
        return False
    known = {REPLY: _REPLIES, PUSH: _PUSHES}.get(kind, {})
    read = wire.error_reply if kind == REPLY and code else known.get(op)
    try:
        if read is not None:
            read(body)
    except wire.Malformed:
        return False
    return read is not None


if __name__ == "__main__":
    while head := sys.stdin.buffer.read(4):
        print("accepted" if accepted(sys.stdin.buffer.read(int.from_bytes(head, "little"))) else "refused")
