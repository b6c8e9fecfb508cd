"""Models with random weights in llama.cpp's file format (GGUF 3), made in a moment.

A model is its shape and a seed: equal ones are equal files, byte by byte. They
say nothing sensible, and compute what a trained model of their shape computes.
"""

from __future__ import annotations

import array
import random
import struct
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple, Union

_UINT32, _FLOAT32, _STRING, _ARRAY, _INT32 = 4, 6, 8, 9, 5
_ALIGN = 32
_POOL = 65521  # weights that all others are taken from: a prime, so that no two rows are alike


class Shape(NamedTuple):
    """Of a model. ``arch``: llama (full attention), gemma2 (every second layer
    sees a window) or mamba (recurrent)."""

    arch: str = "llama"
    width: int = 256
    layers: int = 4
    heads: int = 4
    heads_kv: int = 2
    inner: int = 512
    vocab: int = 512
    context: int = 16384
    window: int = 0


TINY = Shape(width=64, layers=2, heads=2, heads_kv=1, inner=128, vocab=320)  # 0.5 MB
SMALL = Shape()  # 10 MB
LARGE = Shape(width=768, layers=4, heads=12, heads_kv=4, inner=1664, vocab=2048)  # 100 MB
WINDOW = Shape("gemma2", width=64, layers=2, heads=2, heads_kv=1, inner=128, vocab=320, window=128)
RECURRENT = Shape("mamba", width=64, layers=2, vocab=320)

Tensor = Tuple[str, Tuple[int, ...]]
_STATE, _CONV = 16, 4  # of a recurrent layer: size of its state, tokens of its convolution


def make(path: Union[str, Path], shape: Shape, seed: int = 1) -> str:
    """Writes the model, and returns its path."""
    tensors = _tensors(shape)
    infos, offset = b"", 0
    for name, dims in tensors:
        infos += _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset)
        offset += _padded(4 * _count(dims))
    keys = _metadata(shape)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    rng = random.Random(seed)
    pool = array.array("f", (rng.gauss(0, 0.05) for _ in range(_POOL))).tobytes()
    with open(path, "wb") as out:
        out.write(head.ljust(_padded(len(head)), b"\0"))
        for name, dims in tensors:
            out.write(_weights(name, dims, pool, rng).ljust(_padded(4 * _count(dims)), b"\0"))
    return str(path)


def change_one_weight(path: Union[str, Path], to: Union[str, Path]) -> str:
    """A copy of a model in which one bit of the last tensor differs, the sign of
    its last weight but a few: metadata and size are the same."""
    raw = bytearray(Path(path).read_bytes())
    raw[-_ALIGN * 4 - 1] ^= 0x80  # little endian: the last byte of a weight has its sign
    Path(to).write_bytes(raw)
    return str(to)


def adapter(path: Union[str, Path], shape: Shape, seed: int = 1) -> str:
    """Writes a LoRA adapter of rank 4 for a llama model, and returns its path."""
    head = shape.width // shape.heads
    tensors: List[Tensor] = []
    for layer in range(shape.layers):
        name = f"blk.{layer}.attn_k.weight"
        tensors += [(f"{name}.lora_a", (shape.width, 4)), (f"{name}.lora_b", (4, shape.heads_kv * head))]
    infos, offset = b"", 0
    for name, dims in tensors:
        infos += _text(name) + struct.pack("<I2QIQ", 2, *dims, 0, offset)
        offset += _padded(4 * _count(dims))
    keys = [_key("general.architecture", shape.arch), _key("general.type", "adapter"),
            _key("adapter.type", "lora"), _key("adapter.lora.alpha", 4.0)]  # fmt: skip
    head_bytes = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    rng = random.Random(seed)
    with open(path, "wb") as out:
        out.write(head_bytes.ljust(_padded(len(head_bytes)), b"\0"))
        for _, dims in tensors:
            raw = array.array("f", (rng.gauss(0, 0.5) for _ in range(_count(dims)))).tobytes()
            out.write(raw.ljust(_padded(len(raw)), b"\0"))
    return str(path)


def _tensors(s: Shape) -> List[Tensor]:
    tensors: List[Tensor] = [("token_embd.weight", (s.width, s.vocab)), ("output_norm.weight", (s.width,))]
    if s.arch != "gemma2":  # its embedding is its output too
        tensors.append(("output.weight", (s.width, s.vocab)))
    layer = {"llama": _attention, "gemma2": _attention, "mamba": _recurrence}[s.arch]
    for i in range(s.layers):
        tensors += [(f"blk.{i}.{name}", dims) for name, dims in layer(s)]
    return tensors


def _attention(s: Shape) -> List[Tensor]:
    head = s.width // s.heads
    tensors: List[Tensor] = [
        ("attn_norm.weight", (s.width,)),
        ("attn_q.weight", (s.width, s.width)),
        ("attn_k.weight", (s.width, s.heads_kv * head)),
        ("attn_v.weight", (s.width, s.heads_kv * head)),
        ("attn_output.weight", (s.width, s.width)),
        ("ffn_norm.weight", (s.width,)),
        ("ffn_gate.weight", (s.width, s.inner)),
        ("ffn_up.weight", (s.width, s.inner)),
        ("ffn_down.weight", (s.inner, s.width)),
    ]
    if s.arch == "gemma2":
        tensors += [("post_attention_norm.weight", (s.width,)), ("post_ffw_norm.weight", (s.width,))]
    return tensors


def _recurrence(s: Shape) -> List[Tensor]:
    inner, rank = 2 * s.width, max(1, s.width // 16)
    return [
        ("attn_norm.weight", (s.width,)),
        ("ssm_in.weight", (s.width, 2 * inner)),
        ("ssm_conv1d.weight", (_CONV, inner)),
        ("ssm_conv1d.bias", (inner,)),
        ("ssm_x.weight", (inner, rank + 2 * _STATE)),
        ("ssm_dt.weight", (rank, inner)),
        ("ssm_dt.bias", (inner,)),
        ("ssm_a", (_STATE, inner)),
        ("ssm_d", (inner,)),
        ("ssm_out.weight", (inner, s.width)),
    ]


def _metadata(s: Shape) -> List[bytes]:
    a = s.arch
    values: Dict[str, Any] = {
        "general.architecture": a,
        "general.name": "random",
        "general.alignment": _ALIGN,
        "general.file_type": 0,
        f"{a}.context_length": s.context,
        f"{a}.embedding_length": s.width,
        f"{a}.block_count": s.layers,
        f"{a}.vocab_size": s.vocab,
        f"{a}.attention.layer_norm_rms_epsilon": 1e-5,
    }
    if a == "mamba":
        values.update({f"{a}.feed_forward_length": 0, f"{a}.attention.head_count": 0, f"{a}.ssm.conv_kernel": _CONV,
                       f"{a}.ssm.inner_size": 2 * s.width, f"{a}.ssm.state_size": _STATE,
                       f"{a}.ssm.time_step_rank": max(1, s.width // 16)})  # fmt: skip
    else:
        values.update({f"{a}.feed_forward_length": s.inner, f"{a}.attention.head_count": s.heads,
                       f"{a}.attention.head_count_kv": s.heads_kv, f"{a}.rope.dimension_count": s.width // s.heads})  # fmt: skip
    if s.window:
        values[f"{a}.attention.sliding_window"] = s.window
        values[f"{a}.attention.key_length"] = values[f"{a}.attention.value_length"] = s.width // s.heads
    bytewise = [f"<0x{i:02X}>" for i in range(256)]
    names = ["<unk>", "<s>", "</s>", *bytewise, *(f"t{i}" for i in range(s.vocab - 259))]
    values["tokenizer.ggml.model"] = "llama"
    values["tokenizer.ggml.tokens"] = names
    values["tokenizer.ggml.scores"] = [0.0] * s.vocab
    values["tokenizer.ggml.token_type"] = [2, 3, 3] + [6] * 256 + [1] * (s.vocab - 259)
    values.update({"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0})
    return [_key(name, value) for name, value in values.items()]


def _weights(name: str, dims: Tuple[int, ...], pool: bytes, rng: random.Random) -> bytes:
    n = _count(dims)
    if name.endswith("norm.weight") or name.endswith("ssm_d"):
        return array.array("f", [1.0] * n).tobytes()
    if name.endswith("ssm_a"):
        return array.array("f", [-(1.0 + i % _STATE) for i in range(n)]).tobytes()
    at = 4 * rng.randrange(_POOL)
    return (pool * (4 * n // len(pool) + 2))[at : at + 4 * n]


def _count(dims: Tuple[int, ...]) -> int:
    n = 1
    for d in dims:
        n *= d
    return n


def _padded(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _key(name: str, value: Any) -> bytes:
    if isinstance(value, list):
        kind = {str: _STRING, float: _FLOAT32, int: _INT32}[type(value[0])]
        return _text(name) + struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(_scalar(kind, v) for v in value)
    kind = {str: _STRING, float: _FLOAT32, int: _UINT32}[type(value)]
    return _text(name) + struct.pack("<I", kind) + _scalar(kind, value)


def _scalar(kind: int, value: Any) -> bytes:
    return _text(value) if kind == _STRING else struct.pack({_FLOAT32: "<f", _INT32: "<i", _UINT32: "<I"}[kind], value)
