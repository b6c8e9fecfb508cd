"""Makes the calls of vLLM's scheduler on a tiering manager, vLLM's own or a
stand-in, with rows of host memory in place of a GPU's copies."""

import hashlib
import time
from typing import Any, Dict, Iterable, List, Optional

from . import engines
from .contracts import Form
from .daemon import until
from .vllm_manager import Manager

ROW = 96 * 1024


def keys(name: str, n: int, group: int = 0) -> List[bytes]:
    return [hashlib.sha256(f"{name}/{i}".encode()).digest() + group.to_bytes(4, "big") for i in range(n)]


def row(key: bytes) -> bytes:
    return hashlib.shake_128(key).digest(ROW)


class Engine:
    def __init__(self, manager: Any, results: Any, make_context: Any, step_end: Any) -> None:
        self.manager, self.results, self._context, self._step_end = manager, results, make_context, step_end
        (self.tier,) = manager.secondary_tiers
        self.memory = manager.primary_tier.get_kv_memoryview().cast("B")
        self.events: List[Any] = []

    @classmethod
    def real(cls, socket: str, rows: int) -> "Engine":
        """On vLLM's own manager, made of the documented configuration."""
        manager = engines.offloading_spec(socket, rows, ROW).get_manager()
        return cls(manager, engines.LookupResult, engines.context, engines.STEP_END)

    @classmethod
    def of(cls, form: Form, module: Any, socket: str, rows: int, **tier: Any) -> "Engine":
        """On the stand-in of a form; ``module`` is kvstored.vllm under it."""
        line = {**engines.documented()["secondary_tiers"][0], "socket": socket, "lookup_timeout": 60, "transfer_timeout": 60, **tier}
        spec = engines.spec_of(form, line)
        manager = Manager(form, module.KvstoredTier, line, spec, rows, ROW)
        end = form.stand_in("ScheduleEndContext")
        return cls(manager, form.stand_in("LookupResult"), form.stand_in("ReqContext"), (end((), ()),))

    def request(self, name: str) -> Any:
        request = self._context(name)
        self.manager.on_new_request(request)
        return request

    def finish(self, request: Any) -> None:
        self.manager.on_request_finished(request)

    def step(self) -> None:
        self.manager.on_schedule_end(*self._step_end)
        self.events += list(self.manager.take_events())

    def store(self, wanted: List[bytes], request: Any) -> int:
        """How many of them were not in host memory yet, and are now."""
        output = self.manager.prepare_store(wanted, request)
        for key, at in zip(output.keys_to_store, output.store_spec.block_ids):
            self.memory[at * ROW : (at + 1) * ROW] = row(key)
        self.manager.complete_store(set(output.keys_to_store), request)
        return len(output.keys_to_store)

    def ask(self, wanted: Iterable[bytes], request: Any) -> Dict[bytes, Any]:
        """The answers, once none of them is RETRY; a step at a time."""
        deadline, answers = time.monotonic() + 60, dict.fromkeys(wanted, self.results.RETRY)
        while self.results.RETRY in answers.values() and time.monotonic() < deadline:
            answers = {key: self.manager.lookup(key, request) for key in answers}
            self.step()
            time.sleep(0.001)
        return answers

    def run(self, wanted: List[bytes], request: Any) -> int:
        """How long the run is that is in host memory, once nothing is on its way. It is
        asked for from the start in every step, as vLLM does."""
        deadline, n, waits = time.monotonic() + 60, 0, True
        while waits and time.monotonic() < deadline:
            n, waits = 0, False
            for key in wanted:
                answer = self.manager.lookup(key, request)
                if answer == self.results.MISS:
                    break
                waits = waits or answer != self.results.HIT
                n += 1
            if waits:
                self.step()
                time.sleep(0.001)
        return n

    def load(self, wanted: List[bytes], request: Any) -> List[bytes]:
        """The blocks of the longest run that is there."""
        run = wanted[: self.run(wanted, request)]
        rows = self.manager.prepare_load(run, request).block_ids
        blocks = [bytes(self.memory[at * ROW : (at + 1) * ROW]) for at in rows]
        self.manager.complete_load(run, request)
        return blocks

    @property
    def jobs(self) -> Dict[int, Any]:
        """Those that are under way."""
        found: Optional[Dict[int, Any]] = getattr(self.manager, "_transfer_jobs", None)
        return self.manager._jobs if found is None else found

    def settle(self) -> None:
        """Until no job is under way."""
        until(lambda: not self.jobs or self.step())

    def close(self) -> None:
        self.memory.release()
        self.manager.shutdown()
