"""Which engines share blocks."""

import os
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kvstored.vllm.space import fingerprint

from . import engines
from .engines import offloading_config
from .vllm_engine import ROW


class Spaces(unittest.TestCase):
    def test_engines_that_differ_share_nothing(self) -> None:
        def normalized(**other: Any) -> Any:
            return SimpleNamespace(config=offloading_config(**other))

        chunks = dict(tokens_per_hash=16, blocks_per_chunk=2)
        group = dict(tokens_per_block=16, layer_names=("layer.0",), group_id=0)
        spaces = [
            fingerprint(normalized(), ROW),
            fingerprint(normalized(), ROW + 1),
            fingerprint(normalized(), ROW, revision="other"),
            fingerprint(normalized(), ROW, namespace="other"),
            fingerprint(normalized(model=lambda make: make("OffloadingModelConfig", name="llama", dtype="fp8")), ROW),
            fingerprint(normalized(parallel=lambda make: engines.parallel(make, tp=4)), ROW),
            fingerprint(normalized(groups=lambda make: (make("OffloadingGroupConfig", **group),)), ROW),
            fingerprint(normalized(cache=lambda make: make("OffloadingCacheConfig", **chunks)), ROW),
        ]
        self.assertEqual(len(set(spaces)), len(spaces))
        self.assertEqual(fingerprint(normalized(), ROW), fingerprint(normalized(engine_id="restarted"), ROW))
        self.assertEqual({s.model for s in spaces}, {"llama"})
        for older in (SimpleNamespace(), SimpleNamespace(config=None), SimpleNamespace(config=SimpleNamespace(model="llama"))):
            with self.assertRaisesRegex(ValueError, "use vLLM 0.30 or newer"):
                fingerprint(older, ROW)
        unnamed = normalized(model=lambda make: make("OffloadingModelConfig", name="", dtype="bfloat16"))
        with self.assertRaisesRegex(ValueError, 'add "model"'):
            fingerprint(unnamed, ROW)
        self.assertEqual(fingerprint(unnamed, ROW, model="llama"), spaces[0])

    def test_what_changes_the_bytes_is_part_of_the_space(self) -> None:
        def space(**fields: Any) -> Any:
            return fingerprint(SimpleNamespace(config=SimpleNamespace(**{**vars(offloading_config()), **fields})), ROW)

        spaces = [space(), space(kv_cache_layout="LBHNC")]
        for name in ("VLLM_ATTENTION_BACKEND", "VLLM_KV_CACHE_LAYOUT"):
            with mock.patch.dict(os.environ, {name: "FLASH"}):
                spaces.append(space())
        for version in ("1.0", "1.1"):
            with mock.patch.dict("sys.modules", vllm=SimpleNamespace(__version__=version)):
                spaces.append(space())
        spaces.append(fingerprint(SimpleNamespace(config=offloading_config(), replicated_layout=True), ROW))
        self.assertEqual(len(set(spaces)), len(spaces))

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
