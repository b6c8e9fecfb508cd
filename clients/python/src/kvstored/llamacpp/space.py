"""What must be equal for chunks of llama.cpp to be exchangeable."""

import ctypes
import hashlib
import json
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from .._wire import Buffer
from ..prompt import Space
from . import files
from .context import Sequences
from .files import File

#: Names of element types, by their numbers in ggml; others are told by number.
_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 20: "iq4_nl", 30: "bf16"}

#: Fields of llama_context_params that change what is in a chunk or how it is
#: written. Those that a version of llama.cpp does not have count as None.
_SETTINGS = (
    "rope_scaling_type",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_orig_ctx",
    "attention_type",
    "pooling_type",
    "flash_attn_type",
    "ctx_type",
    "embeddings",
    "swa_full",
    "n_rs_seq",
)


class Lora(NamedTuple):
    """An adapter that is at work, and how strongly."""

    path: str
    scale: float = 1.0


class ControlVector(NamedTuple):
    """What ``llama_set_adapter_cvec`` was given."""

    data: Buffer  # floats of 32 bits
    first_layer: int
    last_layer: int


class Engine(NamedTuple):
    """A context of llama.cpp, and all that was said when it was made. What is not
    said here, or is said wrongly, makes chunks shared that must not be."""

    functions: Any  # llama.cpp's, under their names: the module llama_cpp, for example
    ctx: Any
    params: Any  # the llama_context_params it was made with
    files: Sequence[str]  # of the model; of one that is split as llama.cpp does it, the first
    loras: Sequence[Lora] = ()
    control: Optional[ControlVector] = None
    overrides: Optional[Mapping[str, Any]] = None  # of the model's metadata
    library: str = ""  # which build of llama.cpp; functions.__version__ if empty
    mapped: bool = False  # whether files are mapped for certain: one that was replaced is always noticed then

    @classmethod
    def of(cls, llm: Any, functions: Any = None) -> "Engine":
        """That of llama-cpp-python's ``Llama``."""
        if functions is None:
            import llama_cpp as functions  # pyright: ignore[reportMissingImports]
        loras = [Lora(llm.lora_path, llm.lora_scale)] if llm.lora_path else []
        said = getattr(llm, "model_params", None)
        # What lies on another device need not stay mapped.
        mapped = bool(getattr(said, "use_mmap", False)) and not getattr(said, "n_gpu_layers", 1)
        mapped = mapped and not getattr(said, "use_direct_io", False)
        return cls(functions, llm.ctx, llm.context_params, [llm.model_path], loras, None, llm.kv_overrides, "", mapped)


class Fingerprint(NamedTuple):
    space: Space
    files: Tuple[File, ...]  # whose bytes are in it


def fingerprint(engine: Engine, sequences: Sequences, chunk_tokens: int, namespace: str = "", salt: str = "") -> Fingerprint:
    """The space of an engine's chunks. It reads all files of the model once; for
    large ones that takes a while (one to two seconds a GB)."""
    paths = [shard for path in engine.files for shard in files.shards(path)]
    if not paths:
        raise ValueError("an engine without files of its model: its chunks cannot be told from those of other models")
    library = engine.library or str(getattr(engine.functions, "__version__", ""))
    if not library:
        raise ValueError("say which build of llama.cpp this is, as library: what one build writes, another need not read")
    model, adapters = [files.find(p) for p in paths], [files.find(a.path) for a in engine.loras]
    for file in model:
        files.check_loaded(file, engine.mapped)
    digests = [files.digest(f) for f in model]
    loras = [(files.digest(f), ctypes.c_float(a.scale).value) for f, a in zip(adapters, engine.loras)]
    tags = {
        "library": library,
        "state": str(getattr(engine.functions, "LLAMA_STATE_SEQ_VERSION", "")),
        "form": "whole" if sequences.whole else "range",
        "buffers": str(sequences.buffers) if sequences.buffers > 1 else "",
        "settings": _canonical({name: getattr(engine.params, name, None) for name in _SETTINGS}),
        "rope": "long" if _beyond_training(engine, sequences) else "",
        "control": _control(engine.control),
        "overrides": _short({k: v for k, v in (engine.overrides or {}).items()}),
        "namespace": namespace,
    }
    space = Space(
        model=_text(engine.functions, sequences.model, "general.name") or "gguf",
        revision=digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest(),
        lora=_short(sorted(loras)),
        dtype=f"{_type(engine.params.type_k)}/{_type(engine.params.type_v)}",
        chunk_tokens=chunk_tokens,
        method="given:llama.cpp" if sequences.whole else "sha256",
        salt=salt,
        tags=tuple((name, value) for name, value in sorted(tags.items()) if value),
    )
    return Fingerprint(space, tuple(model + adapters))


def _beyond_training(engine: Engine, sequences: Sequences) -> bool:
    """Whether the context is longer than the one the model was first trained for:
    some models have other rope factors there."""
    f = engine.functions
    arch = _text(f, sequences.model, "general.architecture")
    key = f"{arch}.rope.scaling.original_context_length"
    said = str((engine.overrides or {}).get(key, "")) or _text(f, sequences.model, key)
    trained = int(said) if said.isdigit() else int(f.llama_model_n_ctx_train(sequences.model))
    return int(f.llama_n_ctx_seq(engine.ctx)) > trained


def _text(functions: Any, model: Any, key: str) -> str:
    """A value of the model's metadata; empty where there is none."""
    room = ctypes.create_string_buffer(1024)
    found = int(functions.llama_model_meta_val_str(model, key.encode(), room, len(room)))
    return "" if found < 0 else room.value.decode(errors="replace")


def _type(number: int) -> str:
    return _TYPES.get(int(number), str(int(number)))


def _control(vector: Optional[ControlVector]) -> str:
    if vector is None:
        return ""
    return f"{hashlib.sha256(vector.data).hexdigest()} {vector.first_layer}-{vector.last_layer}"


def _short(said: Any) -> str:
    """A hash of what was said; empty where nothing was."""
    return hashlib.sha256(_canonical(said).encode()).hexdigest() if said else ""


def _canonical(said: Any) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"), default=repr)


