"""Tiny models with weights of their own, the same each time, and a tokenizer of the words
w4, w5, ...: models.py FOLDER makes each of MODELS in a folder of its name, "gemma", half of
whose layers have a window, "lfm", half of whose layers have a state,
"swapped", the first with two layers swapped, and "adapter-1" and
"adapter-2", of LoRA for the first."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Dict, Sequence

import torch
from safetensors.torch import save_file

VOCABULARY = 2048
#: Layers, hidden size, heads of queries and of keys, and the seed of the weights. The KV of
#: a token takes 4 KiB in the first model, 1.5 in the second; the third is the first with
#: other weights.
MODELS = {"llama": (4, 256, 4, 2, 7), "narrow": (3, 128, 2, 1, 11), "other": (4, 256, 4, 2, 8)}


WINDOW = 256  # tokens
RANK = 8
_KINDS = ["sliding_attention", "sliding_attention", "full_attention"] * 2


class Random:
    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, std: float = 0.12) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator) * std


def make(folder: Path, layers: int, hidden: int, heads: int, kv_heads: int, seed: int, order: Sequence[int] = ()) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    size, inner, random = hidden // heads, 2 * hidden, Random(seed)
    write(
        folder / "config.json",
        architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=VOCABULARY, hidden_size=hidden,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=size,
        intermediate_size=inner, max_position_embeddings=32768, rms_norm_eps=1e-5, rope_theta=10000.0,
        hidden_act="silu", tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        torch_dtype="float32", attention_bias=False, mlp_bias=False,
    )  # fmt: skip
    weights: Dict[str, torch.Tensor] = {
        "model.embed_tokens.weight": random(VOCABULARY, hidden, std=1.0),
        "lm_head.weight": random(VOCABULARY, hidden, std=0.08),
        "model.norm.weight": torch.ones(hidden),
    }
    for i in order or range(layers):
        norms = {"input_layernorm": torch.ones(hidden), "post_attention_layernorm": torch.ones(hidden)}
        weights |= named(i, norms | matrices(random, hidden, heads * size, kv_heads * size, inner))
    save(weights, folder / "model.safetensors")
    tokenizer(folder)


def make_gemma(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    hidden, heads, kv_heads, size, inner, random = 128, 2, 1, 64, 256, Random(12)
    write(
        folder / "config.json",
        architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", vocab_size=VOCABULARY, hidden_size=hidden,
        num_hidden_layers=len(_KINDS), num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=size,
        intermediate_size=inner, max_position_embeddings=32768, rms_norm_eps=1e-6, query_pre_attn_scalar=size,
        hidden_activation="gelu_pytorch_tanh", sliding_window=WINDOW, layer_types=_KINDS, tie_word_embeddings=True,
        rope_parameters={kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in set(_KINDS)},
        bos_token_id=1, eos_token_id=2, pad_token_id=0, torch_dtype="float32", attention_bias=False,
    )  # fmt: skip
    weights = {"model.embed_tokens.weight": random(VOCABULARY, hidden), "model.norm.weight": torch.zeros(hidden)}
    for i in range(len(_KINDS)):
        norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
        heads_norms = {"self_attn.q_norm": torch.zeros(size), "self_attn.k_norm": torch.zeros(size)}
        weights |= named(i, dict.fromkeys(norms, torch.zeros(hidden)) | heads_norms | matrices(random, hidden, heads * size, kv_heads * size, inner))
    save({name: weight.clone() for name, weight in weights.items()}, folder / "model.safetensors")
    tokenizer(folder)


def make_lfm(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    hidden, heads, kv_heads, inner, random, kinds = 128, 2, 1, 256, Random(13), ["conv", "full_attention"] * 2
    size = hidden // heads
    write(
        folder / "config.json",
        architectures=["Lfm2ForCausalLM"], model_type="lfm2", vocab_size=VOCABULARY, hidden_size=hidden, block_dim=hidden,
        conv_dim=hidden, conv_L_cache=3, conv_bias=False, num_hidden_layers=len(kinds), num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=inner, block_auto_adjust_ff_dim=False, max_position_embeddings=32768,
        norm_eps=1e-5, layer_types=kinds, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, torch_dtype="float32",
    )  # fmt: skip
    weights = {"model.embed_tokens.weight": random(VOCABULARY, hidden), "model.embedding_norm.weight": torch.ones(hidden)}
    for i, kind in enumerate(kinds):
        layer = {"operator_norm": torch.ones(hidden), "ffn_norm": torch.ones(hidden)}
        layer |= {f"feed_forward.w{n}": random(*((hidden, inner) if n == 2 else (inner, hidden))) for n in (1, 2, 3)}
        if kind == "conv":
            layer |= {"conv.conv": random(hidden, 1, 3, std=0.5), "conv.in_proj": random(3 * hidden, hidden), "conv.out_proj": random(hidden, hidden)}
        else:
            shapes = {"q_proj": (hidden, hidden), "k_proj": (kv_heads * size, hidden), "v_proj": (kv_heads * size, hidden), "out_proj": (hidden, hidden)}
            layer |= {f"self_attn.{name}": random(*shape) for name, shape in shapes.items()}
            layer |= {f"self_attn.{name}_layernorm": torch.ones(size) for name in ("q", "k")}
        weights |= named(i, layer)
    save(weights, folder / "model.safetensors")
    tokenizer(folder)


def make_adapter(folder: Path, seed: int) -> None:
    layers, hidden, heads, kv_heads, _ = MODELS["llama"]
    folder.mkdir(parents=True, exist_ok=True)
    random, outputs = Random(seed), {"q_proj": hidden, "v_proj": hidden // heads * kv_heads}
    write(folder / "adapter_config.json", peft_type="LORA", task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, bias="none", target_modules=list(outputs))
    weights: Dict[str, torch.Tensor] = {}
    for i in range(layers):
        for name, width in outputs.items():
            at = f"base_model.model.model.layers.{i}.self_attn.{name}"
            weights |= {f"{at}.lora_A.weight": random(RANK, hidden), f"{at}.lora_B.weight": random(width, RANK)}
    save(weights, folder / "adapter_model.safetensors")


def matrices(random: Random, hidden: int, queries: int, keys: int, inner: int) -> Dict[str, torch.Tensor]:
    return {
        "self_attn.q_proj": random(queries, hidden),
        "self_attn.k_proj": random(keys, hidden),
        "self_attn.v_proj": random(keys, hidden),
        "self_attn.o_proj": random(hidden, queries),
        "mlp.gate_proj": random(inner, hidden),
        "mlp.up_proj": random(inner, hidden),
        "mlp.down_proj": random(hidden, inner),
    }


def named(layer: int, weights: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    return {f"model.layers.{layer}.{name}.weight": weight for name, weight in weights.items()}


def tokenizer(folder: Path) -> None:
    special = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    write(
        folder / "tokenizer.json",
        version="1.0", truncation=None, padding=None, normalizer=None, post_processor=None, decoder=None,
        added_tokens=[{"id": i, "content": text, "special": True, **flags} for text, i in special.items()],
        pre_tokenizer={"type": "WhitespaceSplit"},
        model={"type": "WordLevel", "vocab": special | {f"w{i}": i for i in range(4, VOCABULARY)}, "unk_token": "<unk>"},
    )  # fmt: skip
    tokens = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), special))
    write(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", model_max_length=32768, **tokens)


def save(weights: Dict[str, torch.Tensor], path: Path) -> None:
    """Whole at once: another test may be reading what is there."""
    made = path.with_suffix(f".{os.getpid()}")
    save_file(weights, made, metadata={"format": "pt"})
    made.replace(path)


def write(path: Path, **fields: object) -> None:
    made = path.with_suffix(f".{os.getpid()}")
    made.write_text(json.dumps(fields))
    made.replace(path)


if __name__ == "__main__":
    for name, form in MODELS.items():
        make(Path(sys.argv[1], name), *form)
    make(Path(sys.argv[1], "swapped"), *MODELS["llama"], order=(0, 2, 1, 3))
    make_gemma(Path(sys.argv[1], "gemma"))
    make_lfm(Path(sys.argv[1], "lfm"))
    for number in (1, 2):
        make_adapter(Path(sys.argv[1], f"adapter-{number}"), 20 + number)
