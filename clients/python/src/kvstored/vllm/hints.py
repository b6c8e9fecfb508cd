"""What a request of vLLM says of the future, as configs of the daemon's."""

import dataclasses
import json
from typing import Any, List, Tuple

#: In a request's ``kv_transfer_params``: an object of names and values, docs/protocol-more.md has them.
PARAM = "kvstored"

Configs = List[Tuple[str, str]]


def configs(context: Any) -> Configs:
    """Empty for a request that says nothing. What is no text, number or flag is left
    out; what the daemon does not know it says itself."""
    params = getattr(context, "kv_transfer_params", None)
    own = params.get(PARAM) if isinstance(params, dict) else None
    said = {str(k): v for k, v in own.items()} if isinstance(own, dict) else {}
    found = [(k, _text(v)) for k, v in sorted(said.items()) if isinstance(v, (str, int, float))]
    envelope = _plain(getattr(context, "kv_hints", None))
    return [*found, ("kv_hints", json.dumps(envelope, default=str))] if envelope else found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(envelope: Any) -> Any:
    """As JSON has it; None for what is of no kind that is known."""
    if isinstance(envelope, dict):
        return envelope
    if dataclasses.is_dataclass(envelope) and not isinstance(envelope, type):
        return dataclasses.asdict(envelope)
    dump = getattr(envelope, "model_dump", None)  # pydantic
    return dump(mode="json") if callable(dump) else None
