"""A stand-in for llama-cpp-python's ``Llama``, over llama.cpp's own library; its
``_ctx`` is one for that package's context. What they do with it (prefix match,
removal, batches, the calls of a cache) is what version 0.3.35 does; what they leave
out is text."""

import ctypes
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Sequence

from llamacpp import library
from llamacpp.context import Context, Model, greedy


class Ids(list):
    """Token ids, as an array of numpy has them where those classes do."""

    def tolist(self) -> List[int]:
        return list(self)


class State:
    """llama-cpp-python's LlamaState."""

    def __init__(self, input_ids: Ids, n_tokens: int, llama_state: bytes) -> None:
        self.input_ids, self.n_tokens, self.llama_state = input_ids, n_tokens, llama_state
        self.llama_state_size = len(llama_state)


class Llama:
    """llama-cpp-python's Llama, as far as a cache of it goes. It samples the
    token of the largest logit. ``decoded`` are the batches it computed."""

    def __init__(
        self,
        model_path: str,
        n_ctx: int = 4096,
        n_batch: int = 512,
        n_threads: int = 2,
        lora_path: Optional[str] = None,
        lora_scale: float = 1.0,
        kv_overrides: Optional[Dict[str, Any]] = None,
        **params: Any,
    ) -> None:
        self.functions = functions = library.library()
        self.model_path, self.lora_path, self.lora_scale, self.kv_overrides = model_path, lora_path, lora_scale, kv_overrides
        self.context_params = functions.llama_context_default_params()
        self.context_params.n_ctx, self.context_params.n_batch, self.context_params.n_ubatch = n_ctx, n_batch, n_batch
        self.context_params.n_threads = self.context_params.n_threads_batch = n_threads
        for name, value in params.items():
            setattr(self.context_params, name, value)
        self.model_params = SimpleNamespace(use_mmap=True, n_gpu_layers=0)  # what the library does unasked
        self.n_batch = n_batch
        self._model = Model(functions, model_path)
        self._ctx = Context(functions, self._model, self.context_params)
        self._lora: Any = None
        if lora_path:
            self._set_lora(lora_path, lora_scale)
        self.input_ids = Ids([0] * n_ctx)
        self.n_tokens = 0
        self.cache: Any = None
        self.chat_handler: Any = None
        self._logits_all = False
        self._requires_eval = True
        self.decoded: List[List[int]] = []

    def _set_lora(self, path: str, scale: float) -> None:
        self._lora = self.functions.llama_adapter_lora_init(self._model.model, path.encode())
        if not self._lora:
            raise RuntimeError(f"{path} was not loaded")
        adapters, scales = (ctypes.c_void_p * 1)(self._lora), (ctypes.c_float * 1)(scale)
        if self.functions.llama_set_adapters_lora(self._ctx.ctx, adapters, 1, scales):
            raise RuntimeError(f"{path} was not set")

    @property
    def _input_ids(self) -> Ids:
        return Ids(self.input_ids[: self.n_tokens])

    @property
    def ctx(self) -> Any:
        return self._ctx.ctx

    def set_cache(self, cache: Any) -> None:
        self.cache = cache

    def reset(self) -> None:
        self.n_tokens, self._requires_eval = 0, True

    def eval(self, tokens: Sequence[int]) -> None:
        self._ctx.kv_cache_seq_rm(-1, self.n_tokens, -1)
        for i in range(0, len(tokens), self.n_batch):
            batch = list(tokens[i : i + self.n_batch])
            self._ctx.decode(batch, self.n_tokens)
            self.decoded.append(batch)
            self.input_ids[self.n_tokens : self.n_tokens + len(batch)] = batch
            self.n_tokens += len(batch)
            self._requires_eval = False

    def generate(self, prompt: Sequence[int]) -> Iterator[int]:
        tokens, reset = list(prompt), True
        if self.n_tokens:
            same = prefix(self._input_ids, tokens)
            if same == len(tokens) == self.n_tokens and not self._requires_eval:
                reset, tokens, reuse = False, [], 0
            else:
                reuse = same - 1 if same == len(tokens) else same
            if reuse > 0 and self._ctx.kv_cache_seq_rm(-1, reuse, -1):
                reset, tokens, self.n_tokens, self._requires_eval = False, tokens[reuse:], reuse, True
        if reset:
            self.reset()
        while True:
            self.eval(tokens)
            token = greedy(self._ctx.logits())
            yield token
            tokens = [token]

    def complete(self, prompt: Sequence[int], count: int) -> List[int]:
        """``count`` tokens that follow a prompt; the calls of a cache are those of
        create_completion."""
        if self.cache:
            try:
                item = self.cache[list(prompt)]
                if prefix(item.input_ids.tolist(), prompt) > prefix(self._input_ids.tolist(), prompt):
                    self.load_state(item)
            except KeyError:
                pass
        out: List[int] = []
        for token in self.generate(prompt):
            out.append(token)
            if len(out) == count:
                break
        if self.cache:
            self.cache[list(prompt) + out] = self.save_state()
        return out

    def save_state(self) -> State:
        size = self.functions.llama_state_get_size(self.ctx)
        room = (ctypes.c_uint8 * size)()
        n = self.functions.llama_state_get_data(self.ctx, room, size)
        return State(Ids(self.input_ids), self.n_tokens, bytes(room)[:n])

    def load_state(self, state: State) -> None:
        self.input_ids, self.n_tokens, self._requires_eval = Ids(state.input_ids), state.n_tokens, True
        raw = (ctypes.c_uint8 * state.llama_state_size).from_buffer_copy(state.llama_state)
        if self.functions.llama_state_set_data(self.ctx, raw, state.llama_state_size) != state.llama_state_size:
            raise RuntimeError("the state was not set")

    def close(self) -> None:
        self._ctx.close()
        if self._lora:
            self.functions.llama_adapter_lora_free(self._lora)
            self._lora = None
        self._model.close()

    def __enter__(self) -> "Llama":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two prompts share from the first on."""
    n = 0
    for x, y in zip(a, b):
        if x != y:
            break
        n += 1
    return n
