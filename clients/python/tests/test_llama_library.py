"""The pinned library of llama.cpp: what is not what was pinned is not run."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import List
from unittest import mock

from llamacpp import library

from . import llama_library


class Pinned(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def given(self, path: str) -> "mock._patch_dict":
        return mock.patch.dict(os.environ, {"KVSTORED_LLAMA": path})

    def test_a_wrong_sum(self) -> None:
        path = Path(self.folder, "package.tgz")
        path.write_bytes(b"something else")
        with self.given(str(path)), mock.patch.object(library.tarfile, "open", side_effect=AssertionError("opened")):
            with self.assertRaisesRegex(library.WrongSum, "nothing of it was run"):
                library.library.__wrapped__()

    def test_missing(self) -> None:
        with self.given(f"{self.folder}/none"):
            with self.assertRaisesRegex(library.Missing, "not there"):
                library.fetched()
        environment = {"XDG_CACHE_HOME": self.folder, "KVSTORED_LLAMA": "", "PATH": self.folder}
        with mock.patch.dict(os.environ, environment), self.assertRaisesRegex(library.Missing, "npm is not installed"):
            library.fetched()

    def npm(self, script: str) -> "mock._patch_dict":
        """An npm that is this script, and a cache of its own."""
        npm = Path(self.folder, "bin", "npm")
        npm.parent.mkdir()
        npm.write_text(f"#!/bin/sh\n{script}\n")
        npm.chmod(0o755)
        path = f"{npm.parent}:{os.environ['PATH']}"
        return mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.folder, "KVSTORED_LLAMA": "", "PATH": path})

    def left(self) -> List[Path]:
        return [p for p in Path(self.folder, "kvstored").rglob("*") if p.is_file()]

    def test_what_is_brought_and_wrong_is_not_kept(self) -> None:
        with self.npm(f"echo other > {library.FILE}"), self.assertRaisesRegex(library.WrongSum, "nothing of it was run"):
            library.fetched()
        self.assertEqual(self.left(), [])

    def test_no_network(self) -> None:
        with self.npm("echo there is no network >&2; exit 1"), self.assertRaisesRegex(library.Missing, "no network"):
            library.fetched()
        self.assertEqual(self.left(), [])

    def test_the_program(self) -> None:
        """Its answer for CI's log is what the library calls itself, and nothing where it is not run."""
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            with mock.patch.object(library, "library", return_value=SimpleNamespace(__version__="v1 (ggml 2, abc)")):
                self.assertEqual(library.main(["version"]), 0)
            with mock.patch.object(library, "library", side_effect=library.WrongSum("nothing of it was run")):
                self.assertEqual(library.main(["version"]), 1)
            for wrong in (["fetch", "it"], ["versions"], ["--help"]):
                self.assertEqual(library.main(wrong), 2)
        self.assertEqual(out.getvalue(), "v1 (ggml 2, abc)\n")
        self.assertIn("nothing of it was run", said.getvalue())
        self.assertEqual(said.getvalue().count("say fetch, version"), 3)

    def test_skipped_only_outside_ci(self) -> None:
        with self.given(__file__), mock.patch.object(llama_library, "library", side_effect=library.Missing("why")):
            with mock.patch.dict(os.environ, {"CI": ""}), self.assertRaisesRegex(unittest.SkipTest, "why"):
                llama_library.need()
            with mock.patch.dict(os.environ, {"CI": "true"}), self.assertRaises(library.Missing):
                llama_library.need()

    def test_nothing_is_fetched(self) -> None:
        with self.npm("touch ran"), mock.patch.object(library, "_fetch", side_effect=AssertionError("fetched")):
            with mock.patch.dict(os.environ, {"CI": ""}), self.assertRaisesRegex(unittest.SkipTest, "library.py fetch brings"):
                llama_library.need()
            with mock.patch.dict(os.environ, {"CI": "true"}), self.assertRaisesRegex(library.Missing, "library.py fetch brings"):
                llama_library.need()
