"""What users write is checked once, where it is used, and what is wrong is said."""

from __future__ import annotations

import json
import math
import re
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import kvstored
import kvstored.lmcache
import kvstored.lmcache_l2
import kvstored.sglang
import kvstored.vllm
from kvstored.sglang import KvstoredHiCache
from kvstored.vllm import KvstoredTier

from . import engines
from .daemon import ROOT
from .vllm_tier import view

DOCS = Path(ROOT, "docs/engines.md").read_text()
ABSENT = "/nonexistent/s"
SECONDS: List[Any] = ["0.5", True, None, 0, -1, math.nan, math.inf, 1e9, 10**400, [1]]
TEXT: List[Any] = [None, 1, True, ["a"], "\u00e4" * 513]
FLAG: List[Any] = ["false", "true", 0, 1, None]
NUMBER: List[Any] = ["256", -1, 1.5, True, None, 1 << 40]
RATE: List[Any] = [-1, 1 << 32, "8000", True, None]
DEPTH: List[Any] = [0, -30000, "30k", 1.5, True, 10**9 + 1]
CHOICE: List[Any] = ["local", "", None, 1, ["LOCAL"]]
TABLE: List[Any] = ["{}", "EMABackpressureDetector", 1, True, [{}]]
SOCKET: List[Any] = ["", 5, b"/s", "/" + "s" * 107]


def tier(**keys: Any) -> Any:
    return KvstoredTier(vllm_config=engines.vllm_config(), primary_kv_view=view(), **{"socket": ABSENT, **keys})


def pages(**keys: Any) -> Any:
    return KvstoredHiCache(SimpleNamespace(model_name="m", extra_config={"socket": ABSENT, **keys}))


def client(**options: Any) -> Any:
    return kvstored.Client(**{"socket": ABSENT, **options})


def documented(heading: str) -> Dict[str, str]:
    """The table of keys of an engine, with the defaults."""
    section = DOCS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = section.partition("| key | default | |\n|---|---|---|\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.M))


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

    def test_client(self) -> None:
        size: List[Any] = ["1MiB", -1, 1.5, True, None, 1 << 63]
        self.refused(
            client,
            [
                ("timeout", SECONDS),
                ("name", TEXT),
                ("inline", FLAG),
                ("socket", SOCKET),
                ("staging_bytes", size),
                ("space", ["llama", ("llama", "bf16")]),
            ],
        )
        client(timeout=1, staging_bytes=1 << 20, name="x", inline=True).close()

    def test_the_documented_keys(self) -> None:
        """And their defaults, where they are the classes' own."""
        classes = ("vLLM", kvstored.vllm.KEYS), ("SGLang", kvstored.sglang.KEYS), ("LMCache", kvstored.lmcache.KEYS)
        for heading, keys in classes:
            told = documented(heading)
            self.assertEqual(set(told), set(keys) - {"module_path"})
            for key, default in told.items():
                if isinstance(keys[key].default, (bool, float)):
                    self.assertEqual(json.loads(default), keys[key].default, key)

    def test_the_documented_keys_of_the_l2_adapter(self) -> None:
        own = {"chunk_tokens", "lock_seconds", "groups"}
        self.assertEqual(set(kvstored.lmcache_l2.KEYS) - own, set(kvstored.lmcache.KEYS) - {"pin_seconds", "pending_bytes"})
        section = DOCS.partition("\n### In the multi-process server\n")[2].partition("\n### ")[0]
        told = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.M))
        self.assertEqual({k: json.loads(v.replace("none", "null")) for k, v in told.items()}, {k: kvstored.lmcache_l2.KEYS[k].default for k in own})
        (line,) = re.findall(r"--l2-adapter '(\{\"type\": \"plugin\".*)'", DOCS)
        given = json.loads(line)
        self.assertTrue(hasattr(kvstored.lmcache_l2, given["class_name"]))
        kvstored.lmcache_l2.KvstoredL2Adapter({**given["adapter_params"], "socket": ABSENT}).close()

    def test_the_documented_lines(self) -> None:
        (given,) = engines.documented()["secondary_tiers"]
        self.assertEqual(given.pop("type"), KvstoredTier.get_tier_type())
        tier(**given).shutdown()
        line = re.search(r"--hicache-storage-backend-extra-config '(.*)'", DOCS)
        assert line is not None
        pages(**json.loads(line[1])).close()


if __name__ == "__main__":
    unittest.main()
