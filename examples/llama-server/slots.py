"""Shows how llama-server shares prompts through kvstored, by its calls that save and
restore a slot.

    llama-server -m model.gguf --slot-save-path /dev/shm/slots --slots
    PYTHONPATH=clients/python/src python3 examples/llama-server/slots.py \\
        --server http://127.0.0.1:8080 --folder /dev/shm/slots --model model.gguf "Once upon a time"

Before a prompt the longest stored state is put into a slot, afterwards the slot's
state is stored. A state is that of a whole slot, a file which llama-server writes
and reads in its folder; put that in memory. It is stored in pieces, under the hash
of its leading tokens, and found by every start of it.

It was run against a stand-in that a script drives, not against a llama-server. Of
models with windows or recurrent layers the server computes a restored prompt anew
(its issues 25913, 28194): the program says how much was in the cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import struct
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import kvstored
from kvstored.llamacpp import files

CHUNK_TOKENS = 256  # states are found by this many tokens, or a multiple
PIECE_BYTES = 16 << 20
MOST_PIECES = 4096  # of one state
FAILURES = (OSError, ValueError, kvstored.Error)  # of the server, of what it says, of the daemon


class Slots:
    """The slots of one llama-server, which runs on this machine."""

    def __init__(self, kv: kvstored.Client, server: str, folder: str, model: Sequence[str], settings: str = "") -> None:
        """``model``: all its files; ``settings``: whatever else changes what a state
        says or how it is written (version, types of the cache, adapters and scales)."""
        digests = [files.digest(files.find(path)) for path in model]
        self.space = kvstored.Space(
            model="llama-server",
            dtype="slot",
            revision=hashlib.sha256("".join(digests).encode()).hexdigest(),
            chunk_tokens=CHUNK_TOKENS,
            method="given:llama-server",
            tags=(("settings", settings),) if settings else (),
        )
        self._kv, self._server, self._folder = kv, server.rstrip("/"), Path(folder)

    def complete(self, text: str, slot: int = 0, **options: Any) -> Dict[str, Any]:
        """The server's answer to a prompt. Whatever fails in restoring or storing, it
        answers: then it computes all of the prompt."""
        tokens = self._ask("/tokenize", {"content": text, "add_special": True})["tokens"]
        try:
            self.restore(tokens, slot)
        except FAILURES as e:
            print(f"not restored: {e}", file=sys.stderr)
        request = {"prompt": tokens, "id_slot": slot, "cache_prompt": True, "return_tokens": True, **options}
        answer = self._ask("/completion", request)
        try:
            self.store(tokens + answer.get("tokens", []), slot)
        except FAILURES as e:
            print(f"not stored: {e}", file=sys.stderr)
        return answer

    def restore(self, tokens: Sequence[int], slot: int) -> int:
        """Puts the longest stored state of a prompt's start into a slot; of how many
        tokens it is at least."""
        for count, start in reversed(list(ends(tokens))):
            name = self._state_of(start)
            if name is None:
                continue
            file = self._folder / f"{uuid.uuid4()}.bin"
            try:
                if self._read(name, file):
                    self._ask(f"/slots/{slot}?action=restore", {"filename": file.name})
                    return count
            finally:
                file.unlink(missing_ok=True)
        return 0

    def store(self, tokens: Sequence[int], slot: int) -> bool:
        """Stores the state of a slot that holds these tokens, but for the last."""
        found = list(ends(tokens[:-1]))
        if not found:
            return False
        name = found[-1][1]
        if self._state_of(name) == name:
            return True
        file = self._folder / f"{uuid.uuid4()}.bin"
        try:
            self._ask(f"/slots/{slot}?action=save", {"filename": file.name})
            if not self._write(name, file):
                return False
        finally:
            file.unlink(missing_ok=True)
        for _, start in found:
            if self._state_of(start) is None:
                self._kv.delete(self._mark(start))  # of a state that is gone
                self._kv.put(self._mark(start), [name])
        return True

    # ---- which state a prompt's start is in ----------------------------------

    def _mark(self, start: bytes) -> kvstored.Prompt:
        """Where the name of a state stands that begins with these tokens."""
        return kvstored.hashes(start[:16], [CHUNK_TOKENS], alone=True, space=self.space)

    def _state_of(self, start: bytes) -> Optional[bytes]:
        """The name of a state that begins with these tokens, if one is there."""
        marks = self._kv.get(self._mark(start))
        if not marks or not self._kv.lookup(self._pieces(marks[0].payload, 1)).total.chunks:
            return None
        return marks[0].payload

    # ---- states in pieces ----------------------------------------------------

    def _pieces(self, name: bytes, count: int) -> kvstored.Prompt:
        """The pieces of a state. Each follows the one before."""
        raw = b"".join(hashlib.sha256(name + struct.pack("<I", i)).digest()[:16] for i in range(count))
        return kvstored.hashes(raw, [CHUNK_TOKENS] * count, space=self.space)

    def _write(self, name: bytes, file: Path) -> bool:
        """Stores a file. Its last piece is shorter than the others, or empty but for a
        mark: a reader knows by it that nothing is missing."""
        with open(file, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as state:
            sizes = [PIECE_BYTES] * (len(state) // PIECE_BYTES) + [len(state) % PIECE_BYTES + 1]
            if len(sizes) > MOST_PIECES:
                return False

            def write(i: int, memory: memoryview) -> None:
                part = state[i * PIECE_BYTES : (i + 1) * PIECE_BYTES]
                memory[: len(part)] = part
                if len(memory) > len(part):
                    memory[len(part)] = 0

            return len(self._kv.store(self._pieces(name, len(sizes)), sizes, write)) == len(sizes)

    def _read(self, name: bytes, file: Path) -> bool:
        """Writes a stored state to a file; whether all of it was there."""
        pieces, first = self._pieces(name, MOST_PIECES), 0
        with open(file, "wb") as f:
            while chunks := self._kv.get(pieces, first=first, max_bytes=64 << 20):
                first += len(chunks)
                for payload, _, _ in chunks:
                    if len(payload) != PIECE_BYTES:
                        f.write(payload[:-1])
                        return True
                    f.write(payload)
        return False

    def _ask(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        request = urllib.request.Request(self._server + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)


def ends(tokens: Sequence[int]) -> Iterator[Tuple[int, bytes]]:
    """How many leading tokens states are found by, and the names of these."""
    total = hashlib.sha256()
    for end in range(CHUNK_TOKENS, len(tokens) + 1, CHUNK_TOKENS):
        total.update(struct.pack(f"<{CHUNK_TOKENS}I", *tokens[end - CHUNK_TOKENS : end]))
        yield end, total.digest()


def main(arguments: List[str]) -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("--server", default="http://127.0.0.1:8080")
    parse.add_argument("--folder", required=True, help="the server's --slot-save-path")
    parse.add_argument("--model", action="append", required=True, help="a file of the model; all of them")
    parse.add_argument("--settings", default="", help="version of llama-server, types of the cache, adapters")
    parse.add_argument("--slot", type=int, default=0)
    parse.add_argument("prompt")
    a = parse.parse_args(arguments)
    with kvstored.Client() as kv:
        kv.wait_attached(1)
        answer = Slots(kv, a.server, a.folder, a.model, a.settings).complete(a.prompt, a.slot, n_predict=64)
    cached = answer.get("timings", {}).get("cache_n", "?")
    print(f"{answer['content']}\n{cached} tokens were in the cache", file=sys.stdout)


if __name__ == "__main__":
    os.umask(0o077)  # a state says what was asked
    main(sys.argv[1:])
