"""The Python clients of bench/rivals: one of them, as a process of its own.

    python clients.py NAME ADDRESS...

Each line read says a cell, {"size": bytes, "count": values a call, "calls": n}, and is
answered by a line with the nanoseconds of each call, {"put": [...], "get": [...]}; a size
of 0 asks for empty round trips, "ping". Every byte that a get brings is compared with
what was put, outside of its time.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import math
import os
import random
import socket
import sys
import time
from importlib.metadata import version
from typing import Any, Callable, Dict, Iterator, List, Sequence, Union

Buffer = Union[bytes, memoryview]
clock = time.perf_counter_ns
libc = ctypes.CDLL(None)
libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
PATIENCE = 60.0  # seconds until a server answers


def at(buffer: Any) -> int:
    """Where a writable buffer lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Rival:
    """A client. put takes the values of a call, which lie together, and get returns them,
    each as an object, or all in the room for them."""

    what = ""  # its name and version
    pings = True

    def ping(self) -> None:
        raise NotImplementedError

    def put(self, keys: List[str], values: List[memoryview], together: memoryview) -> None:
        raise NotImplementedError

    def get(self, keys: List[str], rooms: List[memoryview], room: memoryview) -> Union[Sequence[bytes], memoryview]:
        raise NotImplementedError

    def remove(self, keys: List[str]) -> None:
        raise NotImplementedError

    def register(self, memory: bytearray) -> None:
        """Tells of memory that values lie in and go to."""


class Kvstored(Rival):
    """Chunks that stand alone, each of one name. A get is copied to the caller's memory and
    proved by the client."""

    def __init__(self, path: str) -> None:
        import kvstored

        self.kvstored, self.what = kvstored, f"kvstored {kvstored.__version__}"
        space = kvstored.Space(model="bench", dtype="u8", chunk_tokens=4, method="given:bench")
        self.kv = kvstored.Client(path, space=space, timeout=20)
        if not self.kv.wait_attached(PATIENCE):
            raise RuntimeError("the daemon does not answer")

    def ping(self) -> None:
        if not self.kv.ping():
            raise RuntimeError("no answer")

    def prompt(self, keys: List[str]) -> Any:
        """Of names as an engine has them, 16 bytes each."""
        return self.kvstored.hashes(bytes.fromhex("".join(keys)), [4] * len(keys), alone=True)

    def put(self, keys: List[str], values: List[memoryview], together: memoryview) -> None:
        results = self.kv.put(self.prompt(keys), values)
        if [r.result for r in results] != [self.kvstored.Result.STORED] * len(keys):
            raise RuntimeError(f"put of {len(keys)}: {results}")

    def get(self, keys: List[str], rooms: List[memoryview], room: memoryview) -> memoryview:
        found = self.kv.get_into(self.prompt(keys), rooms)
        if found != len(keys):
            raise RuntimeError(f"get of {len(keys)}: {found} were there")
        return room

    def remove(self, keys: List[str]) -> None:
        self.kv.delete(self.prompt(keys))


class Redis(Rival):
    """redis-py, for redis and for the daemon's Redis front end."""

    def __init__(self, path: str) -> None:
        import redis

        self.r = redis.Redis(unix_socket_path=path, protocol=2)
        until(self.r.ping)
        info = self.r.info()
        server = f"kvstored {info['kvstored_version']}" if "kvstored_version" in info else f"redis {info['redis_version']}"
        self.what = f"redis-py {version('redis')}, {server}"

    def ping(self) -> None:
        self.r.ping()

    def put(self, keys: List[str], values: List[memoryview], together: memoryview) -> None:
        if len(keys) == 1:
            self.r.set(keys[0], values[0])
        else:
            self.r.mset(dict(zip(keys, values)))

    def get(self, keys: List[str], rooms: List[memoryview], room: memoryview) -> List[bytes]:
        return [self.r.get(keys[0])] if len(keys) == 1 else self.r.mget(keys)

    def remove(self, keys: List[str]) -> None:
        self.r.delete(*keys)


class Memcached(Rival):
    """pymemcache, which takes values as bytes objects only."""

    def __init__(self, path: str) -> None:
        from pymemcache.client.base import Client

        self.m = Client("unix:" + path, timeout=20)
        until(self.m.version)
        self.what = f"pymemcache {version('pymemcache')}, memcached {self.m.version().decode()}"

    def ping(self) -> None:
        self.m.version()

    def put(self, keys: List[str], values: List[memoryview], together: memoryview) -> None:
        if len(keys) == 1:
            refused = [] if self.m.set(keys[0], bytes(values[0]), noreply=False) else keys
        else:
            refused = self.m.set_many({k: bytes(v) for k, v in zip(keys, values)}, noreply=False)
        if refused:
            raise RuntimeError(f"put of {len(keys)}: {len(refused)} refused")

    def get(self, keys: List[str], rooms: List[memoryview], room: memoryview) -> List[bytes]:
        if len(keys) == 1:
            return [self.m.get(keys[0])]
        found = self.m.get_many(keys)
        return [found[k] for k in keys]

    def remove(self, keys: List[str]) -> None:
        self.m.delete_many(keys, noreply=False)


class Mooncake(Rival):
    """Mooncake's store over TCP. Values lie in the memory of another process (serve), or
    in this one's, where it has a segment."""

    pings = False

    def __init__(self, master: str, segment: str = "0", ready: str = "") -> None:
        from mooncake.store import MooncakeDistributedStore

        self.what = "mooncake " + version("mooncake-transfer-engine-non-cuda")
        self.s = MooncakeDistributedStore()
        local = 16 << 20 if ready else 1 << 30
        until(lambda: expect(self.s.setup("127.0.0.1", "P2PHANDSHAKE", int(segment), local, "tcp", "", master)))
        if ready:  # the process with the memory: it waits until it is ended
            told = socket.socket(socket.AF_UNIX)
            told.bind(ready)
            told.listen()
            while True:
                time.sleep(3600)
        until(lambda: expect(self.s.put("ready", b"ready")))

    def put(self, keys: List[str], values: List[memoryview], together: memoryview) -> None:
        if len(keys) == 1:
            expect(self.s.put_from(keys[0], at(together), len(together)))
        else:
            expect(*self.s.batch_put_from(keys, [at(v) for v in values], [len(v) for v in values]))

    def get(self, keys: List[str], rooms: List[memoryview], room: memoryview) -> memoryview:
        size, start = len(room) // len(keys), at(room)
        if len(keys) == 1:
            got = [self.s.get_into(keys[0], start, size)]
        else:
            got = self.s.batch_get_into(keys, [start + i * size for i in range(len(keys))], [size] * len(keys))
        if got != [size] * len(keys):
            raise RuntimeError(f"get of {len(keys)}: {got}")
        return room

    def remove(self, keys: List[str]) -> None:
        expect(*self.s.batch_remove(keys, True))

    def register(self, memory: bytearray) -> None:
        expect(self.s.register_buffer(at(memory), len(memory)))


class Echo(Rival):
    """No rival: what two Python processes take for 64 bytes there and back."""

    what = "echo"

    def __init__(self) -> None:
        self.here, there = socket.socketpair()
        if os.fork() == 0:
            self.here.close()
            while True:
                got = there.recv(64)
                if not got:
                    os._exit(0)
                there.sendall(got)
        there.close()

    def ping(self) -> None:
        self.here.sendall(bytes(64))
        if len(self.here.recv(64)) != 64:
            raise RuntimeError("the other end has gone")


class Other(Exception):
    """A get brought other bytes than were put."""


def expect(*codes: int) -> None:
    if any(codes):
        raise RuntimeError(f"codes {codes}")


def until(call: Callable[[], Any]) -> None:
    """Calls until it is answered, for as long as a server may take to start."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            call()
            return
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def same(got: Union[Sequence[bytes], memoryview], values: List[memoryview], together: memoryview) -> bool:
    """Whether a get brought what was put."""
    if isinstance(got, memoryview):
        return len(got) == len(together) and libc.memcmp(at(got), at(together), len(got)) == 0
    return len(got) == len(values) and all(
        g is not None and len(g) == len(v) and libc.memcmp(g, at(v), len(v)) == 0 for g, v in zip(got, values)
    )


def enough(took: List[int], begun: int) -> bool:
    """Whether a cell ends before all its calls: it has some, and a slow rival takes no more
    of the round."""
    return len(took) >= 3 and clock() - begun > 2_000_000_000


class Player:
    """Plays cells with one client. All values are windows of one pool of chance bytes: no
    two calls in a row put or get the same at the same place."""

    POOL, ROOM, WARM, PINGS = 160 << 20, 128 << 20, 1, 2000

    def __init__(self, rival: Rival) -> None:
        self.rival, self.names = rival, itertools.count()
        self.pool, self.room = bytearray(), bytearray()
        self.seed = f"{os.getpid()}/{time.time_ns()}"

    def fill(self) -> None:
        self.pool, self.room = bytearray(random.Random(1).randbytes(self.POOL)), bytearray(self.ROOM)
        self.rival.register(self.pool)
        self.rival.register(self.room)

    def window(self, i: int, size: int, count: int) -> "tuple[List[memoryview], memoryview]":
        start = i % ((self.POOL - size * count) // size + 1) * size
        together = memoryview(self.pool)[start : start + size * count]
        return [together[j * size : (j + 1) * size] for j in range(count)], together

    def keys(self, count: int) -> List[str]:
        return [hashlib.sha256(f"{self.seed}/{next(self.names)}".encode()).hexdigest()[:32] for _ in range(count)]

    def cell(self, size: int, count: int, calls: int) -> Dict[str, List[int]]:
        if size == 0:
            return {"ping": self.ping()}
        if not self.pool:
            self.fill()
        put: List[int] = []
        get: List[int] = []
        room = memoryview(self.room)[: size * count]
        rooms = [room[i * size : (i + 1) * size] for i in range(count)]
        for first, n, took_put, took_get in ((0, self.WARM, [], []), (self.WARM, calls, put, get)):
            keys = [self.keys(count) for _ in range(n)]
            begun = clock()
            for i, names in enumerate(keys):
                values, together = self.window(first + i, size, count)
                began = clock()
                self.rival.put(names, values, together)
                took_put.append(clock() - began)
                if enough(took_put, begun):
                    del keys[i + 1 :]
            begun = clock()
            for i, names in enumerate(keys):
                if enough(took_get, begun):
                    break
                values, together = self.window(first + i, size, count)
                began = clock()
                got = self.rival.get(names, rooms, room)
                took_get.append(clock() - began)
                if not same(got, values, together):
                    raise Other(f"get {i} of {count} values of {size} bytes")
                del got
            self.rival.remove([k for names in keys for k in names])
        return {"put": put, "get": get}

    def ping(self) -> List[int]:
        took = []
        for _ in range(self.PINGS):
            began = clock()
            self.rival.ping()
            took.append(clock() - began)
        return took


class Lmcache:
    """The client of LMCache's own bench: a value is a chunk of 256 tokens, and a call stores
    or loads a prompt of them. A worker's KV tensors hold the values."""

    pings = False
    TOKENS, BLOCK = 256, 16  # of a value, of a block
    HEAD = 64 << 10  # bytes of a value's tokens for one head of one layer
    LAYERS = 16  # at most
    ROOM = 4  # calls whose values fit in the tensors

    def __init__(self, rpc: str, http: str) -> None:
        from lmcache.cli.commands.bench.server_bench import client, config, helpers

        # A hit is asked for until it is there, as often as can be: the bench's own client
        # sleeps 50 ms between two questions, an engine asks at each step.
        helpers._poll_prefetch_status.__defaults__ = (1_000_000, 0.0)
        self.what = f"lmcache {version('lmcache')}"
        self.client, self.config = client.ServerBenchClient, config.BenchConfig
        self.rpc, self.http = rpc, http
        self.names, self.pool = itertools.count(1), None

    def cell(self, size: int, count: int, calls: int) -> Dict[str, List[int]]:
        if size % self.HEAD:
            return {}  # no shape of tensors has values of that size
        layers = math.gcd(size // self.HEAD, self.LAYERS)
        blocks = self.TOKENS // self.BLOCK * count * self.ROOM
        shape = f"(2,{blocks},{self.BLOCK},{size // self.HEAD // layers},64):bfloat16:{layers}"
        bench = self.client(
            self.config(
                rpc_url=self.rpc, http_url=self.http, mode="cpu", transfer_mode="auto", tp_size=1, use_mla=False,
                num_tokens=self.TOKENS * count, kvcache_shape_spec=shape, num_blocks=blocks, block_size=self.BLOCK,
            ),
            lambda *_: None,
        )  # fmt: skip
        bench.start()
        try:
            self.play(bench, count, Player.WARM)
            put, get = self.play(bench, count, calls)
            bench._req_client.clear(force=True).result(timeout=10)
        finally:
            bench.close()
        return {"put": put, "get": get}

    def play(self, bench: Any, count: int, calls: int) -> "tuple[List[int], List[int]]":
        import torch

        if self.pool is None:
            self.pool = torch.frombuffer(bytearray(random.Random(1).randbytes(Player.POOL)), dtype=torch.uint8)
        tensors = [t.view(torch.uint8) for t in bench._workers[0].kv_caches.values()]
        put: List[int] = []
        get: List[int] = []

        def values(i: int, request: Any) -> "Iterator[tuple[Any, Any]]":
            """Where a request's values lie, and what they are to be."""
            for layer, tensor in enumerate(tensors):
                here = tensor[:, request.block_offset : request.block_offset + request.num_blocks]
                start = (i * len(tensors) + layer) * 4096 % (len(self.pool) - here.numel())
                yield here, self.pool[start : start + here.numel()].view(here.shape)

        sequences = [next(self.names) for _ in range(calls)]
        begun = clock()
        for i, n in enumerate(sequences):
            request = bench.create_request(n, f"put{n}", "cold")
            for here, wanted in values(i, request):
                here.copy_(wanted)
            began = clock()
            done = bench.store(request, 0, request.num_full_tokens)
            put.append(clock() - began)
            if not done.succeeded:
                raise RuntimeError(f"put of {count}: {done}")
            bench.end_session(request)
            if enough(put, begun):
                del sequences[i + 1 :]
        begun = clock()
        for i, n in enumerate(sequences):
            if enough(get, begun):
                break
            request = bench.create_request(n, f"get{n}", "warm")
            bench.zero_destination(request, 0, request.num_full_tokens)
            began = clock()
            found = bench.lookup(request)
            done = bench.retrieve(request, 0, request.num_full_tokens)
            get.append(clock() - began)
            if found.hit_chunks != count or not done.succeeded:
                raise RuntimeError(f"get of {count}: {found}, {done}")
            if not all(torch.equal(here, wanted) for here, wanted in values(i, request)):
                raise Other(f"get {i} of {count} values")
            bench.end_session(request)
        return put, get


RIVALS = {"kvstored": Kvstored, "redis": Redis, "memcached": Memcached, "mooncake": Mooncake, "lmcache": Lmcache, "echo": Echo}


def main(name: str, *addresses: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    rival: Any = RIVALS[name](*addresses)
    player = rival if name == "lmcache" else Player(rival)
    print(json.dumps({"what": rival.what, "pings": rival.pings}), file=answers)
    for line in sys.stdin:
        cell = json.loads(line)
        try:
            answer: Dict[str, Any] = player.cell(**cell)
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}", "other": isinstance(e, Other)}
        print(json.dumps(answer), file=answers)
    answers.flush()
    os._exit(0)  # some libraries hang at their end


if __name__ == "__main__":
    main(*sys.argv[1:])
