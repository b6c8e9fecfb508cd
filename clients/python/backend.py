"""Builds the wheel of this package (PEP 517) with the standard library alone, so
that `pip install` needs neither a network nor setuptools."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path
from typing import Any, List

NAME, VERSION = "kvstored", "1.0.0"
HERE = Path(__file__).resolve().parent
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""\
Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Client of the kvstored KV-cache daemon, with tiers for vLLM and SGLang
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: kvstored\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
ENTRY_POINTS = f"[vllm.general_plugins]\n{NAME} = {NAME}.vllm_plugin:register\n"


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    files = {f"{NAME}/{p.name}": p.read_bytes() for p in sorted((HERE / NAME).iterdir()) if p.is_file()}
    files[f"{INFO}/METADATA"] = METADATA.encode() + (HERE / "README.md").read_bytes()
    files[f"{INFO}/WHEEL"] = WHEEL.encode()
    files[f"{INFO}/entry_points.txt"] = ENTRY_POINTS.encode()
    record: List[str] = []
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")
            wheel.writestr(path, data)
        wheel.writestr(f"{INFO}/RECORD", "".join(record) + f"{INFO}/RECORD,,\n")
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    raise NotImplementedError("the source of this package is the repository")
