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
"""

from .aio import AsyncClient, AsyncFill, AsyncJob
from .client import DEFAULT_SOCKET, Chunk, Client, default_socket
from .errors import Code, DeadlineExceeded, Disconnected, Error, ProtocolError, Refused
from .fill import Fill, Grant, GrantedSlot, Result, Slot
from .glance import Polling, polling
from .job import ALL, Job, Reason, State
from .memory import Mapping, checksum
from .pieces import Piece
from .prompt import Prompt, hashes, tokens
from .views import as_numpy, as_torch
from .wire import Advice, Count, Fault, Flushed, Hinted, Match, Missing, Space, Stored
from .writer import Put, Writer

__version__ = "0.1.0"

__all__ = [
    "ALL", "Advice", "AsyncClient", "AsyncFill", "AsyncJob", "DEFAULT_SOCKET", "Chunk", "Client", "Code", "Count", "DeadlineExceeded", "Disconnected", "Error",
    "Fault", "Fill", "Flushed", "Grant",  "GrantedSlot", "Hinted", "Job", "Mapping", "Match", "Missing", "Piece", "Polling", "Prompt", "ProtocolError", "Put", "Reason", "Refused",
    "Result", "Slot", "Space", "State", "Stored", "Writer", "as_numpy", "as_torch", "checksum", "default_socket", "hashes", "polling", "tokens",
]  # fmt: skip
