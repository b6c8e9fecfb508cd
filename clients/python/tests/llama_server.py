"""A stand-in for llama-server: its calls for tokens, completions and slots, without
a model. A slot's state is its tokens, as text, and padding. What it was asked and
how much of each prompt it had is written down."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, List

from .llama_engine import prefix


class LlamaServer:
    """Use it in a ``with`` block. ``fail``: calls that answer 400."""

    def __init__(self, folder: str, padding: int = 0) -> None:
        self.folder, self.padding = Path(folder), padding
        self.slots: Dict[int, List[int]] = {}
        self.calls: List[str] = []
        self.fail: List[str] = []
        of = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = of.answer(self.path, body)
                raw = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def answer(self, path: str, body: Dict[str, Any]) -> "tuple[int, Dict[str, Any]]":
        call, _, action = path.partition("?action=")
        name = action or call.strip("/")
        self.calls.append(name)
        if name in self.fail:
            return 400, {"error": {"code": 400, "message": "as scripted"}}
        if name == "tokenize":
            return 200, {"tokens": [1] + list(body["content"].encode())}
        if name == "completion":
            return 200, self._complete(body)
        slot, file = int(call.rpartition("/")[2]), self.folder / body["filename"]
        if name == "save":
            file.write_bytes(json.dumps(self.slots[slot]).encode().ljust(self.padding))
            return 200, {"id_slot": slot, "filename": file.name, "n_saved": len(self.slots[slot])}
        self.slots[slot] = json.loads(file.read_bytes())
        return 200, {"id_slot": slot, "filename": file.name, "n_restored": len(self.slots[slot])}

    def _complete(self, body: Dict[str, Any]) -> Dict[str, Any]:
        prompt, slot = body["prompt"], body["id_slot"]
        cached = min(prefix(self.slots.get(slot, []), prompt), len(prompt) - 1)
        said = [65 + (sum(prompt) + i) % 26 for i in range(body.get("n_predict", 4))]
        self.slots[slot] = prompt + said[:-1]
        timings = {"cache_n": cached, "prompt_n": len(prompt) - cached}
        return {"content": bytes(said).decode(), "tokens": said, "id_slot": slot, "timings": timings}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "LlamaServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
