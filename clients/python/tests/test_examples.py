"""The examples do what they say."""

import os
import unittest
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import kvstored

from .daemon import Daemon

HERE = Path(__file__).resolve().parents[1]


class Examples(unittest.TestCase):
    """What the README and the package show is run as it stands."""

    def run_twice(self, code: str) -> None:
        client, names, found = kvstored.Client, {}, []
        with Daemon(dram="16MiB") as daemon:
            patient: Any = mock.patch.object(kvstored, "Client", lambda **kw: client(timeout=60, **kw))
            there = mock.patch.dict(os.environ, KVSTORED_SOCKET=daemon.socket)
            for _ in range(2):
                names = {}
                with patient, there:
                    exec(compile(code, "example", "exec"), names)
                found.append(names["have"])
        self.assertEqual(found, [0, 4])
        self.assertEqual(names["mine"], [bytes([i]) * names["size"] for i in range(4)])

    def test_readme(self) -> None:
        _, _, rest = (HERE / "README.md").read_text().partition("```python\n")
        self.run_twice(rest.partition("```")[0])

    def test_package(self) -> None:
        blocks = kvstored.__doc__.split("\n\n")
        self.run_twice(textwrap.dedent("\n".join(b for b in blocks if b.startswith("    "))))
