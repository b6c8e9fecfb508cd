"""An engine that a test drives, by e2e/engines/lines.py. Its scheduler is a process of its own."""

from __future__ import annotations

import time
from typing import Any, Dict, List

import lines


class Engine:
    def __init__(self, model: str, options: Dict[str, Any]) -> None:
        import sglang

        usual = dict(
            device="cpu", dtype="float32", attention_backend="torch_native", skip_tokenizer_init=True, page_size=16,
            disable_overlap_schedule=True, disable_cuda_graph=True, mem_fraction_static=0.1, max_total_tokens=4096,
            max_running_requests=4, random_seed=1, log_level="info",
        )  # fmt: skip
        self.engine = sglang.Engine(model_path=model, **{**usual, **options})

    def generate(self, prompts: List[List[int]], tokens: int = 8, together: bool = False, **more: Any) -> Dict[str, Any]:
        """The answers, and from where tokens of the prompts came. One prompt at a time,
        unless ``together``. ``aborted`` are those that SGLang gave up. ``more``: what SGLang
        takes with a prompt."""
        began = time.perf_counter()
        params = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
        outputs = [
            output
            for part in ([prompts] if together else [[one] for one in prompts])
            for output in self._ask(input_ids=part, sampling_params=params, return_logprob=True, **more)
        ]
        cached: Dict[str, int] = {}
        for output in outputs:
            for source, n in (output["meta_info"].get("cached_tokens_details") or {}).items():
                if isinstance(n, int) and n:
                    cached[source] = cached.get(source, 0) + n
        return {
            "answers": [
                {"ids": o["output_ids"], "logprobs": [float(row[0]).hex() for row in o["meta_info"].get("output_token_logprobs") or ()]}
                for o in outputs
            ],
            "aborted": [o["meta_info"]["finish_reason"]["type"] == "abort" for o in outputs],
            "tokens": [o["meta_info"]["cached_tokens"] for o in outputs],
            "cached": cached,
            "seconds": time.perf_counter() - began,
        }

    def _ask(self, **what: Any) -> List[Dict[str, Any]]:
        """As Engine.generate, which takes no ``extra_key``; SGLang's HTTP server does."""
        from sglang.srt.managers.io_struct import GenerateReqInput

        answers = self.engine.tokenizer_manager.generate_request(GenerateReqInput(**what), None)
        return self.engine.loop.run_until_complete(answers.__anext__())

    def flush(self) -> bool:
        """Forgets what the engine itself has, once its copies to the host and on to the store have
        ended: while they are under way SGLang refuses. Engine.flush_cache does not wait."""
        flushed = self.engine.loop.run_until_complete(self.engine.tokenizer_manager.flush_cache(timeout_s=60))
        return bool(flushed.success)


if __name__ == "__main__":
    lines.quiet()
    engine = lines.serve(Engine)
    if engine is not None:
        engine.engine.shutdown()
