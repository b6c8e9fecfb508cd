"""What is said of an engine that is not as this package knows it."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Dict, List

HERE = Path(__file__).resolve().parents[1] / "src"
BASE = "class SecondaryTierManager:\n    pass\n"
RESULT = "class JobResult:\n    pass\n"
NAMES = "LookupResult RequestOffloadingContext OffloadingCounterMetadata OffloadingEvent Medium Locality"
OTHERS = "".join(f"class {name}:\n    STORAGE = LOCAL = None\n" for name in NAMES.split())
METRICS = "vllm/distributed/kv_transfer/kv_connector/v1/offloading/metrics.py"
IMPORT = "import kvstored.vllm, kvstored.sglang; print(kvstored.vllm.SecondaryTierManager.__module__)"


class Engine(unittest.TestCase):
    def run_with(self, files: Dict[str, str], code: str) -> List[str]:
        """What a program prints and logs where an engine has these files."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                for parent in path.relative_to(folder).parents:
                    if parent.name:
                        Path(folder, parent, "__init__.py").touch()
            ran = subprocess.run(
                [sys.executable, "-S", "-B", "-c", code],
                env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{HERE}"},
                capture_output=True,
                text=True,
            )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return [*ran.stdout.splitlines(), *ran.stderr.splitlines()]

    def test_as_it_is_known(self) -> None:
        """Also the oldest that is supported, which does not have all of it."""
        tiers = {
            "vllm/v1/kv_offload/tiering/base.py": BASE + RESULT,
            "vllm/v1/kv_offload/base.py": OTHERS,
            METRICS: "class OffloadingConnectorStats:\n    pass\n",
        }
        pages = {"sglang/srt/mem_cache/hicache_storage.py": "class HiCacheStorage:\n    pass\nclass PoolTransferResult:\n    pass\n"}
        self.assertEqual(self.run_with({**tiers, **pages}, IMPORT), ["vllm.v1.kv_offload.tiering.base"])

    def test_changed(self) -> None:
        for missing, files in {
            "JobResult": {"vllm/v1/kv_offload/tiering/base.py": BASE},
            "vllm.v1.kv_offload.tiering": {"vllm/v1/kv_offload/base.py": ""},
            "torch_of_tomorrow": {"vllm/v1/kv_offload/tiering/base.py": f"import torch_of_tomorrow\n{BASE}{RESULT}"},
            "HiCacheStorage": {"sglang/srt/mem_cache/hicache_storage.py": ""},
        }.items():
            with self.subTest(missing):
                _, *said = self.run_with(files, IMPORT)
                self.assertTrue(said and all("kvstored: " in line for line in said), said)
                self.assertTrue(any(missing in line for line in said), said)
