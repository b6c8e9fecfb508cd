"""Builds wheel and sdist of this package (PEP 517) with the standard library alone,
so that `pip install` needs neither a network nor setuptools. Equal sources make
equal files: no time of the build is in them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, List

NAME, VERSION = "kvstored", "0.1.0"
HERE = Path(__file__).resolve().parent
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""\
Metadata-Version: 2.4
Name: {NAME}
Version: {VERSION}
Summary: Client of the kvstored KV-cache daemon, with tiers for vLLM and SGLang
Author: The kvstored authors
License-Expression: Apache-2.0
License-File: LICENSE
Keywords: kv-cache,llm,inference
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Typing :: Typed
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: kvstored\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
ENTRY_POINTS = f"[vllm.general_plugins]\n{NAME} = {NAME}.vllm_plugin:register\n"


LICENCES = ("LICENSE",)


def package() -> Dict[str, bytes]:
    """The files of the package, by their paths in it."""
    paths = sorted(p for p in (HERE / NAME).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(HERE).as_posix(): p.read_bytes() for p in paths}


def metadata() -> bytes:
    return METADATA.encode() + (HERE / "README.md").read_bytes()


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    files = package()
    files[f"{INFO}/METADATA"] = metadata()
    files[f"{INFO}/WHEEL"] = WHEEL.encode()
    files[f"{INFO}/entry_points.txt"] = ENTRY_POINTS.encode()
    for licence in LICENCES:
        files[f"{INFO}/licenses/{licence}"] = (HERE / licence).read_bytes()
    record: List[str] = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}\n")
    files[f"{INFO}/RECORD"] = ("".join(record) + f"{INFO}/RECORD,,\n").encode()
    with zipfile.ZipFile(Path(wheel_directory) / name, "w") as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    root = f"{NAME}-{VERSION}"
    files = package()
    for name in ("backend.py", "pyproject.toml", "README.md", *LICENCES):
        files[name] = (HERE / name).read_bytes()
    files["PKG-INFO"] = metadata()
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{root}/{path}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    (Path(sdist_directory) / f"{root}.tar.gz").write_bytes(gzip.compress(tar.getvalue(), mtime=0))
    return f"{root}.tar.gz"
