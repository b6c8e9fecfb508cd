"""Stand-ins of SGLang's host pools for the tests: bytes in buffers of their own,
named as SGLang names the classes, since that is how their nature is known."""

import hashlib
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

from kvstored.memory import address

try:
    import torch
except ImportError:
    torch = None


class HostPool:
    """Pages of ``page_size`` slots; each has a piece in every buffer."""

    layer_shard_enabled = False

    def __init__(
        self,
        pages: int,
        page_size: int,
        pieces: List[int],
        layout: str = "page_first",
        dtype: str = "bfloat16",
        device: Optional[Any] = None,
        dcp: Tuple[int, int] = (0, 1),
        layers: Tuple[int, int] = (0, 8),
    ) -> None:
        self.page_size, self.layout, self.pieces = page_size, layout, pieces
        self.dtype, self.device_pool = dtype, device or SimpleNamespace(dtype=dtype)
        self.dcp_rank, self.dcp_size = dcp
        self.start_layer, self.end_layer = layers
        self.size = pages * page_size
        self.buffers = [bytearray(pages * size) for size in pieces]

    def get_page_buffer_meta(self, indices: Any) -> Any:
        numbers = [int(i) for i in indices]
        assert len(numbers) % self.page_size == 0
        pages = [numbers[i] // self.page_size for i in range(0, len(numbers), self.page_size)]
        pointers = [address(b) + p * size for p in pages for b, size in zip(self.buffers, self.pieces)]
        return pointers, self.pieces * len(pages)

    def maybe_dcp_kernel_indices(self, indices: Any) -> Any:
        mine = indices[self.dcp_rank :: self.dcp_size]
        return [int(i) // self.dcp_size for i in mine]

    def slots(self, pages: List[int]) -> Any:
        """The indices of pages as SGLang hands them over: of all slots, those of other ranks too."""
        wide = self.page_size * self.dcp_size
        return tensor([p * wide + t for p in pages for t in range(wide)])

    def page(self, p: int) -> bytes:
        return b"".join(bytes(b[p * size : (p + 1) * size]) for b, size in zip(self.buffers, self.pieces))

    def fill(self, p: int, value: bytes) -> None:
        at = 0
        for b, size in zip(self.buffers, self.pieces):
            b[p * size : (p + 1) * size] = value[at : at + size]
            at += size

    def wipe(self) -> None:
        for b in self.buffers:
            b[:] = bytes(len(b))

    @property
    def bytes_of_page(self) -> int:
        return sum(self.pieces)


class MHATokenToKVPoolHost(HostPool):
    pass


class MHATokenToKOnlyPoolHost(HostPool):
    pass


class MLATokenToKVPoolHost(HostPool):
    pass


class DSAIndexerPoolHost(HostPool):
    pass


class MambaPoolHost(HostPool):
    temporal_dtype = "float32"


class DeepSeekV4PagedHostPool(HostPool):
    pass


class DeepSeekV4StateHostPool(HostPool):
    pass


class LogicalHostPool(HostPool):
    """Page numbers without bytes."""

    def __init__(self, pages: int, page_size: int, **more: Any) -> None:
        super().__init__(pages, page_size, [], "layer_first", "uint8", **more)
        self.kv_buffer, self.size_per_token = None, 0

    def get_page_buffer_meta(self, indices: Any) -> Any:
        return None


def chain(name: str, n: int) -> List[str]:
    return [hashlib.sha256(f"{name}/{i}".encode()).hexdigest() for i in range(n)]


def tensor(numbers: List[int]) -> Any:
    return numbers if torch is None else torch.tensor(numbers, dtype=torch.int64)


def config(model: str, *, mla: bool = False, **fields: Any) -> Any:
    known: Dict[str, Any] = dict(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        dp_rank=0,
        is_mla_model=mla,
        enable_storage_metrics=False,
        is_page_first_layout=True,
        model_name=model,
        tp_lcm_size=None,
        should_split_heads=False,
        extra_config=None,
    )
    return SimpleNamespace(**{**known, **fields})


def transfer(name: str, keys: Any, indices: Any = None, policy: str = "all_pages", source: Any = None) -> Any:
    fields = dict(keys=keys, host_indices=indices, device_indices=None, nodes_to_load=None)
    return SimpleNamespace(name=name, hit_policy=policy, indices_from_pool=source, **fields)
