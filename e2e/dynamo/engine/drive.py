"""Dynamo's hashes and its tree of prefixes, as a test drives them."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

import lines

lines.quiet()

from dynamo._core import RadixTree, compute_block_hash_for_seq  # noqa: E402


class Runtime:
    def __init__(self) -> None:
        self.tree, self._events = RadixTree(), 0

    def hashes(self, tokens: List[int], size: int, lora: str, salt: str, eagle: bool = False, images: Optional[List[List[int]]] = None) -> List[int]:
        infos = None
        if images is not None:  # those of each block, by their hashes
            infos = [{"mm_objects": [{"mm_hash": image, "offsets": []} for image in block]} if block else None for block in images]
        return compute_block_hash_for_seq(tokens, size, infos, lora or None, eagle, salt or None)

    def begin(self) -> None:
        """A new tree."""
        self.tree, self._events = RadixTree(), 0

    def event(self, worker: int, data: Any) -> bool:
        """Whether Dynamo takes an event."""
        self._events += 1
        try:
            self.tree.apply_event(worker, json.dumps({"event_id": self._events, "data": data, "dp_rank": 0}).encode())
        except RuntimeError:
            return False
        return True

    def find(self, local: List[int]) -> Dict[str, int]:
        """How many leading blocks each worker has."""
        found = self.tree.find_matches(local, False).scores
        return {str(worker[0] if isinstance(worker, tuple) else worker): n for worker, n in found.items()}


if __name__ == "__main__":
    lines.serve(Runtime)
