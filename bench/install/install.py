"""Installs what benches need, and prints what came of it as JSON:

    python3 bench/install/install.py kvstored redis memcached mooncake lmcache lmcache-l2

{"python": {name: its interpreter}, "missing": {name: why it cannot be run}}. Python
packages go by name into virtual environments in the user's cache folder, and stay; the
package of this checkout is installed anew each time. Servers come from apt-get where they
are not in the path, which needs root or sudo without a password. LMCache takes about
600 MB to download and 1.8 GB of disk: its torch is the CUDA build, in which stand-ins take
the place of NVIDIA's libraries, as e2e/lmcache has it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Need(NamedTuple):
    environment: str  # of REQUIREMENTS
    programs: List[str] = []  # which have to be in the path
    libraries: List[str] = []
    packages: List[str] = []  # of Debian, which bring them
    ours: bool = False  # needs the package of this checkout


REQUIREMENTS = {"clients": HERE / "clients.txt", "lmcache": ROOT / "e2e" / "lmcache" / "requirements.txt"}
_TOOLS, _DEBIAN = ["gcc", "readelf", "nm"], ["gcc", "libc6-dev", "binutils"]
NEEDS: Dict[str, Need] = {
    "echo": Need("clients"),
    "kvstored": Need("clients", ours=True),
    "redis": Need("clients", ["redis-server"], [], ["redis-server"]),
    "memcached": Need("clients", ["memcached"], [], ["memcached"]),
    "mooncake": Need("clients", [], ["libibverbs.so.1", "librdmacm.so.1", "libnuma.so.1"], ["libibverbs1", "librdmacm1", "libnuma1"]),
    "lmcache": Need("lmcache", _TOOLS, [], _DEBIAN),
    "lmcache-l2": Need("lmcache", _TOOLS, [], _DEBIAN, ours=True),
}


class Failed(Exception):
    """What could not be had, and why."""


def main(names: List[str]) -> None:
    os.environ["KVSTORED_WHEEL"] = "client"  # benches build the daemon themselves
    python: Dict[str, str] = {}
    missing: Dict[str, str] = {}
    environments: Dict[str, str] = {}
    for name in names:
        need = NEEDS[name]
        try:
            system(need)
            if need.environment not in environments:
                environments[need.environment] = environment(need.environment)
            python[name] = environments[need.environment]
            if need.ours:
                pip(python[name], "--force-reinstall", "--no-deps", str(ROOT / "clients" / "python"))
        except Failed as e:
            missing[name] = str(e)
    print(json.dumps({"python": python, "missing": missing}))


def say(text: str) -> None:
    print("install:", text, file=sys.stderr, flush=True)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}: {''.join(words)}")
    return done.stdout


# ---- of the system ---------------------------------------------------------------


def lacks(need: Need) -> List[str]:
    known = run("ldconfig", "-p") if need.libraries else ""
    return [p for p in need.programs if not shutil.which(p)] + [f for f in need.libraries if f not in known]


def system(need: Need) -> None:
    away = lacks(need)
    if not away:
        return
    words = " ".join(need.packages)
    if not shutil.which("apt-get"):
        raise Failed(f"{', '.join(away)} not found, nor apt-get: install what Debian calls {words}")
    say(f"{', '.join(away)} not found: apt-get install {words}")
    apt = [*([] if os.geteuid() == 0 else ["sudo", "-n"]), "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-qq"]
    try:
        run(*apt, "install", "--no-install-recommends", *need.packages)
    except Failed:  # the lists may be old, or none
        run(*apt, "update")
        run(*apt, "install", "--no-install-recommends", *need.packages)
    if away := lacks(need):
        raise Failed(f"{', '.join(away)} not found after apt-get install {words}")


# ---- of Python -------------------------------------------------------------------


def environment(name: str) -> str:
    """The interpreter of an environment, which is made where it is not there."""
    wanted = REQUIREMENTS[name].read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = cache / "kvstored" / "bench" / f"{name}-{hashlib.sha256(wanted).hexdigest()[:12]}"
    python = str(folder / "bin" / "python")
    if not (folder / "whole").exists():
        say(f"installs {REQUIREMENTS[name]} in {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        if name == "clients":
            run(sys.executable, "-m", "venv", str(folder))
            pip(python, "-r", str(REQUIREMENTS[name]))
        else:
            of_engines(folder, REQUIREMENTS[name])
        (folder / "whole").touch()
    return python


def pip(python: str, *arguments: str) -> None:
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-cache-dir", *arguments)


def of_engines(folder: Path, requirements: Path) -> None:
    """An environment as e2e/engines makes them for torch: a Python that has wheels, and
    libraries in the places of NVIDIA's."""
    path = ROOT / "e2e" / "engines" / "environment.py"
    spec = importlib.util.spec_from_file_location("engines_environment", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.environment(folder, ("3.11", "3.12", "3.13"), requirements)
    except (SystemExit, module.Silent) as e:
        raise Failed(str(e)) from e


if __name__ == "__main__":
    main(sys.argv[1:])
