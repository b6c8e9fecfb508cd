"""Whether the Python client takes frames of the daemon, for comparison with the
other clients: `python3 -m tests.decode` reads frames, each behind its length of 4
bytes, and prints "accepted" or "refused" for each."""

import sys

from kvstored import _wire as wire
from kvstored._wire import HEADER, PUSH, REPLY, Op
from kvstored.client import _batch_reply

_PUSHES = {Op.PREFETCH: wire.job_push, Op.RESERVE: wire.fill_push, Op.EVENTS: wire.events_push}
_REPLIES = {op: getattr(wire, f"{op.name.lower()}_reply") for op in Op}
_REPLIES[Op.BATCH] = _batch_reply


def accepted(frame: bytes) -> bool:
    if len(frame) < HEADER.size:
        return False
    length, kind, op, code, _ = HEADER.unpack_from(frame)
    body = frame[HEADER.size :]
    if length != len(body) or length % 8:
        return False
    known = {REPLY: _REPLIES, PUSH: _PUSHES}.get(kind, {})
    read = (lambda data: wire.read_error(data, 0, len(data))) if kind == REPLY and code else known.get(op)
    try:
        if read is not None:
            read(body)
    except wire.Malformed:
        return False
    return read is not None


if __name__ == "__main__":
    while head := sys.stdin.buffer.read(4):
        print("accepted" if accepted(sys.stdin.buffer.read(int.from_bytes(head, "little"))) else "refused")
