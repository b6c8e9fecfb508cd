"""The example of llama-server, against a stand-in of the server."""

import contextlib
import importlib.util
import io
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import kvstored

from .daemon import ROOT, Served, enter
from .llama_server import LlamaServer

PADDING = 40 << 20  # a state is of three pieces


def example() -> Any:
    spec = importlib.util.spec_from_file_location("slots", ROOT / "examples" / "llama-server" / "slots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Example(Served):
    dram = "512MiB"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        enter(self, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": f"{folder.name}/cache"}))
        self.folder = Path(folder.name, "slots")
        self.folder.mkdir()
        self.model = Path(folder.name, "model.gguf")
        self.model.write_bytes(os.urandom(64))  # no two tests share a state
        self.kv = enter(self, kvstored.Client(self.daemon.socket, timeout=60))
        self.assertTrue(self.kv.wait_attached(60))
        self.server = self.started()

    def started(self) -> LlamaServer:
        server = LlamaServer(str(self.folder), PADDING)
        self.enterContext(server) if hasattr(self, "enterContext") else self.addCleanup(server.__exit__, server.__enter__())
        return server

    def slots(self, server: LlamaServer, **options: Any) -> Any:
        return example().Slots(self.kv, server.url, str(self.folder), [str(self.model)], **options)

    def test_another_server_finds_it(self) -> None:
        text = "a prompt of some length, " * 40
        first = self.slots(self.server).complete(text)
        self.assertEqual(first["timings"]["cache_n"], 0)
        self.assertEqual(self.server.calls, ["tokenize", "completion", "save"])
        other = self.started()
        again = self.slots(other).complete(text)
        self.assertEqual(again["content"], first["content"])
        self.assertEqual(again["timings"]["cache_n"], len(text))  # all but the last of its tokens
        self.assertEqual(other.calls, ["tokenize", "restore", "completion"])
        self.assertEqual(self.slots(other).complete(text[:700] + "x" * 300, slot=3)["timings"]["cache_n"], 701)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_other_settings_share_nothing(self) -> None:
        text = "another prompt " * 40
        self.slots(self.server).complete(text)
        self.assertEqual(self.slots(self.server, settings="q8_0").complete(text, slot=1)["timings"]["cache_n"], 0)

    def test_short_prompts_are_left_alone(self) -> None:
        self.slots(self.server).complete("short")
        self.assertEqual(self.server.calls, ["tokenize", "completion"])

    def test_what_fails_is_computed(self) -> None:
        text = "a third prompt " * 40
        self.slots(self.server).complete(text)
        other = self.started()
        other.fail = ["restore", "save"]
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(self.slots(other).complete(text)["timings"]["cache_n"], 0)
            self.slots(other).complete(text + "and more " * 50, slot=1)
        self.assertIn("not restored", said.getvalue())
        self.assertIn("not stored", said.getvalue())
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_what_the_daemon_refuses_is_computed(self) -> None:
        refused = kvstored.Refused("get", kvstored.Code.DENIED, "no right to read")
        with mock.patch.object(self.kv, "get", side_effect=refused), contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(self.slots(self.server).complete("a fifth prompt " * 40)["timings"]["cache_n"], 0)
        self.assertEqual(said.getvalue().count("no right to read"), 2)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_state_that_is_not_whole(self) -> None:
        text = "a fourth prompt " * 40
        slots = self.slots(self.server)
        slots.complete(text)
        tokens = [1] + list(text.encode())
        *_, (_, name) = example().ends(tokens)
        self.assertEqual(self.kv.lookup(slots._pieces(name, 10)).total.chunks, 3)
        last = slots._pieces(name, 3).raw[32:]
        self.assertEqual(self.kv.delete(kvstored.hashes(slots._pieces(name, 3).raw, [256] * 3, skip=2, space=slots.space)), 1, last)
        self.assertEqual(slots.restore(tokens, 0), 0)
