"""Installs an SGLang that computes on a CPU, for the tests of this package, and prints the
path of its interpreter:

    python3 e2e/sglang/install.py          # installs it
    python3 e2e/sglang/install.py where    # only says where it is; exit code 1 if it is not

It takes about 5 minutes and 2.9 GB in the user's cache folder, 1 GB of them downloaded, by
package names alone; a second run takes none. It needs Python 3.12 with pip and venv, gcc, nm
and readelf. Exit code 75: the registry of packages does not answer.

SGLang's kernels have no wheel for CPUs: stand_ins.py has what is in their place."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engines"))

import environment  # noqa: E402

SOURCES = tuple(HERE / name for name in ("install.py", "requirements.txt", "stand_ins.py"))


def install(place: Path) -> None:
    site = environment.environment(place, ("3.12",), HERE / "requirements.txt")
    shutil.copy(HERE / "stand_ins.py", site / "kvstored_stand_ins.py")
    (site / "kvstored_stand_ins.pth").write_text("import kvstored_stand_ins\n")
    # It is compiled when it is first called: in a thread that SGLang waits 10 seconds for.
    hashes = "import torch; from sglang.srt.mem_cache.utils import get_hash_str; get_hash_str([1, 2], None, 1)"
    environment.run(str(place / "bin" / "python"), "-c", hashes)


if __name__ == "__main__":
    raise SystemExit(environment.main("sglang", SOURCES, install, sys.argv[1:]))
