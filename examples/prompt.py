"""Shows how an engine uses kvstored from Python: it loads the stored prefix of a
prompt, computes the chunks behind it, and stores those.

    PYTHONPATH=clients/python/src KVSTORED_SOCKET=/run/kvstored/kvstored.sock python3 examples/prompt.py

The KV of a chunk is made up from its tokens, so that each loaded byte can be
compared. The folder prompt, beside this file, has the same in Go.
"""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

import kvstored

CHUNK_TOKENS = 256
CHUNK_BYTES = 64 << 10  # of KV; a real model has megabytes

# Everything beside the tokens that the bytes of a chunk depend on. An engine with
# another model, dtype or layout must name another space.
SPACE = kvstored.Space(model="example-model", dtype="uint8/example", chunk_tokens=CHUNK_TOKENS)


def compute(tokens: np.ndarray, i: int) -> np.ndarray:
    """Stands for the prefill of chunk i."""
    chunk = tokens[i * CHUNK_TOKENS : (i + 1) * CHUNK_TOKENS].astype(np.uint32)
    rows = np.arange(CHUNK_BYTES // CHUNK_TOKENS, dtype=np.uint32)
    return (rows[:, None] + chunk[None, :]).astype(np.uint8)


def load(kv: kvstored.Client, tokens: np.ndarray) -> List[np.ndarray]:
    """Copies the stored prefix of a prompt. Where anything is missing, late or
    broken that is a shorter prefix; there is nothing to catch."""
    with kv.prefetch(kvstored.tokens(tokens.tolist())) as job:
        job.wait(timeout=5)
        shape = (CHUNK_BYTES // CHUNK_TOKENS, CHUNK_TOKENS)
        chunks = [kvstored.as_numpy(block, np.uint8, shape).copy() for block in job]
    return chunks if job.good else []  # good: the lease held until here


def store(kv: kvstored.Client, tokens: np.ndarray, chunks: List[np.ndarray], first: int) -> None:
    """Stores the chunks from first on. A chunk that is not stored is computed
    again, so results are not looked at."""
    prompt, size = kvstored.tokens(tokens.tolist()), CHUNK_BYTES
    if first == len(chunks):
        return
    with kv.reserve(prompt, first=first, size=size) as fill:  # commits at the end
        for slot in fill:
            kvstored.as_numpy(slot.memory, np.uint8)[:] = chunks[first + slot.index].ravel()


def run(n: int = 1024) -> Tuple[int, int]:
    """One request of an engine."""
    tokens = (np.arange(n, dtype=np.uint64) ** 2 % 2**32).astype(np.uint32)
    with kvstored.Client(space=SPACE) as kv:
        chunks = load(kv, tokens)
        loaded = len(chunks)
        for i, chunk in enumerate(chunks):  # an engine trusts them; the daemon verifies checksums
            if not np.array_equal(chunk, compute(tokens, i)):
                raise RuntimeError(f"chunk {i} has other bytes than were stored")
        chunks += [compute(tokens, i) for i in range(loaded, n // CHUNK_TOKENS)]
        store(kv, tokens, chunks, loaded)
    return loaded, len(chunks) - loaded


if __name__ == "__main__":
    print("%d chunks loaded, %d computed and stored" % run())
