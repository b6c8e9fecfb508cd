"""The wheel has the whole package, pip takes it, and the examples do what they say."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
import textwrap
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import kvstored

from .daemon import Daemon, skip

HERE = Path(__file__).resolve().parents[1]


class Install(unittest.TestCase):
    def test_wheel(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            sys.path.insert(0, str(HERE))
            import backend

            self.assertEqual(backend.VERSION, kvstored.__version__)
            wheel = Path(folder) / backend.build_wheel(folder)
            code = "import kvstored.vllm, kvstored.sglang, kvstored.cuda; print(kvstored.__file__)"
            got = subprocess.run(
                [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {code}"],
                check=True,
                capture_output=True,
                text=True,
            )
            self.assertIn(str(wheel), got.stdout)

    def test_metadata(self) -> None:
        """Licence, types and version are in the wheel, and two builds are equal."""
        sys.path.insert(0, str(HERE))
        import backend

        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            wheel = Path(one) / backend.build_wheel(one)
            self.assertEqual(wheel.read_bytes(), (Path(two) / backend.build_wheel(two)).read_bytes())
            sdist = Path(one) / backend.build_sdist(one)
            self.assertEqual(sdist.read_bytes(), (Path(two) / backend.build_sdist(two)).read_bytes())
            with zipfile.ZipFile(wheel) as archive:
                names = archive.namelist()
                self.assertIn("kvstored/py.typed", names)
                (record,) = [n for n in names if n.endswith("/RECORD")]
                listed = [line.split(",")[0] for line in archive.read(record).decode().splitlines()]
                self.assertEqual(listed, names)
                info = email.message_from_bytes(archive.read(record.replace("RECORD", "METADATA")))
                for licence in info.get_all("License-File", []):
                    text = archive.read(record.replace("RECORD", f"licenses/{licence}"))
                    self.assertEqual(text, (HERE.parents[1] / licence).read_bytes())
            self.assertEqual((info["License-Expression"], info["Version"]), ("Apache-2.0", kvstored.__version__))
            self.assertEqual(info.get_all("License-File"), ["LICENSE"])
            self.assertIn("Typing :: Typed", info.get_all("Classifier", []))

    def test_sdist(self) -> None:
        """The wheel that is built from the sdist is the one of the repository."""
        sys.path.insert(0, str(HERE))
        import backend

        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(Path(folder) / backend.build_sdist(folder)) as archive:
                archive.extractall(folder)
            root = Path(folder) / f"kvstored-{kvstored.__version__}"
            code = "import backend; print(backend.build_wheel('.'))"
            built = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True)
            wheel = root / built.stdout.strip()
            self.assertEqual(wheel.read_bytes(), (Path(folder) / backend.build_wheel(folder)).read_bytes())

    def test_pip(self) -> None:
        """Without a network, and without anything but pip."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
        if subprocess.run([*pip[:3], "--version"], capture_output=True).returncode:
            skip(self, "pip is not installed")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*pip, "--target", folder, str(HERE)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            code = "import kvstored; print(kvstored.__file__, kvstored.__version__)"
            got = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True)
            self.assertEqual(got.stdout.split(), [f"{folder}/kvstored/__init__.py", kvstored.__version__])
            code = (  # as vLLM loads its plugins, here without a vLLM
                "from importlib.metadata import distribution; (plugin,) = distribution('kvstored').entry_points; "
                "plugin.load()(); print(plugin.group, plugin.name)"
            )
            got = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True)
            self.assertEqual(got.stdout.split(), ["vllm.general_plugins", "kvstored"])


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

    def test_readme_asyncio(self) -> None:
        code = (HERE / "README.md").read_text().split("```python\n")[2].partition("```")[0]
        client: Any = kvstored.AsyncClient
        with Daemon(dram="16MiB") as daemon, mock.patch.dict(os.environ, KVSTORED_SOCKET=daemon.socket):
            with mock.patch.object(kvstored, "AsyncClient", lambda **kw: client(timeout=60, **kw)):
                for want in (0, 4):
                    with mock.patch("builtins.print") as said:
                        exec(compile(code, "example", "exec"), {})
                    said.assert_called_once_with(want, "chunks were there")

    def test_package(self) -> None:
        blocks = kvstored.__doc__.split("\n\n")
        self.run_twice(textwrap.dedent("\n".join(b for b in blocks if b.startswith("    "))))


if __name__ == "__main__":
    unittest.main()
