"""An engine that answers prompts, as ``kvstored demo --engine`` runs it: llama.cpp
with a model of random weights, and a daemon that may restart between two prompts.

It writes one JSON object that says what it is, then reads a question a line and
writes an answer a line, until its input ends:

    {"prompt": [5, 6, 7], "reply": 16, "restarted": false, "restore": true, "store": true}

``restarted``: the daemon was, since the last question.
``restore``: what is stored of the prompt is put into the empty context, and only the
rest is computed. ``store``: what is missing of the prompt is stored afterwards.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import threading
import time
from typing import Any, Dict, List, Sequence

import kvstored
from kvstored.llama import Engine, PrefixCache

from . import library, model
from .context import Context, Model, greedy

_ATTACH_SECONDS = 30  # for a daemon that was restarted
_CALL_SECONDS = 60  # no restore is cut short, on a busy machine either


class Chat:
    """One context, emptied before each prompt."""

    def __init__(self, folder: str, socket: str, context: int, chunk: int, threads: int) -> None:
        self._functions = functions = library.library()
        self._path = model.make(os.path.join(folder, "random.gguf"), model.SMALL)
        params = functions.llama_context_default_params()
        # A batch is a chunk, so that a prompt is computed in the same batches whatever
        # of it was restored: logits depend on them in their last bits.
        params.n_ctx, params.n_batch, params.n_ubatch = context, chunk, chunk
        params.n_threads = params.n_threads_batch = threads
        self._model = Model(functions, self._path)
        self._context = Context(functions, self._model, params)
        self._kv = kvstored.Client(socket, timeout=_CALL_SECONDS)
        self._connections = threading.Semaphore(0)  # those that were made and not waited for
        self._kv.on_attach(lambda _: self._connections.release())
        self._attach()
        engine = Engine(functions, self._context.ctx, params, [self._path])
        self._cache = PrefixCache(self._kv, engine, chunk_tokens=chunk)

    def greeting(self) -> Dict[str, Any]:
        return {
            "library": f"llama.cpp {self._functions.__version__}",
            "model_bytes": os.path.getsize(self._path),
            "vocabulary": self._model.vocab,
        }

    def _attach(self) -> None:
        """Waits for a further connection. To a client that has not read the end of the
        last one yet that one looks alive, and what is asked there is a miss."""
        if not self._connections.acquire(timeout=_ATTACH_SECONDS) or not self._kv.wait_attached(_ATTACH_SECONDS):
            raise TimeoutError(f"there was no connection to the daemon within {_ATTACH_SECONDS} s")

    def answer(self, prompt: List[int], reply: int, restarted: bool, restore: bool, store: bool) -> Dict[str, Any]:
        context = self._context
        context.kv_cache_clear()
        if restarted:
            self._attach()
        begun = time.perf_counter()
        restored = self._cache.restore(prompt) if restore else 0
        self._compute(prompt, restored)
        logits = [context.logits()]
        tokens = [greedy(logits[0])]
        first = time.perf_counter() - begun
        for at in range(len(prompt), len(prompt) + reply - 1):
            context.decode(tokens[-1:], at)
            logits.append(context.logits())
            tokens.append(greedy(logits[-1]))
        return {
            "restored": restored,
            "stored": self._cache.store(prompt) if store else 0,
            "first_token_seconds": first,
            "tokens": tokens,
            "logits": hashlib.sha256(b"".join(logits)).hexdigest(),
        }

    def _compute(self, prompt: Sequence[int], first: int) -> None:
        """Decodes what the context does not hold, in batches that end where chunks do."""
        while first < len(prompt):
            end = min(len(prompt), self._cache.next_end(first))
            self._context.decode(prompt[first:end], first)
            first = end


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--folder", required=True, help="where the model is made")
    parse.add_argument("--socket", required=True, help="the daemon's")
    parse.add_argument("--context", type=int, required=True, help="tokens")
    parse.add_argument("--chunk", type=int, required=True, help="tokens")
    parse.add_argument("--threads", type=int, default=1)
    args = parse.parse_args()
    try:
        chat = Chat(args.folder, args.socket, args.context, args.chunk, args.threads)
        print(json.dumps(chat.greeting()), flush=True)
        for line in sys.stdin:
            print(json.dumps(chat.answer(**json.loads(line))), flush=True)
    except (library.Missing, library.WrongSum, kvstored.Error, OSError, RuntimeError, ValueError) as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
