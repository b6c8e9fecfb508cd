"""An engine that a test drives, by e2e/engines/lines.py."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List

import lines

lines.quiet()

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.config import KVEventsConfig, KVTransferConfig  # noqa: E402
from vllm.lora.request import LoRARequest  # noqa: E402


class Engine:
    def __init__(self, model: str, connector: Dict[str, Any], options: Dict[str, Any]) -> None:
        transfer = KVTransferConfig(kv_role="kv_both", **connector) if connector else None
        usual = dict(
            dtype="float32", enforce_eager=True, max_model_len=8192, max_num_seqs=8, block_size=32, disable_log_stats=False,
            distributed_executor_backend="uni", prefix_caching_hash_algo="sha256_cbor",
        )  # fmt: skip
        if "kv_events_config" in options:
            options["kv_events_config"] = KVEventsConfig(**options["kv_events_config"])
        self.llm = LLM(model=model, kv_transfer_config=transfer, **{**usual, **options})
        self._models = os.path.dirname(model)
        self._requests = self._steps = 0
        step = self.llm.llm_engine.step

        def counted() -> Any:
            self._steps += 1
            return step()

        self.llm.llm_engine.step = counted

    def generate(self, prompts: List[List[int]], tokens: int = 8, together: bool = False, salt: str = "", adapter: int = 0, folder: str = "") -> Dict[str, Any]:
        """The answers, and from where tokens of the prompts came. One prompt at a time,
        unless ``together``. ``folder``: of the adapters, where they are not beside the model."""
        lora = LoRARequest(f"adapter-{adapter}", adapter, f"{folder or self._models}/adapter-{adapter}") if adapter else None
        params = SamplingParams(temperature=0, max_tokens=tokens, logprobs=1, ignore_eos=True)
        inputs: List[Any] = [{"prompt_token_ids": p, **({"cache_salt": salt} if salt else {})} for p in prompts]
        before, steps, processor, began = self._sources(), self._steps, time.process_time(), time.perf_counter()
        outputs = [
            output
            for part in ([inputs] if together else [[one] for one in inputs])
            for output in self.llm.generate(part, params, use_tqdm=False, lora_request=lora)
        ]
        seconds, processor = time.perf_counter() - began, time.process_time() - processor
        return {
            "answers": [
                {
                    "ids": list(o.outputs[0].token_ids),
                    "logprobs": [float(next(iter(step.values())).logprob).hex() for step in o.outputs[0].logprobs],
                }
                for o in outputs
            ],
            "cached": {source: int(n - before.get(source, 0)) for source, n in self._sources().items() if n != before.get(source, 0)},
            "seconds": seconds,
            "steps": self._steps - steps,
            "processor": processor,
        }

    def _sources(self) -> Dict[str, float]:
        return {m.labels["source"]: m.value for m in self.llm.get_metrics() if m.name == "vllm:prompt_tokens_cached_by_source"}

    def step(self, n: int = 20) -> None:
        """Stores of a step begin with the next one, also where there is no request."""
        for _ in range(n):
            self.llm.llm_engine.step()
            time.sleep(0.002)

    def reset(self, connector: bool = True) -> bool:
        """Forgets what the engine itself, and vLLM's host pool, has."""
        return self.llm.reset_prefix_cache(reset_connector=connector)

    def metrics(self) -> Dict[str, float]:
        found: Dict[str, float] = {}
        for m in self.llm.get_metrics():
            value = getattr(m, "value", getattr(m, "sum", None))
            labels = ",".join(v for k, v in sorted(m.labels.items()) if k not in ("engine", "model_name"))
            if isinstance(value, (int, float)):
                found[f"{m.name}{{{labels}}}" if labels else m.name] = value
        return found

    def aborted(self, prompts: List[List[int]], abort: List[int], after: int, tokens: int = 8) -> Dict[str, Any]:
        """All prompts at once, of which some are aborted after so many steps: the answers of
        the others, by number."""
        engine = self.llm.llm_engine
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        numbers: Dict[str, int] = {}
        for i, prompt in enumerate(prompts):
            self._requests += 1
            name = f"request-{self._requests}"
            engine.add_request(name, {"prompt_token_ids": prompt}, params)  # vLLM's own name of it is another
            numbers[name] = i
        ids: Dict[int, List[int]] = {}
        steps = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    ids[numbers[output.request_id]] = list(output.outputs[0].token_ids)
            steps += 1
            if steps == after:
                engine.abort_request([name for name, i in numbers.items() if i in abort])
        return {"ids": {str(i): ids[i] for i in ids if i not in abort}}


if __name__ == "__main__":
    lines.serve(Engine)
