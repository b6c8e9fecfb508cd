"""What tells LMCache's chunks apart: whatever of it is left out, one engine gets another's bytes."""

import unittest
from typing import Any, Callable, Dict, Sequence

from kvstored.lmcache.keys import Names, families, grids

from .lmcache_engine import Key, ObjectKey, rank

NAMES = Names(256)
GIVEN = {"chunk tokens": NAMES._replace(chunk_tokens=512), "revision": NAMES._replace(revision="r"), "namespace": NAMES._replace(namespace="n")}


class Spaces(unittest.TestCase):
    def apart(self, of: Callable[[Sequence[Any], Names], Sequence[Any]], base: Any, changes: Dict[str, Any]) -> None:
        seen = {of([base], NAMES)[0]: "nothing"}
        keys = {what: (base._replace(**change), NAMES) for what, change in changes.items()}
        for what, (key, names) in {**keys, **{what: (base, names) for what, names in GIVEN.items()}}.items():
            (space,) = of([key], names)
            self.assertNotIn(space, seen, f"{what} is as {seen.get(space)}")
            seen[space] = what
        together = of([base, *(key for key, _ in keys.values())], NAMES)
        self.assertEqual(len(set(together)), 1 + len(keys))

    def test_of_the_plug_in(self) -> None:
        changes = {
            "model": dict(model_name="qwen"),
            "ranks": dict(world_size=2),
            "the other rank": dict(world_size=2, worker_id=1),
            "elements": dict(dtype="float16"),
            "layer, or a tag": dict(layer=3),
        }
        self.apart(lambda keys, names: [family.space for family in families(keys, names)], Key(b"k"), changes)

    def test_of_the_adapter(self) -> None:
        changes = {
            "model": dict(model_name="qwen"),
            "ranks": dict(kv_rank=rank(2, 0)),
            "the other rank": dict(kv_rank=rank(2, 1)),
            "a rank of each host": dict(kv_rank=2 << 24 | 1 << 8),
            "the other host": dict(kv_rank=2 << 24 | 1 << 16 | 1 << 8),
            "group": dict(object_group_id=1),
            "salt": dict(cache_salt="tenant"),
            "another": dict(cache_salt="other"),
        }
        self.apart(lambda keys, names: [space for grid in grids(keys, names) for space in grid.spaces], ObjectKey(b"k"), changes)

    def test_one_question_is_of_one_salt(self) -> None:
        """Ranks and groups are asked for together, tenants are not."""
        chunks = [b"a", b"b"]
        ranks = [ObjectKey(chunk, kv_rank=rank(2, worker)) for chunk in chunks for worker in (0, 1)]
        (grid,) = grids(ranks, NAMES)
        self.assertEqual((len(set(grid.spaces)), grid.names, grid.at), (2, chunks, [[0, 1], [2, 3]]))
        salts = [ObjectKey(chunk, cache_salt=salt) for chunk in chunks for salt in ("", "tenant")]
        self.assertEqual([(len(grid.spaces), grid.names) for grid in grids(salts, NAMES)], [(1, chunks)] * 2)
