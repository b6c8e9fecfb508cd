"""A tier without vLLM's manager, and the calls that it gets one by one."""

import threading
import time
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

from kvstored.vllm import KvstoredTier

from . import engines
from .daemon import Served, until
from .engines import RETRY, context, offloading_config, transfer
from .vllm_engine import ROW

BLOCKS = 64


def view() -> memoryview:
    return memoryview(bytearray(BLOCKS * ROW)).cast("B", (BLOCKS, ROW))


def lookups(tier: KvstoredTier, wanted: List[bytes], within: float = 60.0) -> List[Any]:
    """As the scheduler asks: again and again, until nothing is pending."""
    deadline = time.monotonic() + within
    while True:
        answers = [tier.lookup(k, context()) for k in wanted]
        tier.on_schedule_end(*engines.STEP_END)
        if RETRY not in answers or time.monotonic() > deadline:
            return answers
        time.sleep(0.002)


def finished(tier: KvstoredTier, job: int) -> bool:
    results: List[Any] = []
    until(lambda: results or results.extend(tier.get_finished_jobs()), "the job does not finish")
    assert results[0].job_id == job
    return results[0].success


class Tiers(Served):
    def tier(self, memory: memoryview, socket: str = "", **options: Any) -> KvstoredTier:
        """One that a busy machine makes miss nothing: what is answered has a minute."""
        options = {
            "offloading_spec": SimpleNamespace(config=offloading_config()),
            "tier_type": "KvstoredTier",
            "lookup_timeout": 60,
            "transfer_timeout": 60,
            **options,
        }
        tier = KvstoredTier(primary_kv_view=memory, socket=socket or self.daemon.socket, **options)
        self.addCleanup(tier.shutdown)
        return tier


def scheduler_calls(
    tier: KvstoredTier, wanted: List[bytes], job: int, done: Optional[List[int]] = None
) -> Dict[str, Callable[[], Any]]:
    """The calls of vLLM's TieringOffloadingManager in a step, with two jobs, in
    their order. Jobs that have ended are added to ``done``."""
    rows, request, done = list(range(len(wanted))), context(), [] if done is None else done

    def finished(ask: Callable[[], Any]) -> None:
        done.extend(r.job_id for r in ask())

    calls = {
        "on_new_request": lambda: tier.on_new_request(request),
        "get_finished_jobs": lambda: finished(tier.get_finished_jobs),
        "lookup": lambda: [tier.lookup(k, request) for k in wanted],
        "touch": lambda: tier.touch(wanted, request),
        "submit_store": lambda: tier.submit_store(transfer(job, wanted, rows)),
        "serve_external_requests": lambda: tier.serve_external_requests(SimpleNamespace()),
        "submit_load": lambda: tier.submit_load(transfer(job + 1, wanted, rows, load=True)),
        "on_schedule_end": lambda: tier.on_schedule_end(*engines.STEP_END),
        "on_request_finished": lambda: tier.on_request_finished(request),
        "has_pending_work": lambda: tier.has_pending_work(),
        "take_events": lambda: list(tier.take_events()),
        "get_stats": lambda: tier.get_stats(),
        "config_info": lambda: tier.config_info(),
    }
    return {name: call for name, call in calls.items() if hasattr(tier, name)}


def not_returned(calls: Dict[str, Callable[[], Any]]) -> List[str]:
    """The calls that do not return, given more time than any machine needs."""
    returned: List[str] = []

    def run() -> None:
        for name, call in calls.items():
            call()
            returned.append(name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    return [name for name in calls if name not in returned]


def ended(tier: KvstoredTier, done: List[int], n: int) -> List[int]:
    """The jobs that have ended, n of them at least, with those that are told of already."""
    until(lambda: len(done) >= n or done.extend(r.job_id for r in tier.get_finished_jobs()))
    return sorted(done)
