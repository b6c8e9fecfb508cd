"""What vLLM's KV events are told of blocks that the daemon has, and loses."""

import logging
import struct
import unittest
from types import SimpleNamespace
from typing import Any, Dict, List, Set

import kvstored
from kvstored import _wire as wire
from kvstored.chains import digest
from kvstored.vllm import follow, stats

from .daemon import Daemon, enter, until
from .test_vllm_steps import FORMS, stand_in
from .vllm_engine import keys

EVENTS = "events: {enabled: true}\n"


def told(engine: Any) -> Set[bytes]:
    """The keys that are there by all events so far, each stored once at a time."""
    there: Set[bytes] = set()
    for event in engine.events:
        if event.medium != engine.tier.medium:
            continue
        for key in event.keys:
            assert (key in there) == event.removed, (key, event.removed)
            (there.discard if event.removed else there.add)(key)
    return there


def told_after_step(engine: Any) -> Set[bytes]:
    engine.step()
    return told(engine)


class Events(unittest.TestCase):
    def engine(self, daemon: Daemon) -> Any:
        engine = stand_in(self, FORMS[-1], daemon.socket, enable_kv_events=True)
        until(lambda: engine.tier._events._live)
        return engine

    def store(self, engine: Any, name: str, n: int) -> List[bytes]:
        """As many rows as vLLM's host memory has, one prompt after the other."""
        wanted: List[bytes] = []
        for i in range(0, n, 8):
            request, more = engine.request(f"{name}{i}"), keys(f"{name}{i}", 8)
            engine.store(more, request)
            engine.settle()
            engine.step()
            engine.finish(request)
            wanted += more
        return wanted

    def test_what_is_evicted_is_removed(self) -> None:
        with Daemon(dram="16MiB", more=EVENTS) as daemon:
            engine = self.engine(daemon)
            wanted = self.store(engine, "a", 320)  # 30 MiB

            until(lambda: engine.step() or 0 < len(told(engine)) < len(wanted))
            ask = enter(self, kvstored.Client(daemon.socket, space=engine.tier._client.space, timeout=60))

            def there() -> Set[bytes]:
                return {key for key in wanted if ask.lookup(kvstored.hashes(digest(key), [engine.tier._client.space.chunk_tokens], alone=True)).total.chunks}

            until(lambda: engine.step() or told(engine) == there())

    def test_groups(self) -> None:
        """Blocks of several groups have one hash, and go one by one."""
        with Daemon(dram="16MiB", more=EVENTS) as daemon:
            engine = self.engine(daemon)
            first, second = keys("a", 4), keys("a", 4, group=1)
            request = engine.request("a")
            engine.store(first + second, request)
            engine.settle()
            until(lambda: engine.step() or told(engine) == set(first + second))
            held = engine.tier._events._held
            self.assertEqual(len(held), 8)
            name = next(name for name, one in held.items() if one.key == second[0])
            engine.tier._events._heard([follow.Event(follow.REMOVED, 7, name)])
            until(lambda: engine.step() or told(engine) == set(first + second[1:]))

    def test_a_lost_daemon(self) -> None:
        """Its blocks are told as removed, and told again once it is back and has them anew."""
        with Daemon(dram="16MiB", more=EVENTS) as daemon:
            engine = self.engine(daemon)
            wanted = set(self.store(engine, "a", 16))
            until(lambda: engine.step() or told(engine) == wanted)
            first = engine.tier._client.epoch
            daemon.kill()
            until(lambda: engine.step() or not told(engine))
            daemon.again()
            until(lambda: engine.tier._events._live and engine.tier._client.epoch not in (None, first))
            again = set(self.store(engine, "b", 16))
            until(lambda: engine.step() or told(engine) == again)

    def test_a_daemon_without_events(self) -> None:
        """Nothing is told, as removals could not be, and the log says why."""
        with Daemon(dram="16MiB") as daemon:
            with self.assertLogs("kvstored.vllm", "WARNING") as logged:
                engine = stand_in(self, FORMS[-1], daemon.socket, enable_kv_events=True)
                until(lambda: any("events.enabled" in line for line in logged.output))
            self.store(engine, "a", 8)
            self.assertEqual(told(engine), set())

    def test_bounds(self) -> None:
        """Beyond its bound the oldest blocks are told as removed, and removals are never dropped."""
        with Daemon(dram="16MiB", more=EVENTS) as daemon:
            engine = self.engine(daemon)
            events = engine.tier._events
            stats = __import__(type(events).__module__, fromlist=["_EVENT_KEYS"])
            stats._EVENT_KEYS, most = 10, stats._EVENT_KEYS
            try:
                for key in range(100):
                    events.storing(b"space", [str(key).encode()])
                    events.stored(b"space", [str(key).encode()])
                    engine.events += events.take()
                self.assertEqual(told(engine), {str(key).encode() for key in range(90, 100)})
            finally:
                stats._EVENT_KEYS = most

    def test_found_again(self) -> None:
        """Blocks that another engine stored, or this one before vLLM forgot all, are told
        once they are loaded, and vLLM knows what they are."""
        with Daemon(dram="16MiB", more=EVENTS) as daemon:
            first = self.engine(daemon)
            wanted = self.store(first, "again", 8)
            until(lambda: told_after_step(first) == set(wanted))
            engine = self.engine(daemon)
            self.assertEqual(told(engine), set())
            engine.load(wanted, engine.request("restarted"))
            until(lambda: told_after_step(engine) == set(wanted))
            self.assertFalse(engine.tier.has_pending_work())
            engine.manager.reset_cache()
            engine.events.clear()  # vLLM has said that all are gone
            engine.step()
            self.assertEqual(told(engine), set())
            engine.load(wanted, engine.request("reset"))
            until(lambda: told_after_step(engine) == set(wanted))

    def test_what_is_gone_before_it_is_told(self) -> None:
        """Of what was loaded nothing is told that has gone since, nor what a lost daemon had
        brought: another one need not have it."""
        config = SimpleNamespace(enable_kv_cache_events=True)
        events = stats.Events(None, True, SimpleNamespace(kv_events_config=config))

        def steps() -> List[Any]:
            for _ in range(3):
                events.end_step()
            told, _ = list(events._told), events._told.clear()
            return told

        events._begun()
        for gone in ("", "removed", "lost"):
            for at in ("while it is copied", "before the end is known", "before a step"):
                with self.subTest(gone, at=at):
                    key = f"{gone} {at}".encode()
                    events.loading([key], lambda _: b"space")
                    if at != "while it is copied":
                        events.loaded("job", [key], lambda _: b"space")
                    if at == "before a step":
                        events.taken(["job"])
                    if gone == "removed":
                        events._heard([follow.Event(follow.REMOVED, 1, (b"space", digest(key)))])
                    if gone == "lost":
                        events._ended()
                        events._begun()
                        self.assertFalse(events.waits)
                        events._told.clear()  # what was told before is gone
                    if at == "while it is copied":
                        events.loaded("job", [key], lambda _: b"space")
                    events.taken(["job"])
                    self.assertEqual(steps(), [] if gone else [(key, False)])

    def test_events_without_tokens_are_warned_of(self) -> None:
        for described, said in ((False, 1), (True, 0)):
            events = SimpleNamespace(enable_kv_cache_events=True, self_describing_kv_events=described)
            with self.assertLogs("kvstored.vllm", "WARNING") as log:
                logging.getLogger("kvstored.vllm").warning("the first")
                stats.Events(None, True, SimpleNamespace(kv_events_config=events))
            self.assertEqual(sum("self_describing_kv_events" in line for line in log.output), said)


class Pushes(unittest.TestCase):
    """Against bytes that are written here by docs/protocol-more.md."""

    def body(self, flags: int, events: List[Dict[str, Any]], size: int = 56) -> bytes:
        rows = [
            struct.pack("<BB2xI16s16s16s", e["kind"], e["tier"], 0, e["space"], e["hash"], bytes(16)) + bytes(size - 56) for e in events
        ]
        return struct.pack("<QQQB7xII", 1, 2, 3, flags, 0, 0) + struct.pack("<IHH", len(rows), size, 0) + b"".join(rows) + wire.NO_OPTIONS

    def test_read(self) -> None:
        ours, other, key = b"o" * 16, b"x" * 16, digest(b"k")
        events = [
            {"kind": 0, "tier": 1, "space": ours, "hash": key},
            {"kind": 1, "tier": 2, "space": other, "hash": key},
            {"kind": 2, "tier": 0, "space": bytes(16), "hash": bytes(16)},
        ]
        want = [follow.Event(0, 1, (ours, key)), follow.Event(1, 2, (other, key)), follow.Event(2, 0, (bytes(16), bytes(16)))]
        for size in (56, 64):
            self.assertEqual(follow.push(self.body(0, events, size)), (False, want))
        self.assertEqual(follow.push(self.body(4, [])), (True, []))
        whole = self.body(0, events)
        for cut in range(len(whole)):
            with self.assertRaises(wire.Malformed):
                follow.push(whole[:cut])
