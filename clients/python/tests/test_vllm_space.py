"""Which engines share blocks, and what is said of their hashes."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kvstored.vllm_space import fingerprint

from . import engines
from .engines import offloading_config, vllm_config
from .vllm_engine import ROW


class Spaces(unittest.TestCase):
    def test_engines_that_differ_share_nothing(self) -> None:
        def normalized(**other: Any) -> Any:
            return SimpleNamespace(config=offloading_config(**other))

        chunks = dict(tokens_per_hash=16, blocks_per_chunk=2)
        group = dict(tokens_per_block=16, layer_names=("layer.0",))
        spaces = [
            fingerprint(vllm_config(), ROW),
            fingerprint(vllm_config(block_size=32), ROW),
            fingerprint(vllm_config(cache_dtype="fp8"), ROW),
            fingerprint(vllm_config(prefix_caching_hash_algo="xxhash"), ROW),
            fingerprint(vllm_config(), ROW + 1),
            fingerprint(vllm_config(), ROW, namespace="other"),
            fingerprint(vllm_config(), ROW, revision="other"),
            fingerprint(SimpleNamespace(vllm_config=vllm_config(), blocks_per_chunk=2), ROW),
            fingerprint(normalized(), ROW),
            fingerprint(normalized(), ROW + 1),
            fingerprint(normalized(), ROW, revision="other"),
            fingerprint(normalized(model=lambda make: make("OffloadingModelConfig", name="llama", dtype="fp8")), ROW),
            fingerprint(normalized(parallel=lambda make: engines.parallel(make, tp=4)), ROW),
            fingerprint(normalized(groups=lambda make: (make("OffloadingGroupConfig", **group),)), ROW),
            fingerprint(normalized(cache=lambda make: make("OffloadingCacheConfig", **chunks)), ROW),
        ]
        self.assertEqual(len(set(spaces)), len(spaces))
        self.assertEqual(fingerprint(normalized(), ROW), fingerprint(normalized(engine_id="restarted"), ROW))
        self.assertEqual({s.model for s in spaces}, {"llama"})
        with self.assertRaises(ValueError):
            fingerprint(SimpleNamespace(), ROW)

    def test_what_changes_the_bytes_is_part_of_the_space(self) -> None:
        class Backend(enum.Enum):
            FLASH = "a.b.Flash"
            TRITON = "a.b.Triton"

        def whole(part: str = "", **fields: Any) -> Any:
            config = vllm_config()
            config.attention_config = SimpleNamespace(backend=None, backend_per_kind={})
            for name, value in fields.items():
                setattr(getattr(config, part), name, value)
            return fingerprint(config, ROW)

        def override(config: Any) -> Any:
            return config

        versions = [mock.patch.dict("sys.modules", vllm=SimpleNamespace(__version__=v)) for v in ("1.0", "1.1")]
        environment = mock.patch.dict(os.environ, VLLM_ATTENTION_BACKEND="FLASH")
        with environment:
            spaces = [whole(), fingerprint(SimpleNamespace(config=offloading_config()), ROW)]
        for version in versions:
            with version:
                spaces += [whole(), fingerprint(SimpleNamespace(config=offloading_config()), ROW)]
        told = SimpleNamespace(**{**vars(offloading_config()), "kv_cache_layout": "LBHNC"})
        spaces += [
            fingerprint(SimpleNamespace(config=offloading_config()), ROW),
            fingerprint(SimpleNamespace(config=told), ROW),
            whole(),
            whole("model_config", quantization="fp8"),
            whole("model_config", quantization="awq"),
            whole("model_config", quantization_config={"linear": "fp8"}),
            whole("model_config", hf_overrides={"rope_theta": 1}),
            whole("model_config", hf_overrides={"rope_theta": 2}),
            whole("model_config", hf_overrides=override),
            whole("attention_config", backend=Backend.TRITON),
            whole("attention_config", backend_per_kind={"mla": Backend.FLASH}),
        ]
        self.assertEqual(len(set(spaces)), len(spaces))
        self.assertEqual(spaces[0], whole("attention_config", backend=Backend.FLASH))  # said in another way
        self.assertEqual(whole(), whole("model_config", hf_overrides={}))
        one, other = {"a": object(), "b": [1, {"x": 1, "y": 2}]}, {"b": [1, {"y": 2, "x": 1}], "a": object()}
        self.assertEqual(whole("model_config", hf_overrides=one), whole("model_config", hf_overrides=other))

    def test_a_restart_does_not_change_the_space(self) -> None:
        program = (
            "import enum; from tests.engines import vllm_config; from kvstored.vllm_space import fingerprint\n"
            "Kind = enum.Enum('Kind', 'A B')\n"
            "def f(config): return config\n"
            "c = vllm_config(); c.model_config.hf_overrides = {'f': f, 'o': object(), 's': {'a', 'b', 'c'}, 'k': Kind.A}\n"
            "print(fingerprint(c, 1))"
        )
        seen = set()
        for seed in "123":
            run = [sys.executable, "-B", "-c", program]
            ran = subprocess.run(run, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            seen.add(ran.stdout)
        self.assertEqual(len(seen), 1, seen)

    def test_canonical_formats(self) -> None:
        """As each vLLM names them, and by its version where none is named."""
        path = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping"

        def tag(module: Any, version: str = "1.0", **config: Any) -> str:
            there = mock.patch.dict("sys.modules", {path: module, "vllm": SimpleNamespace(__version__=version)})
            with there:
                spec = SimpleNamespace(config=SimpleNamespace(**{**vars(offloading_config()), **config}))
                return dict(fingerprint(spec, ROW).tags).get("canonical", "")

        def raises() -> str:
            raise RuntimeError("there is no current config")

        asked = SimpleNamespace(canonical_format_id=lambda: "v1-nhd")
        told = SimpleNamespace(canonical_format_id=lambda kv_cache_layout: f"v2-{kv_cache_layout.lower()}")
        wanted = dict(canonical_layout=True)
        self.assertEqual(tag(asked), "")
        self.assertEqual(tag(asked, **wanted), "v1-nhd")
        self.assertEqual(tag(told, **wanted, kv_cache_layout="LBHNC"), "v2-lbhnc")
        self.assertEqual(tag(None, **wanted, canonical_format="v3"), "v3")
        with self.assertLogs("kvstored.vllm", "WARNING"):
            unnamed = [
                tag(module, version, **wanted)
                for version in ("1.0", "1.1")
                for module in (None, SimpleNamespace(), told, SimpleNamespace(canonical_format_id=raises))
            ]
        self.assertEqual(unnamed, ["of vLLM 1.0"] * 4 + ["of vLLM 1.1"] * 4)

    def test_what_is_wrong_with_the_hashes_is_said(self) -> None:
        random = SimpleNamespace()  # vLLM before August 2026
        fixed = SimpleNamespace(DEFAULT_NONE_HASH_SEED="vllm-none-hash")
        for utils, algorithm, seed, want in (
            (random, "sha256_cbor", "0", []),
            (random, "sha256_cbor", None, ["PYTHONHASHSEED"]),
            (random, "sha256", "0", []),
            (random, "builtin", "0", ["hash-algo"]),
            (random, "builtin", None, ["hash-algo", "PYTHONHASHSEED"]),
            (fixed, "sha256", None, []),
            (fixed, "sha256_cbor", None, []),
            (fixed, "xxhash", None, ["PYTHONHASHSEED"]),
            (fixed, "xxhash_cbor", "0", []),
            (fixed, "", None, []),  # it does not say
            (random, "", None, ["PYTHONHASHSEED"]),
        ):
            others = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
            env = others if seed is None else {**others, "PYTHONHASHSEED": seed}
            config = vllm_config(prefix_caching_hash_algo=algorithm) if algorithm else offloading_config()
            spec = SimpleNamespace(**{"vllm_config" if algorithm else "config": config})
            there = mock.patch.dict("sys.modules", {"vllm.v1.core.kv_cache_utils": utils})
            with there, mock.patch.dict(os.environ, env, clear=True), mock.patch("kvstored.vllm_space.log.warning") as said:
                fingerprint(spec, ROW)
            text = " ".join(str(arg) for call in said.call_args_list for arg in call.args)
            self.assertEqual([w for w in ("hash-algo", "PYTHONHASHSEED") if w in text], want, text)


if __name__ == "__main__":
    unittest.main()
