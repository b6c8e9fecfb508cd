"""What the environments of engines share: where they lie, a virtual environment of pinned
packages, and stand-ins for the libraries of NVIDIA that torch's CUDA build loads.

e2e/NAME/install.py makes the environment of the engine NAME with it."""

from __future__ import annotations

import collections
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, Dict, List, Sequence, Set

NO_ANSWER = 75  # EX_TEMPFAIL
_SILENCE = re.compile(r"Retrying \(Retry|Max retries|Connection(Error| refused| reset| broken)|timed out|name resolution|HTTP error 5\d\d")


class Silent(Exception):
    """Of a registry."""


def main(name: str, sources: Sequence[Path], install: Callable[[Path], None], arguments: List[str]) -> int:
    """Makes the environment, where it is not yet whole, and prints its interpreter; "where"
    only prints. ``sources`` say what is installed, and how: the folder is named by them."""
    if arguments not in ([], ["where"]):
        raise SystemExit(f"want no argument, or where: {arguments}")
    place = folder(name, sources)
    if arguments == ["where"] and not (place / "whole").exists():
        return 1
    return make(place, install, place / "bin" / "python")


def folder(name: str, sources: Sequence[Path]) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    text = b"".join(source.read_bytes() for source in (Path(__file__), *sources))
    return Path(cache, "kvstored", "engines", f"{name}-" + hashlib.sha256(text).hexdigest()[:12])


def make(place: Path, fill: Callable[[Path], None], result: Path) -> int:
    """Fills a folder once, and prints the result."""
    os.chdir("/")  # no folder of ours is on the path of what follows
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as lock:  # another run may be at it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            shutil.rmtree(place, ignore_errors=True)
            try:
                fill(place)
            except Silent as e:
                print(f"the registry of packages does not answer: {e}", file=sys.stderr)
                return NO_ANSWER
            (place / "whole").touch()
    print(result)
    return 0


def environment(place: Path, pythons: Sequence[str], requirements: Path) -> Path:
    """A virtual environment of pinned packages, of all that is imported and of nothing else;
    its folder of packages."""
    run(interpreter(pythons), "-m", "venv", str(place))
    pip(str(place / "bin" / "python"), "install", "-r", str(requirements))
    site = next(place.glob("lib/python3*/site-packages"))
    stand_in(site / "torch" / "lib")
    return site


def interpreter(pythons: Sequence[str]) -> str:
    """A Python of one of these versions."""
    candidates = [f"python{v}" for v in pythons]
    for version in pythons:  # which a version manager keeps out of PATH
        candidates += sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python3")))
    for name in candidates:
        try:
            subprocess.run([name, "-c", "import venv, ensurepip"], check=True, capture_output=True)
            return name
        except (OSError, subprocess.CalledProcessError):
            continue
    raise SystemExit(f"there is no Python with venv of {', '.join(pythons)}")


def pip(python: str, verb: str, *packages: str) -> None:
    command = [python, "-m", "pip", verb, "-q", "--no-cache-dir", "--no-deps", "--disable-pip-version-check", *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        if _SILENCE.search(done.stderr):
            raise Silent(done.stderr.strip().splitlines()[-1])
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-4000:]}")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    return done.stdout


# ---- libraries that are not there ------------------------------------------------

_SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|util)\.so|ld-linux|libcuda\.so)")
#: Libraries by how their functions begin, where the function has no version that says it.
_BEGINS = {
    "cublasLt": "libcublasLt", "cublas": "libcublas", "cudnn": "libcudnn", "cusparseLt": "libcusparseLt", "cusparse": "libcusparse",
    "cufft": "libcufft", "curand": "libcurand", "cusolver": "libcusolver", "nvrtc": "libnvrtc", "cupti": "libcupti",
    "cuFile": "libcufile", "nccl": "libnccl", "pnccl": "libnccl", "nvshmem": "libnvshmem_host", "nvtx": "libnvtx",
    "cuda": "libcudart", "__cuda": "libcudart",
}  # fmt: skip
_TEXT = re.compile(r"(Get(Error|Status)(String|Name)|GetLastErrorMessage|ResultString)$")
_NO_DEVICE = 100


def stand_in(lib: Path) -> None:
    """Makes each library that torch's own are linked against and that is not there."""
    have = {path.name for path in lib.glob("*.so*")}
    needed: Set[str] = set()
    wanted: Dict[str, str] = {}  # functions, with their versions
    file_of: Dict[str, str] = {}  # versions
    for path in sorted(lib.glob("*.so*")):
        needed |= {n for n in re.findall(r"\(NEEDED\).*\[(.*?)\]", run("readelf", "-d", str(path))) if n not in have and not _SYSTEM.match(n)}
        file = ""
        for named, version in re.findall(r"File: (\S+)|Name: (\S+)", run("readelf", "-W", "-V", str(path)).partition("Version needs")[2]):
            file = named or file
            if version:
                file_of[version] = file
        for line in run("nm", "-D", "--undefined-only", str(path)).splitlines():
            name, _, version = line.split()[-1].partition("@")
            wanted.setdefault(name, version.lstrip("@"))
    functions: Dict[str, List[str]] = collections.defaultdict(list)
    for name, version in sorted(wanted.items()):
        library = file_of.get(version, "") if version else _by_name(name, needed)
        if library in needed:
            functions[library].append(name)
    for library in sorted(needed):
        _make(lib / library, functions[library], [v for v, f in file_of.items() if f == library])


def _by_name(function: str, needed: Set[str]) -> str:
    start = next((library for begin, library in _BEGINS.items() if function.startswith(begin)), "-")
    return next((library for library in needed if library.startswith(f"{start}.so")), "")


def _make(path: Path, functions: List[str], versions: List[str]) -> None:
    lines = ['static const char *text = "there is no device: this library is empty";']
    for name in functions:
        if _TEXT.search(name):
            lines.append(f"const char *{name}(void) {{ return text; }}")
        elif name in ("cudaDriverGetVersion", "cudaRuntimeGetVersion"):
            lines.append(f"int {name}(int *v) {{ if (v) *v = 0; return 0; }}")
        elif name == "cudaGetDeviceCount":
            lines.append(f"int {name}(int *n) {{ if (n) *n = 0; return {_NO_DEVICE}; }}")
        else:
            fine = name.endswith(("GetLastError", "PeekAtLastError")) or name.startswith("cudnnGet") and name.endswith("Version")
            lines.append(f"long {name}(void) {{ return {0 if fine else _NO_DEVICE}; }}")
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "library.c"), Path(scratch, "versions")
        source.write_text("\n".join(lines))
        script.write_text("".join(f"{v} {{ global: *; }};" for v in versions[:1]))
        versioned = [f"-Wl,--version-script={script}"] if versions else []
        run("gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}", *versioned, "-o", str(path), str(source))
