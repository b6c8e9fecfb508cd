"""The wheel has the whole package."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kvstored

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


if __name__ == "__main__":
    unittest.main()
