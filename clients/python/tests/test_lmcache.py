"""LMCache's clients of our front ends, built from contracts/lmcache.json, against a daemon.

Each form says what is sent and how much is read of what comes; its session is
what the engine does and must see. No byte is read that the form does not say.
"""

from __future__ import annotations

import socket
import struct
import unittest
from typing import Any, Dict, List, Optional, Sequence

from . import contracts
from .daemon import Daemon


def value(size: int, version: int) -> bytes:
    """The payload of a version, of which no other has a byte in its place."""
    return bytes([version]) * size


class Unexpected(Exception):
    """An answer that the client does not know."""


class Stream:
    """A connection of which exactly what is asked for is read."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def command(self, *args: bytes) -> None:
        self.send(b"*%d\r\n" % len(args), *[b"$%d\r\n%s\r\n" % (len(a), a) for a in args])

    def read(self, n: int) -> bytes:
        got = bytearray()
        while len(got) < n:
            part = self.socket.recv(n - len(got))
            if not part:
                raise ConnectionError("closed")
            got += part
        return bytes(got)

    def line(self, at_most: int) -> bytes:
        got = b""
        while not got.endswith(b"\n"):
            if len(got) > at_most:
                raise Unexpected(got)
            got += self.read(1)
        return got


class Exact:
    """The client that reads so many bytes, whatever they say."""

    def __init__(self, wire: Dict[str, Any], path: str) -> None:
        self.wire, self.stream = wire, Stream(path)

    def do(self, command: str, *args: bytes, size: int = 0) -> Any:
        how, expected = self.wire[command], b"$%d\r\n" % size
        self.stream.command(command.encode(), *args)
        answer = self.stream.line(len(expected) + how.get("beyond", 128)) if how["reads"] == "line" else self.stream.read(how["reads"])
        for text, means in how["means"].items():
            if answer == text.replace("{size}", str(size)).encode():
                if means != "value":
                    return None if means == "nothing" else means
                got = self.stream.read(size)
                if self.stream.read(2) != b"\r\n":
                    raise Unexpected("behind the value")
                return got
        raise Unexpected(answer)

    def batch(self, command: str, keys: Sequence[str], *values: bytes, size: int = 0) -> List[Any]:
        """The answer for each key, an exception for one that failed."""
        answers: List[Any] = []
        for i, key in enumerate(keys):
            try:
                answers.append(self.do(command, key.encode(), *values[i : i + 1], size=size))
            except Unexpected as e:
                answers.append(e)
                if self.wire[command]["batch"] == "ends at its first failure":
                    break
        return answers


class Parsing:
    """redis-py as far as the connector needs it: every reply is parsed."""

    def __init__(self, wire: Dict[str, Any], path: str) -> None:
        self.stream = Stream(path)
        for command in wire["hello"]:
            self.do(*[c.encode() for c in command])

    def do(self, *args: bytes) -> Any:
        self.stream.command(*args)
        kind, rest = (line := self.stream.line(1 << 16))[:1], line[1:-2]
        if kind == b"-":
            raise Unexpected(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2]
        return int(rest) if kind == b":" else rest


def redis_connector(base: Any, wire: Dict[str, Any], path: str) -> Any:
    class Redis(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.client = Parsing(wire, path)

        def _do(self, what: str, key: str, **given: bytes) -> List[Any]:
            def words(command: List[str]) -> List[bytes]:
                return [given[w[1:-1]] if w[1:-1] in given else w.format(key=key).encode() for w in command]

            return [self.client.do(*words(command)) for command in wire["does"][what]]

        def exists_sync(self, key: str) -> bool:
            return self._do("contains", key) == [1]

        exists = exists_sync

        def get(self, key: str) -> Optional[bytes]:
            metadata, payload = self._do("get", key)
            if metadata is None:
                return None
            if payload is None:
                self._do("lost", key)
                return None
            length, *_ = struct.unpack(wire["metadata"]["struct"], metadata)
            assert length == len(payload), "metadata of one value and bytes of another"
            return payload

        def put(self, key: str, memory_obj: bytes) -> None:
            metadata = struct.pack(wire["metadata"]["struct"], len(memory_obj), 1, 2, 2, 32, 256, 1024)
            try:
                self._do("put", key, value=memory_obj, metadata=metadata)
            except Unexpected:
                pass  # logged there

        def list(self) -> List[str]:
            return []

        def close(self) -> None:
            self.client.stream.socket.close()

    return Redis()


def l2_adapter(base: Any, wire: Dict[str, Any], path: str) -> Any:
    class Resp(base):  # type: ignore[misc]
        """Tasks end at once here, each on the next worker's connection."""

        def __init__(self) -> None:
            super().__init__(0)
            self.workers = [Exact(wire, path) for _ in range(wire["workers"])]
            self.tasks, self.done, self.stores = 0, {}, {}

        def _batch(self, *args: Any, **kwargs: Any) -> List[Any]:
            self.tasks += 1
            return self.workers[self.tasks % len(self.workers)].batch(*args, **kwargs)

        def get_store_event_fd(self) -> int: ...

        def get_lookup_and_lock_event_fd(self) -> int: ...

        def get_load_event_fd(self) -> int: ...

        def submit_store_task(self, keys: Any, objects: Any) -> int:
            answers = self._batch("SET", keys, *objects)
            self.stores[self.tasks] = answers == [True] * len(keys)
            return self.tasks

        def pop_completed_store_tasks(self) -> Dict[int, bool]:
            stores, self.stores = self.stores, {}
            return stores

        def submit_lookup_and_lock_task(self, keys: Any, group_layout_descs: Any = None) -> int:
            answers = self._batch("EXISTS", keys)
            self.done[self.tasks] = answers
            return self.tasks

        def query_lookup_and_lock_result(self, task_id: int) -> Any:
            return self.done.pop(task_id)

        query_load_result = query_lookup_and_lock_result

        def submit_load_task(self, keys: Any, objects: Any) -> int:
            answers = self._batch("GET", keys, size=len(objects[0]))
            self.done[self.tasks] = answers
            return self.tasks

        def submit_unlock(self, keys: Any) -> None: ...

        def delete(self, keys: Any) -> None:
            for answer in self._batch("DEL", keys):
                assert answer in (True, False), answer

        def close(self) -> None:
            for w in self.workers:
                w.stream.socket.close()

    return Resp()


FORMS = {form.name: form for form in contracts.load("lmcache")}


class Sessions(unittest.TestCase):
    """Each form's own session, against a daemon of 64 MiB without a disk and one with."""

    def connector(self, form: contracts.Form, daemon: Daemon) -> Any:
        wire = form.data["wire"]
        make = {"parsed": redis_connector, "exact": l2_adapter}[wire["replies"]]
        return make(form.stand_in(form.data["target"]), wire, daemon.dir + "/r")

    def test_sessions(self) -> None:
        for disk in ("0", "512MiB"):
            for form in FORMS.values():
                with self.subTest(form=form.name, disk=disk), Daemon(disk=disk) as daemon:
                    target = self.connector(form, daemon)
                    self.assertEqual(form.refused(type(target)), [])
                    for step in form.data["session"]:
                        self.step(form, target, *step)

    def step(self, form: contracts.Form, target: Any, event: str, *args: Any) -> None:
        with self.subTest(step=(event, *args)):
            getattr(self, f"step_{event}")(lambda name, **given: form.run(name, target, **given)[0], target, *args)

    def step_contains(self, run: Any, target: Any, key: str, there: bool) -> None:
        self.assertIs(run("contains", key=key), there)

    def step_get(self, run: Any, target: Any, key: str, version: Optional[int]) -> None:
        got = run("get", key=key)
        if version is None:
            self.assertIsNone(got)
        else:
            self.assertEqual(got, value(len(got), version))

    def step_put(self, run: Any, target: Any, key: str, size: int, version: int) -> None:
        run("put", key=key, memory_obj=value(size, version))

    def step_send(self, run: Any, target: Any, command: List[str], answer: int) -> None:
        self.assertEqual(target.client.do(*[c.encode() for c in command]), answer)

    def step_close(self, run: Any, target: Any) -> None:
        run("close")

    def step_store(self, run: Any, target: Any, keys: List[str], size: int, version: int, success: bool) -> None:
        task = run("store", keys=keys, objects=[value(size, version)] * len(keys))
        self.assertEqual(run("stored"), {task: success})

    def step_lookup(self, run: Any, target: Any, keys: List[str], there: List[bool]) -> None:
        self.assertEqual(run("looked", task=run("lookup", keys=keys, group_layout_descs={})), there)

    def step_load(self, run: Any, target: Any, keys: List[str], size: int, versions: List[Optional[int]]) -> None:
        got = run("loaded", task=run("load", keys=keys, objects=[bytearray(size)] * len(keys)))
        self.assertEqual(got, [None if v is None else value(size, v) for v in versions])

    def step_unlock(self, run: Any, target: Any, keys: List[str]) -> None:
        run("unlock", keys=keys)

    def step_delete(self, run: Any, target: Any, keys: List[str]) -> None:
        run("delete", keys=keys)


class Real(unittest.TestCase):
    def test_the_engine_on_the_path(self) -> None:
        """What LMCache's own classes have and the data has not, by name."""
        try:
            import lmcache  # noqa: F401
        except ImportError as e:
            self.skipTest(f"no LMCache here: {e}")
        for client in ("redis", "resp"):
            with self.subTest(client):
                form, differences = contracts.nearest([f for name, f in FORMS.items() if name.endswith(f" {client}")])
                self.assertEqual(differences, [], f"LMCache's interface is nearest to {form}, and differs from it")


if __name__ == "__main__":
    unittest.main()
