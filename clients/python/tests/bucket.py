"""A bucket in memory: a stand-in for an S3 store that answers what the daemon asks
of one (GET, HEAD, PUT with If-None-Match), each request after a delay."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Tuple

#: What the daemon finds as credentials; the stand-in looks at none.
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}

Object = Tuple[Dict[str, str], bytes]


class Bucket:
    """Use it in a ``with`` block."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay
        self.objects: Dict[str, Object] = {}
        self.requests = 0  # that were answered
        self.over = threading.Event()  # ends all delays
        bucket = self

        class Handler(Answers):
            of = bucket

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def config(self) -> str:
        """Lines of a daemon's configuration."""
        endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        return f"remote: {{s3: {{bucket: kv-test, endpoint: '{endpoint}', path_style: true}}}}\n"

    def __enter__(self) -> "Bucket":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a daemon that is killed leaves its connections


class Answers(BaseHTTPRequestHandler):
    of: Bucket
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._read(body=False)

    def do_GET(self) -> None:
        self._read(body=True)

    def do_PUT(self) -> None:
        payload = self.rfile.read(int(self.headers["Content-Length"]))
        self.of.over.wait(self.of.delay)
        meta = {k.lower(): v for k, v in self.headers.items() if k.lower().startswith("x-amz-meta-")}
        new = (meta, payload)
        if self.headers.get("If-None-Match") and self.of.objects.setdefault(self.path.partition("?")[0], new) is not new:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>", {})
            return
        self.of.objects[self.path.partition("?")[0]] = new
        self._answer(200, b"", {"ETag": '"e"'})

    def _read(self, body: bool) -> None:
        self.of.over.wait(self.of.delay)
        found = self.of.objects.get(self.path.partition("?")[0])
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>" if body else b"", {})
            return
        self._answer(200, found[1], {**found[0], "ETag": '"e"'}, body)

    def _answer(self, status: int, payload: bytes, headers: Dict[str, str], body: bool = True) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.send_header("Last-Modified", self.date_time_string())
        self.end_headers()
        if body and self.command != "HEAD":
            self.wfile.write(payload)
        self.of.requests += 1

    def log_message(self, *_: Any) -> None:
        pass
