"""A model and a context of llama.cpp, and batches of one sequence."""

from __future__ import annotations

import array
import ctypes
from typing import Any, Sequence


class Model:
    def __init__(self, functions: Any, path: str) -> None:
        self.functions = functions
        self.model = functions.llama_model_load_from_file(path.encode(), functions.llama_model_default_params())
        if not self.model:
            raise ValueError(f"{path} was not loaded")
        self.vocab = functions.llama_vocab_n_tokens(functions.llama_model_get_vocab(self.model))

    def close(self) -> None:
        if self.model:
            self.functions.llama_model_free(self.model)
            self.model = None


class Context:
    """One llama_context, and batches of one sequence."""

    def __init__(self, functions: Any, model: Model, params: Any) -> None:
        self.functions, self.model = functions, model
        self.ctx = functions.llama_init_from_model(model.model, params)
        if not self.ctx:
            raise ValueError("no context was made")
        self.memory = functions.llama_get_memory(self.ctx)
        self._room = params.n_batch
        self._batch = functions.llama_batch_init(self._room, 0, 1)

    def kv_cache_seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        return self.functions.llama_memory_seq_rm(self.memory, max(seq_id, 0), p0, p1)

    def kv_cache_clear(self) -> None:
        self.functions.llama_memory_clear(self.memory, True)

    def decode(self, tokens: Sequence[int], first: int, seq: int = 0) -> None:
        batch, last = self._batch, len(tokens) - 1
        if len(tokens) > self._room:
            raise ValueError(f"{len(tokens)} tokens in a batch of {self._room}")
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, first + i, 1, i == last
            batch.seq_id[i][0] = seq
        failed = self.functions.llama_decode(self.ctx, batch)
        if failed:
            raise RuntimeError(f"llama_decode returned {failed}")

    def logits(self) -> bytes:
        """Of the last token that was decoded: 32-bit floats."""
        size = 4 * self.model.vocab
        return ctypes.string_at(self.functions.llama_get_logits_ith(self.ctx, -1), size)

    def close(self) -> None:
        if self.ctx:
            self.functions.llama_batch_free(self._batch)
            self.functions.llama_free(self.ctx)
            self.ctx = None


def greedy(logits: bytes) -> int:
    values = array.array("f", logits)
    return max(range(len(values)), key=values.__getitem__)
