"""KvstoredTier is made as every form of vLLM makes it, with every key of the
user's and of vLLM's; a mistake of the user's is one clear error."""

import unittest
from types import SimpleNamespace
from typing import Any

from . import contracts, engines
from .contracts import Form
from .daemon import enter
from .test_vllm_steps import FORMS, MODULES
from .vllm_manager import Manager

ROWS, SIZE = 4, 4096
LINE = {"type": "KvstoredTier", "module_path": "kvstored.vllm", "socket": "/nonexistent/s"}
EVERY = dict(
    lookup_timeout=1, transfer_timeout=2.5, verify=False, model="m", revision="r", namespace="n",
    enable_kv_events=True, locality="REMOTE", backpressure={"backpressure_cls": "EMABackpressureDetector"},
)  # fmt: skip


class Starts(unittest.TestCase):
    def make(self, form: Form, **more: Any) -> Any:
        """The tier, as the form's factory makes it of a line of the configuration."""
        modules = enter(self, form.installed(*MODULES))
        line = {**LINE, **more}
        manager = Manager(form, modules[0].KvstoredTier, line, engines.spec_of(form, line), ROWS, SIZE)
        self.addCleanup(manager.shutdown)
        return manager.tier

    def test_with_every_key(self) -> None:
        for form in FORMS:
            with self.subTest(repr(form)):
                self.make(form)
                tier = self.make(form, **EVERY)
                localities, media = form.stand_in("Locality"), form.stand_in("Medium")
                self.assertEqual((tier.locality, tier.medium), (localities.REMOTE, media.STORAGE))
                self.assertEqual(tier.tier_type, "KvstoredTier")
                self.assertIsNotNone(tier.bp_detector)
                self.assertIsNone(self.make(form).bp_detector)

    def test_what_a_newer_vllm_hands_over(self) -> None:
        """A keyword that its base class takes goes there; another is said once, and no more."""
        newest = FORMS[-1].data
        path = "vllm.v1.kv_offload.tiering.base.SecondaryTierManager"
        call = newest["calls"]["construct"][0].replace("**config", "admission=spec, io_uring=True, **config")
        init = newest["classes"][path]["methods"]["__init__"].replace("=None)", "=None, admission=None)")
        patch = {
            "name": "next",
            "classes": {path: {"methods": {"__init__": init}, "sets": {"admission": "admission"}}},
            "calls": {"construct": [call]},
        }
        form = Form("vllm", contracts._patched(newest, patch))
        with self.assertLogs("kvstored.vllm", "INFO") as logged:
            tier = self.make(form)
        self.assertIsNotNone(tier.admission)
        self.assertEqual(len([line for line in logged.output if "io_uring" in line]), 1, logged.output)
        self.assertFalse([line for line in logged.output if "admission" in line])
        with self.assertRaisesRegex(ValueError, "knows no 'io_urings'"):
            self.make(form, io_urings=True)

    def test_events_need_vllms_own(self) -> None:
        form = FORMS[-1]
        modules = enter(self, form.installed(*MODULES))
        line = {**LINE, "enable_kv_events": True}
        spec = engines.spec_of(form, line)
        spec.kv_events_config = SimpleNamespace(enable_kv_cache_events=False)
        with self.assertLogs("kvstored.vllm", "WARNING") as logged:
            manager = Manager(form, modules[0].KvstoredTier, line, spec, ROWS, SIZE)
        self.addCleanup(manager.shutdown)
        self.assertIn("KV cache events are off", " ".join(logged.output))
        manager.tier._events.stored(b"s", [b"k"])
        self.assertEqual(list(manager.tier.take_events()), [])
