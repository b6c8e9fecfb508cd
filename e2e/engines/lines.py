"""How a test drives an engine: lines of JSON on standard input, an answer to each on
standard output. The first line has the engine's options, each further one what to do. What
the engine prints goes to standard error."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable

_answers: Any = None


def quiet() -> None:
    """Before the engine is imported."""
    global _answers
    _answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)


def serve(make: Callable[..., Any]) -> Any:
    """Returns the engine when there are no more lines."""
    engine: Any = None
    for line in sys.stdin:
        said = json.loads(line)
        if engine is None:
            engine, answer = make(**said), True
        else:
            answer = getattr(engine, said.pop("do"))(**said)
        print(json.dumps(answer), file=_answers)
    return engine
