"""What is in a model's files: a hash of every byte, computed once.

Hashes are kept in the user's cache (``$XDG_CACHE_HOME/kvstored/files``), by path,
size, times, inode and device. A file that changed in any of these is read again.
"""

import hashlib
import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

_BLOCK_BYTES = 4 << 20
# A file may change twice within one tick of the file system's clock. What was
# changed as lately as this when its reading began is not remembered.
_SETTLED_NS = 2_000_000_000
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.[^.]+)")


class File(NamedTuple):
    """A file as it was found."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


def find(path: str) -> File:
    """The file behind a path, through all links."""
    real = os.path.realpath(path)
    return _file(real, os.stat(real))


def unchanged(files: Sequence[File]) -> bool:
    """Whether all files are as they were found."""
    try:
        return all(find(f.path) == f for f in files)
    except OSError:
        return False


def shards(path: str) -> List[str]:
    """All files of a model that is split as llama.cpp splits it (``-00001-of-00003``),
    in order; of another one, its path."""
    parts = _SHARD.fullmatch(path)
    if parts is None:
        return [path]
    base, _, count, end = parts.groups()
    return [f"{base}-{i:05d}-of-{count}{end}" for i in range(1, int(count) + 1)]


def digest(file: File) -> str:
    """SHA-256 of the file's bytes, in hex. A ValueError if it is not the file that
    was found, any more, or changes while it is read."""
    kept = _kept(file)
    if kept is not None:
        return kept
    began = time.time_ns()
    total, room = hashlib.sha256(), memoryview(bytearray(_BLOCK_BYTES))
    with open(file.path, "rb", buffering=0) as f:
        before = _file(file.path, os.fstat(f.fileno()))
        while True:
            n = f.readinto(room)
            if not n:
                break
            total.update(room[:n])
        after = _file(file.path, os.fstat(f.fileno()))
    if not file == before == after:
        raise ValueError(f"{file.path} changes while it is read: load a model, and make its cache, when its file is complete")
    if began - max(file.mtime_ns, file.ctime_ns) > _SETTLED_NS:
        _keep(file, total.hexdigest())
    return total.hexdigest()


def check_loaded(file: File, mapped: bool = False) -> None:
    """Raises a ValueError where this process has mapped another file by this path,
    as llama.cpp maps its models: it was replaced since, and the bytes on disk are
    not those that are computed with. ``mapped``: llama.cpp has the file mapped for
    certain, so that it is an error too if nothing has; files that were read and not
    mapped pass otherwise."""
    try:
        maps = Path("/proc/self/maps").read_text(errors="replace")
    except OSError:
        return  # not Linux
    there = False
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6:
            continue
        major, minor = (int(n, 16) for n in fields[3].split(":"))
        path, same = fields[5], int(fields[4]) == file.inode
        if path == file.path + " (deleted)" or (path == file.path and not same):
            raise ValueError(f"{file.path} was replaced since the model was loaded: load it again")
        # Some file systems have another device here than stat says.
        there = there or (same and (path == file.path or os.makedev(major, minor) == file.device))
    if mapped and not there:
        raise ValueError(
            f"{file.path} is not the file that the model was loaded from, which this process would have mapped: it was renamed "
            "and replaced since; load the model again. Where the library did not map it, give an Engine whose mapped is False"
        )


def _file(path: str, s: os.stat_result) -> File:
    return File(path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev)


def _place(file: File) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "kvstored" / "files" / (hashlib.sha256(os.fsencode(file.path)).hexdigest() + ".json")


def _kept(file: File) -> Optional[str]:
    try:
        kept = json.loads(_place(file).read_text())
        found = kept["sha256"]
        if kept["file"] == list(file) and re.fullmatch("[0-9a-f]{64}", found):
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none, or not what was written
    return None


def _keep(file: File, found: str) -> None:
    """Remembers a hash, where there is a place for it."""
    place = _place(file)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as f:
            json.dump({"file": list(file), "sha256": found}, f)
        os.replace(f.name, place)
    except OSError:
        pass  # it is computed again
