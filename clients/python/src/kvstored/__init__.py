"""kvstored from Python: KV-cache blocks of LLM prompts, read where they lie.

    import kvstored

    ids, size = list(range(1024)), 64 << 10  # four chunks of 256 tokens
    space = kvstored.Space(model="llama-3-8b", dtype="bf16")
    with kvstored.Client(space=space) as kv:
        prompt = kvstored.tokens(ids)
        with kv.prefetch(prompt) as job:
            job.wait(timeout=0.5)
            mine = [bytes(block) for block in job]  # a memoryview each
        have = len(mine) if job.good else 0
        with kv.reserve(prompt, first=have, size=size) as fill:
            for slot in fill:
                slot.memory[:] = bytes([have + slot.index]) * size

Whatever goes wrong, the answer is a shorter prefix: recompute what is not there.
A chunk that is missed has those behind it missed too. The calls of a :class:`Client`:

get, get_into, put: copies of payloads, proved; the simplest way
prefetch, batch: a :class:`Job`, payloads where they lie; warm: to DRAM, and no more
reserve: a :class:`Fill`, memory to write to; store: that for prompts longer than DRAM
lookup, lookups, stats, ping, space_id: what is there
pin, unpin, hint: what is to stay; delete, delete_hashes, delete_space, flush

The packages vllm, sglang, lmcache and llamacpp have the classes of the engines.
"""

# pyright: strict, reportPrivateUsage=false

from ._version import __version__ as __version__
from .answers import (
    Advice, Chunk, Count, Fault, Flushed, Grant, Grouped, Hinted, Match, Missing, Need, Reason, Ref, Result, State, Stored,
)  # fmt: skip
from .client import DEFAULT_SOCKET, Client, default_socket
from .errors import Code, DeadlineExceeded, Disconnected, Error, ProtocolError, Refused, Retry
from .fill import Fill, GrantedSlot, Slot
from .job import ALL, Job
from .memory import Mapping, checksum
from .prompt import Prompt, Space, hashes, tokens
from .views import as_numpy, as_torch

__all__ = [
    "ALL", "Advice", "DEFAULT_SOCKET", "Chunk", "Client", "Code", "Count", "DeadlineExceeded", "Disconnected", "Error",
    "Fault", "Fill", "Flushed", "Grant", "GrantedSlot", "Grouped", "Hinted", "Job", "Mapping", "Match", "Missing", "Need", "Prompt",
    "ProtocolError", "Reason", "Ref", "Refused", "Result", "Retry", "Slot", "Space", "State", "Stored", "as_numpy", "as_torch", "checksum", "default_socket",
    "hashes", "tokens",
]  # fmt: skip
