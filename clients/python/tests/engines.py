"""vLLM's own classes for the tests where they can be imported, stand-ins otherwise."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import re
import unittest
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import kvstored.vllm

from .daemon import ROOT

try:
    from vllm.v1.kv_offload.tiering import base as tiering
except ImportError:
    tiering = None

try:
    from vllm.v1.kv_offload.base import ReqContext
except ImportError:

    @dataclass
    class ReqContext:  # type: ignore[no-redef]
        req_id: str


try:
    from vllm.v1.kv_offload.base import ScheduleEndContext
except ImportError:
    ScheduleEndContext = None


@dataclass
class StandInJob:
    job_id: int
    keys: List[bytes]
    block_ids: Any
    is_promotion: bool
    req_context: Any


_Job = getattr(tiering, "TransferJob", None) or getattr(tiering, "JobMetadata", StandInJob)
OLD_RESULTS = SimpleNamespace(HIT=True, MISS=False, RETRY=None)
RESULTS: Any = kvstored.vllm.LookupResult or OLD_RESULTS
HIT, MISS, RETRY = RESULTS.HIT, RESULTS.MISS, RESULTS.RETRY
STEP_END = () if ScheduleEndContext is None else (ScheduleEndContext((), ()),)
needs_vllm = unittest.skipIf(tiering is None, "vLLM is not on the path: only stand-ins are tested")


def context(name: str = "request") -> Any:
    return ReqContext(req_id=name) if "req_id" in inspect.signature(ReqContext).parameters else ReqContext()


def transfer(id: int, keys: List[bytes], rows: List[int], load: bool = False) -> Any:
    """A job as the manager hands it over."""
    return _Job(job_id=id, keys=keys, block_ids=rows, is_promotion=load, req_context=context())


def vllm_config(**cache: Any) -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(model="llama", revision="main", dtype="bfloat16"),
        cache_config=SimpleNamespace(
            **{"block_size": 16, "cache_dtype": "auto", "prefix_caching_hash_algo": "sha256_cbor", **cache}
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=2,
            pipeline_parallel_size=1,
            prefill_context_parallel_size=1,
            decode_context_parallel_size=1,
            world_size=2,
        ),
    )


def offloading_config(**other: Any) -> Any:
    """An OffloadingConfig, which took the place of the whole configuration: vLLM's own, if it has one."""
    try:
        from vllm.v1.kv_offload import config as own
    except ImportError:
        own = None

    def make(kind: str, /, **fields: Any) -> Any:
        if own is None:
            return SimpleNamespace(**fields)
        known = inspect.signature(getattr(own, kind)).parameters
        return getattr(own, kind)(**{k: v for k, v in fields.items() if k in known})

    fields: Dict[str, Any] = dict(
        groups=(make("OffloadingGroupConfig", tokens_per_block=16, layer_names=("layer.0", "layer.1")),),
        worker_kv_bytes_per_block=0,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="test",
        model=make("OffloadingModelConfig", name="llama", dtype="bfloat16"),
        cache=make("OffloadingCacheConfig", tokens_per_hash=16, blocks_per_chunk=1),
        parallel=parallel(make),
        replicated_layout=False,
        canonical_layout=False,
    )
    return make("OffloadingConfig", **{**fields, **{k: v(make) if callable(v) else v for k, v in other.items()}})


def parallel(make: Any, tp: int = 2) -> Any:
    return make(
        "OffloadingParallelConfig",
        rank=0,
        world_size=tp,
        tp_size=tp,
        pp_size=1,
        pcp_size=1,
        dcp_size=1,
        data_parallel_index=0,
        data_parallel_size=1,
        data_parallel_rank_local=None,
        is_parallelism_agnostic=True,
    )


def documented() -> Dict[str, Any]:
    """The configuration of vLLM's connector that docs/engines.md tells users to give."""
    line = re.search(r"--kv-transfer-config '(.*)'", Path(ROOT, "docs/engines.md").read_text())
    return json.loads(line[1])["kv_connector_extra_config"]


def spec_of(form: Any, tier: Dict[str, Any]) -> Any:
    """What a tier is given in a form of contracts/vllm.json, with its line of the configuration."""
    extra = {**documented(), "secondary_tiers": [tier]}
    events = SimpleNamespace(enable_kv_cache_events=True, self_describing_kv_events=False)
    if form.data["spec"] == "spec.config":
        config = SimpleNamespace(**{**vars(offloading_config()), "extra_config": extra})
        return SimpleNamespace(config=config, extra_config=extra, kv_events_config=events, blocks_per_chunk=1)
    config = vllm_config()
    config.kv_transfer_config = SimpleNamespace(kv_connector_extra_config=extra)
    whole = SimpleNamespace(vllm_config=config, extra_config=extra, kv_events_config=events)
    return config if form.data["spec"] == "vllm_config" else whole


_engines = itertools.count()


def offloading_spec(socket: str, rows: int, row: int) -> Any:
    """vLLM's TieringOffloadingSpec with the documented configuration."""
    from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

    extra = {**documented(), "cpu_bytes_to_use": rows * row}
    line = {**extra["secondary_tiers"][0], "socket": socket, "lookup_timeout": 60, "enable_kv_events": True}
    extra["secondary_tiers"] = [line]
    engine = f"kvstored-test-{os.getpid()}-{next(_engines)}"
    if "config" in inspect.signature(TieringOffloadingSpec.__init__).parameters:
        events = dict(enable_kv_cache_events=True)
        config = offloading_config(extra_config=extra, engine_id=engine, worker_kv_bytes_per_block=row // 2, **events)
        return TieringOffloadingSpec(config)
    config = vllm_config()
    config.kv_transfer_config = SimpleNamespace(kv_connector_extra_config=extra, engine_id=engine)
    config.instance_id, config.kv_events_config = engine, None
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=16), layer_names=["layer.0"])
    tensors = [SimpleNamespace(size=row // 2, block_stride=0)]
    return TieringOffloadingSpec(
        config, SimpleNamespace(num_blocks=1, kv_cache_tensors=tensors, kv_cache_groups=[group])
    )
