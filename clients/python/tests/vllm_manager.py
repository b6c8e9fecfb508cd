"""A stand-in for vLLM's TieringOffloadingManager, of any form of contracts/vllm.json.

It makes the calls of a tier that the form has, in their order, and asserts what
vLLM asserts. Its host memory holds some rows, the least recently used of which
give way; a row that a job or the GPU is using does not. No code of vLLM's.
"""

import collections
import random
from types import SimpleNamespace
from typing import Any, Collection, Dict, List, Optional

from .contracts import Form


class Row:
    def __init__(self, at: int) -> None:
        self.at, self.users, self.ready = at, 0, False


class Primary:
    """Host memory: which row has which key."""

    def __init__(self, rows: int, size: int) -> None:
        self.memory = memoryview(bytearray(rows * size)).cast("B", (rows, size))
        self._free = list(range(rows))
        self.rows: "collections.OrderedDict[bytes, Row]" = collections.OrderedDict()

    def get_kv_memoryview(self) -> memoryview:
        return self.memory

    def take(self, keys: Collection[bytes]) -> Optional[Dict[bytes, Row]]:
        """Rows for those of the keys that have none; None if there is no room."""
        wanted = [k for k in keys if k not in self.rows]
        idle = [k for k, row in self.rows.items() if row.ready and not row.users and k not in keys]
        if len(wanted) > len(self._free) + len(idle):
            return None
        for key in idle[: len(wanted) - len(self._free)] if len(wanted) > len(self._free) else ():
            self._free.append(self.rows.pop(key).at)
        self.rows.update((key, Row(self._free.pop())) for key in wanted)
        return {key: self.rows[key] for key in wanted}

    def drop(self, key: bytes) -> None:
        self._free.append(self.rows.pop(key).at)


class Manager:
    """Has the methods of vLLM's that the scheduler calls."""

    def __init__(self, form: Form, tier_class: Any, tier_config: Dict[str, Any], spec: Any, rows: int, size: int) -> None:
        self.form, self.primary_tier = form, Primary(rows, size)
        config = {k: v for k, v in tier_config.items() if k not in form.data["takes_out"]}
        (tier,) = form.run(
            "construct", tier_class, spec=spec, view=self.primary_tier.memory, type=tier_config["type"],
            detector=self.detector(tier_config), config=config,
        )  # fmt: skip
        base = form.stand_in("SecondaryTierManager")
        assert isinstance(tier, base), f"{tier_class} is no {base}"
        self.tier, self.secondary_tiers = tier, [tier]
        self._transfer_jobs: Dict[int, Any] = {}
        self._ids = 0
        self._pending: Dict[str, Dict[bytes, Row]] = {}  # promotions of this step, by request
        self._contexts: Dict[str, Any] = {}
        self._polled = False
        self.loads: List[Any] = []  # jobs so far

    def detector(self, tier_config: Dict[str, Any]) -> Any:
        return SimpleNamespace(slow=False) if "backpressure" in tier_config else None

    def _poll(self) -> None:
        if not self._polled:
            self._polled = True
            self._finished()

    def _finished(self) -> None:
        (results,) = self.form.run("poll", self.tier)
        for result in results:
            assert isinstance(result, self.form.stand_in("JobResult")), result
            job = self._transfer_jobs.pop(result.job_id, None)
            assert job is not None, f"job {result.job_id} was reported twice, or never submitted"
            loaded = getattr(result, "successful_keys", None)
            assert loaded is None or (job.is_promotion and not result.success and set(loaded) < set(job.keys))
            for key in job.keys:
                row = self.primary_tier.rows[key]
                row.users -= 1
                if job.is_promotion and (result.success or key in (loaded or ())):
                    row.ready = True
                elif job.is_promotion:
                    self.primary_tier.drop(key)

    def _submit(self, event: str, rows: Dict[bytes, Row], req_context: Any) -> None:
        self._ids += 1
        job = self.form.stand_in("TransferJob")(
            job_id=self._ids, keys=list(rows), chunk_ids=[row.at for row in rows.values()],
            is_promotion=event == "load", req_context=req_context,
        )  # fmt: skip
        for row in rows.values():
            row.users += 1
        self._transfer_jobs[job.job_id] = job
        self.loads += [job] if job.is_promotion else []
        assert self.form.run(event, self.tier, job=job) == [None]

    # ---- what the scheduler calls ----------------------------------------------

    def on_new_request(self, req_context: Any) -> None:
        for answer in self.form.run("request", self.tier, req_context=req_context):
            assert isinstance(answer, self.form.stand_in("RequestOffloadingContext")), answer

    def lookup(self, key: bytes, req_context: Any) -> Any:
        results = self.form.stand_in("LookupResult")
        self._poll()
        row = self.primary_tier.rows.get(key)
        if row is not None:
            self.primary_tier.rows.move_to_end(key)
            return results.HIT if row.ready else results.HIT_PENDING
        (answer,) = self.form.run("lookup", self.tier, key=key, req_context=req_context)
        assert answer in (results.HIT, results.MISS, results.RETRY), answer
        if answer != results.HIT:
            return answer
        taken = self.primary_tier.take([key])
        if taken is None:
            return results.MISS
        self._pending.setdefault(req_context.req_id, {}).update(taken)
        self._contexts[req_context.req_id] = req_context
        return results.HIT_PENDING

    def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        for request, rows in pending.items():
            self._submit("load", rows, self._contexts[request])
        self._polled = False

    def on_schedule_end(self, context: Any = None) -> None:
        self._poll()
        self.form.run("serve", self.tier, parent=SimpleNamespace())
        self._flush()
        self.form.run("step end", self.tier, context=context)

    def take_events(self) -> List[Any]:
        told = [event for events in self.form.run("events", self.tier) for event in events]
        assert all(isinstance(event, self.form.stand_in("OffloadingEvent")) for event in told), told
        return told

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Any:
        self._poll()
        taken = self.primary_tier.take(keys)
        if taken is None:
            return None
        ids = [row.at for row in taken.values()]
        return SimpleNamespace(keys_to_store=list(taken), store_spec=SimpleNamespace(block_ids=ids))

    def complete_store(self, keys: Collection[bytes], req_context: Any) -> None:
        """``keys`` have no order, as vLLM's have none."""
        shuffled = random.sample(sorted(keys), len(keys))
        for key in shuffled:
            self.primary_tier.rows[key].ready = True
        self._submit("store", {key: self.primary_tier.rows[key] for key in shuffled}, req_context)

    def prepare_load(self, keys: Collection[bytes], req_context: Any) -> Any:
        rows = [self.primary_tier.rows[key] for key in keys]
        assert all(row.ready for row in rows)
        for row in rows:
            row.users += 1
        return SimpleNamespace(block_ids=[row.at for row in rows])

    def complete_load(self, keys: Collection[bytes], req_context: Any) -> None:
        for key in keys:
            self.primary_tier.rows[key].users -= 1

    def touch(self, keys: Collection[bytes], req_context: Any) -> None:
        """Of no tier."""

    def on_request_finished(self, req_context: Any) -> None:
        self.form.run("finish", self.tier, req_context=req_context)

    def has_pending_work(self) -> bool:
        return any(self.form.run("idle", self.tier))

    def get_stats(self) -> Any:
        return next(iter(self.form.run("stats", self.tier)), None)

    def reset_cache(self) -> None:
        for rows in self._pending.values():  # these are not asked for any more
            for key in rows:
                self.primary_tier.drop(key)
        self._pending.clear()
        self.form.run("drain", self.tier)
        self._finished()
        assert not self._transfer_jobs, f"drained, and jobs {list(self._transfer_jobs)} have no result"
        for key in list(self.primary_tier.rows):
            self.primary_tier.drop(key)

    def shutdown(self) -> None:
        self.form.run("shutdown", self.tier)
