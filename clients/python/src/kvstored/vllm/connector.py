"""vLLM's OffloadingConnector, for which a load that failed is no end of the engine.

    "kv_connector": "KvstoredConnector", "kv_connector_module_path": "kvstored.vllm.connector"

OffloadingConnector asserts that no load fails. This one hands those that did to the
scheduler, which computes these requests.
"""

import dataclasses
from typing import Any, Set

from .._engine import find
from .pool import Manager
from .transfers import PoolWorker

_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector"
OffloadingConnector: Any = find(_CONNECTOR, "OffloadingConnector", newer=True) or object


class KvstoredConnector(OffloadingConnector):
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        vllm_config.kv_transfer_config.kv_load_failure_policy = "recompute"  # read after this
        side: Any = self.connector_scheduler
        if side is not None and isinstance(side.manager, Manager):
            side.manager.tell(getattr(side.config, "kv_group_configs", ()), bool(getattr(self, "_bounding_group_ids", ())))

    def register_kv_caches(self, kv_caches: Any) -> None:
        self.connector_worker.spec.caches = kv_caches
        super().register_kv_caches(kv_caches)

    def get_kv_connector_stats(self) -> Any:
        side: Any = self.connector_worker
        worker = None if side is None else side.worker
        return worker.counters.stats() if isinstance(worker, PoolWorker) else super().get_kv_connector_stats()

    def get_transfer_results(self, finished_req_ids: Set[str]) -> Any:
        side: Any = self.connector_worker
        worker = side.worker
        if not isinstance(worker, PoolWorker):
            return super().get_transfer_results(finished_req_ids)
        worker.hands_failures = True
        requests = dict(side._load_jobs)  # each is forgotten as it ends
        results = super().get_transfer_results(finished_req_ids)
        failed = {requests[job] for job in worker.failed}
        return dataclasses.replace(results, failed_recving=results.failed_recving | failed)
