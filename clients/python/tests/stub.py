"""A daemon that hangs: it accepts connections and never answers."""

import shutil
import socket
import tempfile


class Hanging:
    def __enter__(self) -> str:
        self.dir = tempfile.mkdtemp(prefix="kvs")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{self.dir}/s")
        self.listener.listen(64)
        return f"{self.dir}/s"

    def __exit__(self, *_: object) -> None:
        self.listener.close()
        shutil.rmtree(self.dir)
