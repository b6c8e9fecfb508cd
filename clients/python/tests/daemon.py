"""A daemon of its own for a test: KVSTORED_BIN, or ./cmd/kvstored built once."""

import atexit
import functools
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Optional
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]

CONFIG = """\
listen: {{socket: {dir}/s, resp: [{dir}/r]}}
admin: {{listen: ""}}
cpu: {{capacity: {dram}}}
disk: {{paths: [{dir}/disk], capacity: {disk}, min_free: 0}}
log: {{level: warn}}
"""


@functools.lru_cache(maxsize=None)
def binary() -> str:
    given = os.environ.get("KVSTORED_BIN")
    if given:
        return given
    folder = tempfile.mkdtemp(prefix="kvstored-test-")
    atexit.register(shutil.rmtree, folder, True)
    subprocess.run(["go", "build", "-o", f"{folder}/kvstored", "./cmd/kvstored"], cwd=ROOT, check=True)
    return f"{folder}/kvstored"


def skip(test: unittest.TestCase, why: str) -> None:
    """Skips a test, which CI does not allow."""
    if os.environ.get("CI") == "true":
        test.fail(f"{why}, and CI skips nothing")
    test.skipTest(why)


def enter(test: unittest.TestCase, context: Any) -> Any:
    """What a context gives, which ends with the test; enterContext, which Python has since 3.11."""
    given = context.__enter__()
    test.addCleanup(context.__exit__, None, None, None)
    return given


def until(met: Callable[[], Any], otherwise: str = "it does not become so") -> None:
    """Waits for the work of others."""
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.002)


def leases_stay(test: unittest.TestCase) -> None:
    """Until the test ends, leases are kept for their load for longer than a machine stands still."""
    enter(test, mock.patch("kvstored.hints.SECONDS", 600.0))


def environment() -> dict:
    """Without what the daemon would take as its own settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith("KVSTORED_")}


class Daemon:
    """A running daemon in a folder that ends with it."""

    def __init__(self, dram: str = "64MiB", disk: str = "0", more: str = "") -> None:
        """``more``: further lines of its configuration."""
        self.dir = tempfile.mkdtemp(prefix="kvs")  # short: a socket's path is
        self.socket = f"{self.dir}/s"
        os.mkdir(f"{self.dir}/disk")
        Path(f"{self.dir}/c.yaml").write_text(CONFIG.format(dir=self.dir, dram=dram, disk=disk) + more)
        self.process: Optional[subprocess.Popen] = None
        self.start()

    def start(self) -> None:
        with open(f"{self.dir}/log", "ab") as out:
            self.process = subprocess.Popen(
                [binary(), "serve", "--config", f"{self.dir}/c.yaml"], stdout=out, stderr=out, env=environment()
            )

    def wait(self) -> None:
        """Returns when it answers."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            if _answers(self.socket):
                return
            time.sleep(0.01)
        raise AssertionError("the daemon does not serve:\n" + Path(f"{self.dir}/log").read_text())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """As an orderly one does: with all of it on disk."""
        self.process.terminate()
        self.process.wait(60)

    def again(self) -> None:
        """Starts what was killed, or is so now; returns when it answers."""
        if self.process.poll() is None:
            self.kill()
        self.start()
        self.wait()

    def pause(self) -> None:
        """Returns when no thread of it runs any more."""
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise RuntimeError(f"the daemon ended with status {status}")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> "Daemon":
        try:
            self.wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_child(work: Callable[[], None]) -> int:
    """How a forked child ends that does the work: 0, or it failed, or by which signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as e:
            os.write(2, f"child: {e!r}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


#: Hello, and nothing else: all packages of this version of the protocol can be tested with it.
_HELLO = struct.pack("<IBBHQ", 56, 0, 1, 0, 1) + struct.pack("<4sHH", b"KVS1", 2, 2) + bytes(48)


def _answers(path: str) -> bool:
    """Whether a daemon serves there."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(60)
        try:
            probe.connect(path)
            probe.sendall(_HELLO)
            reply = probe.recv(16)
        except OSError:
            return False
    return len(reply) == 16 and struct.unpack("<IBBHQ", reply)[3] == 0


class Served(unittest.TestCase):
    """Tests that share one daemon."""

    dram = "64MiB"
    daemon: Daemon

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = Daemon(cls.dram)
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.wait()
