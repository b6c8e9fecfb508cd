"""The pinned library of llama.cpp: what is not what was pinned is not run."""

from __future__ import annotations

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

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
        with self.given(str(path)), mock.patch.object(llama_library.tarfile, "open", side_effect=AssertionError("opened")):
            with self.assertRaisesRegex(llama_library.WrongSum, "nothing of it was run"):
                llama_library.library.__wrapped__()

    def test_missing(self) -> None:
        with self.given(f"{self.folder}/none"):
            with self.assertRaisesRegex(llama_library.Missing, "not there"):
                llama_library.fetched()
        environment = {"XDG_CACHE_HOME": self.folder, "KVSTORED_LLAMA": "", "PATH": self.folder}
        with mock.patch.dict(os.environ, environment), self.assertRaisesRegex(llama_library.Missing, "npm is not installed"):
            llama_library.fetched()

    def test_skipped_only_outside_ci(self) -> None:
        with mock.patch.object(llama_library, "library", side_effect=llama_library.Missing("why")):
            with mock.patch.dict(os.environ, {"CI": ""}), self.assertRaisesRegex(unittest.SkipTest, "why"):
                llama_library.need()
            with mock.patch.dict(os.environ, {"CI": "true"}), self.assertRaises(llama_library.Missing):
                llama_library.need()


if __name__ == "__main__":
    unittest.main()
