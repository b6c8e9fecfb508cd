"""vLLM's own classes for the tests where they can be imported, else the stand-ins of the newest form."""

import inspect
import itertools
import json
import os
import re
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext
from vllm.v1.kv_offload.tiering import base as tiering

from .daemon import ROOT

HIT, MISS, RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY
STEP_END = (ScheduleEndContext((), ()),)
needs_vllm = unittest.skipIf(not hasattr(tiering, "__file__"), "vLLM is not on the path: only stand-ins are tested")


def context(name: str = "request") -> Any:
    return ReqContext(req_id=name)


def transfer(id: int, keys: List[bytes], rows: List[int], load: bool = False) -> Any:
    """A job as the manager hands it over."""
    return tiering.TransferJob(job_id=id, keys=keys, chunk_ids=rows, is_promotion=load, req_context=context())


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
        groups=(make("OffloadingGroupConfig", tokens_per_block=16, layer_names=("layer.0", "layer.1"), group_id=0),),
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


def given(connector: str) -> Dict[str, Any]:
    """The configuration that docs/engines/vllm.md tells users to give, with this connector."""
    lines = re.findall(r"--kv-transfer-config '(.*)'", Path(ROOT, "docs/engines/vllm.md").read_text())
    (found,) = [line for line in map(json.loads, lines) if line["kv_connector"] == connector]
    return found


def documented() -> Dict[str, Any]:
    """That of vLLM's connector, with the tier."""
    return given("OffloadingConnector")["kv_connector_extra_config"]


def spec_of(form: Any, tier: Dict[str, Any]) -> Any:
    """What a tier is given in a form of contracts/vllm.json, with its line of the configuration."""
    extra = {**documented(), "secondary_tiers": [tier]}
    events = SimpleNamespace(enable_kv_cache_events=True, self_describing_kv_events=False)
    config = SimpleNamespace(**{**vars(offloading_config()), "extra_config": extra})
    return SimpleNamespace(config=config, extra_config=extra, kv_events_config=events, blocks_per_chunk=1)


_engines = itertools.count()


def offloading_spec(socket: str, rows: int, row: int) -> Any:
    """vLLM's TieringOffloadingSpec with the documented configuration."""
    from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

    extra = {**documented(), "cpu_bytes_to_use": rows * row}
    line = {**extra["secondary_tiers"][0], "socket": socket, "lookup_timeout": 60, "enable_kv_events": True}
    extra["secondary_tiers"] = [line]
    engine = f"kvstored-test-{os.getpid()}-{next(_engines)}"
    events = dict(enable_kv_cache_events=True)
    return TieringOffloadingSpec(
        offloading_config(extra_config=extra, engine_id=engine, worker_kv_bytes_per_block=row // 2, **events)
    )
