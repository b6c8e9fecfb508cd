"""What users write is checked once, where it is used, and what is wrong is said."""

import importlib
import json
import math
import re
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import kvstored
import kvstored.lmcache.backend
import kvstored.sglang
import kvstored.sglang.linker
import kvstored.vllm
import kvstored.vllm.pool
from kvstored.lmcache import KvstoredBackend
from kvstored.sglang import KvstoredHiCache
from kvstored.vllm import KvstoredTier

from . import engines
from .daemon import ROOT
from .lmcache_engine import l2
from .vllm_tier import view

DOCS = Path(ROOT, "docs/engines")
ABSENT = "/nonexistent/s"
SECONDS: List[Any] = ["0.5", True, None, 0, -1, math.nan, math.inf, 1e9, 10**400, [1]]
TEXT: List[Any] = [None, 1, True, ["a"], "\u00e4" * 513]
FLAG: List[Any] = ["false", "true", 0, 1, None]
NUMBER: List[Any] = ["256", -1, 1.5, True, None, 1 << 40]
RATE: List[Any] = [-1, 1 << 32, "8000", True, None]
DEPTH: List[Any] = [0, -30000, "30k", 1.5, True, 10**9 + 1]
CHOICE: List[Any] = ["local", "", None, 1, ["LOCAL"]]
TABLE: List[Any] = ["{}", "EMABackpressureDetector", 1, True, [{}]]
SIZE: List[Any] = ["1MiB", -1, 1.5, True, None, 1 << 63]
SOCKET: List[Any] = ["", 5, b"/s", "/" + "s" * 107]


def tier(**keys: Any) -> Any:
    return KvstoredTier(SimpleNamespace(config=engines.offloading_config()), primary_kv_view=view(), **{"socket": ABSENT, **keys})


def pages(**keys: Any) -> Any:
    return KvstoredHiCache(SimpleNamespace(model_name="m", extra_config={"socket": ABSENT, **keys}))


def backend(**keys: Any) -> Any:
    extra = {f"kvstored.{key}": value for key, value in {"socket": ABSENT, **keys}.items()}
    return KvstoredBackend(config=SimpleNamespace(chunk_size=256, extra_config=extra))


def adapter(**keys: Any) -> Any:
    return l2.KvstoredL2Adapter({"socket": ABSENT, **keys})


def client(**options: Any) -> Any:
    return kvstored.Client(**{"socket": ABSENT, **options})


def table(page: str, heading: str) -> Dict[str, str]:
    """The first table of keys below a heading, with the defaults."""
    section = Path(DOCS, page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = section.partition("| key | default | |\n|---|---|---|\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", rows, re.M))


class Options(unittest.TestCase):
    def refused(self, make: Any, wrong: List[Tuple[str, List[Any]]]) -> None:
        for key, values in wrong:
            for value in values:
                with self.subTest(key, value=value), self.assertRaises(ValueError) as caught:
                    make(**{key: value}).close()
                said = str(caught.exception)
                self.assertIn(f"{key!r} is {value!r}: it must be ", said)

    def test_vllm(self) -> None:
        seconds, text = ("lookup_timeout", "transfer_timeout"), ("model", "revision", "namespace", "module_path")
        wrong = [(k, SECONDS) for k in seconds] + [(k, TEXT) for k in text] + [("verify", FLAG), ("socket", SOCKET)]
        wrong += [("check_existing", NUMBER), ("enable_kv_events", FLAG), ("locality", CHOICE), ("backpressure", TABLE)]
        wrong += [("prefill_tokens_per_second", ["8000", -1, None, True, 1 << 32, "measure"]), ("prefill_depth", DEPTH)]
        wrong += [("groups", ["full", ["windows 128"], [128], {}, ["window"]])]
        self.assertEqual({k for k, _ in wrong}, set(kvstored.vllm.KEYS))
        self.refused(tier, wrong)
        with self.assertRaisesRegex(ValueError, "KvstoredTier knows no 'lookup_timout' .* lookup_timeout, "):
            tier(lookup_timout=1)
        tier(lookup_timeout=1, transfer_timeout=0.1, verify=False, socket=None).shutdown()

    def test_sglang(self) -> None:
        wrong = [(k, TEXT) for k in ("model", "revision", "namespace")]
        wrong += [("timeout", SECONDS), ("verify", FLAG), ("check_existing", NUMBER), ("socket", SOCKET)]
        wrong += [("prefill_tokens_per_second", RATE), ("prefill_depth", DEPTH)]
        self.assertEqual({k for k, _ in wrong}, set(kvstored.sglang.KEYS))
        self.refused(pages, wrong)
        for key in ("time_out", "sockets", "Namespace", "lookup_timeout", "secondary_tiers"):
            with self.subTest(key), self.assertRaisesRegex(ValueError, f"KvstoredHiCache knows no '{key}' .* timeout, "):
                pages(**{key: 1})
        sglangs = dict(prefetch_timeout_base=1, prefetch_threshold=1, hicache_storage_pass_prefix_keys=True, tp_lcm_size=8)
        pages(timeout=1, socket=None, **sglangs).close()

    def test_lmcache(self) -> None:
        common = [(k, TEXT) for k in ("revision", "namespace")] + [(k, SECONDS) for k in ("lookup_timeout", "transfer_timeout")]
        common += [("verify", FLAG), ("check_existing", NUMBER), ("socket", SOCKET), ("prefill_tokens_per_second", RATE), ("prefill_depth", DEPTH)]
        for make, keys, own in (
            (backend, kvstored.lmcache.backend.KEYS, [("pin_seconds", SECONDS), ("pending_bytes", SIZE)]),
            (adapter, l2.KEYS, [("lock_seconds", SECONDS), ("chunk_tokens", [0, -1, 1 << 17, "256", 1.5, True]), ("groups", ["full", [], [5]])]),
        ):
            self.assertEqual({k for k, _ in [*common, *own]}, set(keys))
            self.refused(make, [*common, *own])
            with self.assertRaisesRegex(ValueError, "Kvstored.* knows no 'sockets' .* socket, "):
                make(sockets="/s")

    def test_client(self) -> None:
        self.refused(
            client,
            [
                ("timeout", SECONDS),
                ("name", TEXT),
                ("inline", FLAG),
                ("socket", SOCKET),
                ("staging_bytes", SIZE),
                ("space", ["llama", ("llama", "bf16")]),
            ],
        )
        client(timeout=1, staging_bytes=1 << 20, name="x", inline=True).close()

    def test_the_documented_keys(self) -> None:
        """And their defaults, where they are the classes' own."""
        common = table("README.md", "Common keys")
        proved = {key: default for key, default in common.items() if key != "verify"}  # whatever is said
        for page, heading, shared, keys in (
            ("vllm.md", "The pool", proved, kvstored.vllm.pool.KEYS),
            ("vllm.md", "The tier", common, kvstored.vllm.KEYS),
            ("sglang.md", "HiCache", common, kvstored.sglang.KEYS),
            ("sglang.md", "The linker", proved, kvstored.sglang.linker.KEYS),
            ("lmcache.md", "The multi-process server", common, l2.KEYS),
            ("lmcache.md", "In the engine's process", common, kvstored.lmcache.backend.KEYS),
        ):
            with self.subTest(page, heading=heading):
                told = {**shared, **table(page, heading)}
                self.assertEqual(set(told), set(keys) - {"module_path"})
                for key, default in told.items():
                    if isinstance(keys[key].default, (bool, int, float)):
                        self.assertEqual(json.loads(default), keys[key].default, key)

    def test_the_documented_lines(self) -> None:
        pool = engines.given("KvstoredConnector")
        self.assertTrue(hasattr(importlib.import_module(pool["kv_connector_module_path"]), pool["kv_connector"]))
        spec = pool["kv_connector_extra_config"]
        self.assertTrue(hasattr(importlib.import_module(spec["spec_module_path"]), spec["spec_name"]))
        (line,) = re.findall(r"--unified-cache-external-linker-config '(.*)'", Path(DOCS, "sglang.md").read_text())
        linker = json.loads(line)
        self.assertTrue(hasattr(importlib.import_module(linker["linker_module_path"]), linker["linker"]))
        yaml = Path(DOCS, "lmcache.md").read_text()
        plugin_at = dict(re.findall(r"^  storage_plugin\.kvstored\.(module_path|class_name): (\S+)$", yaml, re.M))
        self.assertTrue(hasattr(importlib.import_module(plugin_at["module_path"]), plugin_at["class_name"]))
        (given,) = engines.documented()["secondary_tiers"]
        self.assertEqual(given.pop("type"), KvstoredTier.get_tier_type())
        tier(**given).shutdown()
        (line,) = re.findall(r"--hicache-storage-backend-extra-config '(.*)'", Path(DOCS, "sglang.md").read_text())
        pages(**json.loads(line)).close()
        (line,) = re.findall(r"--l2-adapter '(\{\"type\": \"plugin\".*)'", Path(DOCS, "lmcache.md").read_text())
        plugin = json.loads(line)
        self.assertTrue(hasattr(l2, plugin["class_name"]))
        l2.KvstoredL2Adapter({**plugin["adapter_params"], "socket": ABSENT}).close()
