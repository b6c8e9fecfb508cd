"""What the package is from outside: what it imports and exports, and where its program lies."""

import inspect
import os
import pydoc
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import kvstored
from kvstored import __main__ as program
from kvstored import _connection

from . import SOURCES
from .daemon import Daemon

#: Slow to import, and no client needs them.
NEEDLESS = ("asyncio", "statistics", "numpy", "torch", "ssl", "importlib.metadata", "vllm", "sglang", "lmcache")


class Package(unittest.TestCase):
    def test_imports_little(self) -> None:
        code = f"import sys, kvstored; print([m for m in {NEEDLESS} if m in sys.modules])"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)}
        ran = subprocess.run([sys.executable, "-S", "-B", "-c", code], env=env, check=True, capture_output=True, text=True)
        self.assertEqual(ran.stdout, "[]\n")

    def test_exports(self) -> None:
        """Each public name says what it is, is checked strictly, and is shown by help()."""
        shown = pydoc.render_doc(kvstored, renderer=pydoc.plaintext)
        self.assertEqual(re.findall("ForwardRef.*", shown), [])
        for name in kvstored.__all__:
            with self.subTest(name):
                value = getattr(kvstored, name)
                self.assertIn(name, shown)
                if callable(value):
                    source = Path(inspect.getsourcefile(value))
                    self.assertTrue(source.name.startswith("_") or "\n# pyright: strict" in source.read_text(), source)
                    self.assertTrue((value.__doc__ or "").strip(), "no docstring")
                    self.assertFalse((value.__doc__ or "").startswith(f"{name}("), "that of a NamedTuple or a dataclass")

    def test_another_version(self) -> None:
        """A daemon that was not made with the package is told of, once."""
        with Daemon() as daemon:
            _connection._say_version.cache_clear()
            with self.assertNoLogs("kvstored", "WARNING"):
                kvstored.Client(daemon.socket, timeout=60).close()
            _connection._say_version.cache_clear()
            self.addCleanup(_connection._say_version.cache_clear)
            with mock.patch.object(_connection, "__version__", "0.0.9"), self.assertLogs("kvstored", "WARNING") as said:
                for _ in range(2):
                    kvstored.Client(daemon.socket, timeout=60).close()
        (line,) = said.output
        self.assertRegex(line, r"the daemon is of version v\d.*, this package of v0\.0\.9")

    def test_program(self) -> None:
        with tempfile.TemporaryDirectory() as scripts, tempfile.TemporaryDirectory() as path:
            with mock.patch("sysconfig.get_path", return_value=scripts), mock.patch.dict(os.environ, PATH=path):
                self.assertIsNone(program.program())
                for folder in (path, scripts):  # the latter goes first
                    there = Path(folder, "kvstored")
                    there.touch(0o755)
                    self.assertEqual(program.program(), str(there))
