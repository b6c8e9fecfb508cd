"""Compiles for a wheel: the daemon's program, in Go, and the client's extension, in C.

The environment variable ``KVSTORED_WHEEL`` says what the wheel is for: ``x86_64`` or
``aarch64``, where a program that cannot be built is an error, or ``client`` for one without
the daemon. Without it the wheel is for this machine, and what cannot be built here is left
out, with a word: the daemon where there is no Go or, as in an sdist, none of its sources;
the extension where there is no C compiler with Python's headers.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GOARCH = {"x86_64": "amd64", "aarch64": "arm64"}
EXTENSION = "_bulk.abi3.so"
GLIBC = 17  # of 2.17, the oldest that the tags promise


class Compiled(BuildHookInterface):
    """Adds to a wheel what is compiled, and names its tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("KVSTORED_WHEEL", "")
        if wanted not in ("", "client", *GOARCH):
            raise ValueError(f"KVSTORED_WHEEL={wanted}: a wheel is for {', '.join(GOARCH)} or client")
        machine = wanted if wanted in GOARCH else platform.machine()
        self._folder = tempfile.mkdtemp()
        program = None if wanted == "client" else self._program(machine, must=bool(wanted))
        extension = self._extension(machine)
        if program:
            build_data["shared_scripts"][str(program)] = "kvstored"
            for name in ("NOTICE", "THIRD_PARTY"):  # of what is linked into it
                build_data["force_include"][str(self._checkout / name)] = f"kvstored-{self.metadata.version}.dist-info/licenses/{name}"
        if extension and version == "editable":
            shutil.copy(extension, Path(self.root, "src/kvstored", EXTENSION))
        elif extension:
            build_data["force_include"][str(extension)] = f"kvstored/{EXTENSION}"
        if program or extension:
            build_data["pure_python"] = False
            system = f"manylinux_2_{max([GLIBC, *_glibc(extension)])}" if program else "linux"
            build_data["tag"] = f"{'cp310-abi3' if extension else 'py3-none'}-{system}_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._folder)

    @property
    def _checkout(self) -> Path:
        return Path(self.root).resolve().parents[1]

    def _program(self, machine: str, must: bool) -> Path | None:
        """The daemon's, as a release builds it; None where it cannot be built and need not be."""
        go, sources = shutil.which("go"), self._checkout / "cmd/kvstored"
        if machine not in GOARCH or not sources.is_dir() or go is None:
            why = "there is no go in PATH" if machine in GOARCH and sources.is_dir() else f"its sources are not here, or not for {machine}"
            if must:
                raise RuntimeError(f"the daemon cannot be built: {why}")
            return self._left_out("the daemon", why)
        program = Path(self._folder, "kvstored")
        flags = ["-mod=readonly", "-trimpath", "-ldflags=-s -w -buildid="]
        env = {"CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": GOARCH[machine], "GOAMD64": "v1", "GOWORK": "off"}
        subprocess.run([go, "build", *flags, "-o", program, "."], cwd=sources, env={**os.environ, **env}, check=True)
        return program

    def _extension(self, machine: str) -> Path | None:
        """The client's, which it does without where there is none."""
        native = machine == platform.machine()
        compiler = shutil.which(os.environ.get("CC", "cc") if native else f"{machine}-linux-gnu-gcc")
        headers = sysconfig.get_path("include")
        if compiler is None or not Path(headers, "Python.h").is_file():
            return self._left_out("the extension", f"there is no C compiler for {machine} with Python's headers")
        built = Path(self._folder, EXTENSION)
        flags = ["-O3", "-shared", "-fPIC", "-s", f"-I{headers}"]
        try:
            subprocess.run([compiler, *flags, "-o", built, Path("src/kvstored/_bulk.c")], cwd=self.root, check=True)
        except subprocess.CalledProcessError as e:
            return self._left_out("the extension", f"{compiler} failed: {e}")
        return built

    def _left_out(self, what: str, why: str) -> None:
        self.app.display_warning(f"kvstored: the wheel is without {what}: {why}")


def _glibc(library: Path | None) -> list[int]:
    """The versions, of 2.x, that a library wants."""
    return [int(v) for v in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())] if library else []
