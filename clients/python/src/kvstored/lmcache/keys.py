"""LMCache's keys: the space of each, and what it is called there."""

import json
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from .._engine import short
from ..prompt import Space

#: Request configs that are hints: docs/protocol-more.md says what they do.
HINTS = (
    "session", "turn_over", "priority", "expected_output_tokens", "store", "retain_priority", "retain_seconds",
    "retain_start", "retain_end", "covers_output", "prompt_tokens", "scope", "pause_seconds", "max_age_seconds", "prefill_depth",
    "kv_hints",
)  # fmt: skip


class Names(NamedTuple):
    """What the user gave for an engine's chunks."""

    chunk_tokens: int
    revision: str = ""
    namespace: str = ""


class Family(NamedTuple):
    """Keys of one call that are of one space."""

    space: Space
    at: List[int]  # which of the keys
    names: List[bytes]


def families(keys: Sequence[Any], names: Names) -> List[Family]:
    """The keys of the engine's process by space, in their order. A ValueError says
    what is no key."""
    found: Dict[Tuple[str, ...], Family] = {}
    for i, key in enumerate(keys):
        parts = key.to_string().split("@")
        if len(parts) < 5:
            raise ValueError(f"{key.to_string()!r} is no key of LMCache: it has {len(parts)} parts")
        which = (*parts[:3], *parts[4:])
        family = found.get(which)
        if family is None:
            family = found[which] = Family(_space(which, names), [], [])
        family.at.append(i)
        family.names.append(parts[3].encode())
    return list(found.values())


def _space(parts: Sequence[str], names: Names) -> Space:
    model, world, worker, dtype, *more = parts
    rank = max(0, int(worker))
    return Space(
        model=short(model),
        revision=names.revision,
        dtype=short(dtype) or "unknown",
        chunk_tokens=names.chunk_tokens,
        method="given:lmcache",
        world=max(1, int(world), rank + 1),
        worker=rank,
        group=short("@".join(more)),
        tags=(("namespace", names.namespace),) if names.namespace else (),
    )


class Grid(NamedTuple):
    """Chunks of one call of which each rank and group has an object."""

    spaces: List[Space]
    names: List[bytes]  # of the chunks
    at: List[List[int]]  # of each chunk, which of the keys, by space


def grids(keys: Sequence[Any], names: Names) -> List[Grid]:
    """The keys of the multi-process server: one grid where all ranks and groups have
    the same chunks, else one for each."""
    found: Dict[Tuple[Any, ...], Grid] = {}
    for i, key in enumerate(keys):
        which = (key.model_name, key.kv_rank, key.object_group_id, key.cache_salt)
        grid = found.get(which)
        if grid is None:
            grid = found[which] = Grid([_object_space(which, names)], [], [])
        grid.names.append(bytes(key.chunk_hash))
        grid.at.append([i])
    each = list(found.values())
    whole = {g.spaces[0].salt for g in each}
    if len(each) < 2 or len(whole) > 1 or any(g.names != each[0].names for g in each):
        return each
    together = [[i for (i,) in chunk] for chunk in zip(*(g.at for g in each))]
    return [Grid([g.spaces[0] for g in each], each[0].names, together)]


def _object_space(which: Tuple[Any, ...], names: Names) -> Space:
    model, rank, group, salt = which
    world, worker, local_world, local = (int(rank) >> shift & 0xFF for shift in (24, 16, 8, 0))
    tags = [("local", f"{local}/{local_world}"), ("namespace", names.namespace)]
    return Space(
        model=short(model),
        revision=names.revision,
        dtype="object",
        chunk_tokens=names.chunk_tokens,
        method="given:lmcache-mp",
        world=max(1, world, worker + 1),
        worker=worker,
        group=str(group) if group else "",
        salt=short(salt),
        tags=tuple((k, v) for k, v in tags if v),
    )


def hints(key: Any) -> List[Tuple[str, str]]:
    """What the request configs of a key say of the future. Of vLLM's requests LMCache takes
    only names behind ``lmcache.``, so a hint may have one: ``lmcache.kvstored.session``."""
    configs = getattr(key, "request_configs", None)
    if not isinstance(configs, dict):
        return []
    said = ((name, configs.get(name, configs.get("lmcache.kvstored." + name))) for name in HINTS)
    return [(name, _text(value)) for name, value in said if value is not None]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
