"""LMCache's bitmap and what else its L2 adapters answer with, for tests without it."""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple


class Bitmap:
    """Beyond the end nothing is set, and nothing found."""

    def __init__(self, size: int) -> None:
        self._size, self._bits = size, [False] * size

    def set(self, index: int) -> None:
        if index < self._size:
            self._bits[index] = True

    def test(self, index: int) -> bool:
        return index < self._size and self._bits[index]

    def __len__(self) -> int:
        return self._size

    def popcount(self) -> int:
        return sum(self._bits)

    def get_indices_list(self) -> List[int]:
        return [i for i, yes in enumerate(self._bits) if yes]

    def gather(self, items: Sequence[Any]) -> List[Any]:
        return [item for i, item in enumerate(items) if self.test(i)]


class L2StoreResult(int):
    """The bytes, -1 for a failure."""

    def __new__(cls, success: bool, bytes_transferred: int) -> "L2StoreResult":
        return super().__new__(cls, bytes_transferred if success else -1)

    def is_successful(self) -> bool:
        return self >= 0


class KeyEntry(NamedTuple):
    key: Any
    size_bytes: int


class KeyListPage(NamedTuple):
    entries: Tuple[Any, ...]
    next_page_token: Optional[str]
