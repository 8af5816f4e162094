"""64 requests at once, of mixed sizes, over every lane and both protos, while workers die and clients leave."""

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from exposition import Scrape
from ferry import Event, Running, wait_until, worker
from private_shm import PrivateShm, private_shm

SERVES = ("encoder", "vllm")
LANDING_BYTES = 48 << 20
# To two exporters, each of which a worker keeps some connections to.
IDLE_CONNECTIONS = 2 * 8
# gRPC's own threads, and what those hold, come and go.
SLACK = 16


@pytest.fixture
def shm() -> Iterator[PrivateShm]:
    with private_shm() as made:
        yield made


class Workers:
    """One of each service, at the same address for ever, whatever becomes of the processes."""

    def __init__(self, command: Path, shm: PrivateShm, stack: contextlib.ExitStack) -> None:
        self._command = command
        self._shm = shm
        self._stack = stack
        self._running: dict[str, Running] = {}
        self.listen: dict[str, str] = {}
        self._at_start: dict[str, Held] = {}
        for serve in SERVES:
            self._start(serve, "127.0.0.1:0")

    def _start(self, serve: str, listen: str) -> None:
        # Less landing memory than the load could use, so that some wait for it.
        args = ["--serve", serve, "--listen", listen, "--landing-bytes", str(LANDING_BYTES), "--metrics", "127.0.0.1:0"]
        running = self._stack.enter_context(worker(self._command, *args, prefix=self._shm.prefix))
        self._running[serve] = running
        self._at_start[serve] = Held.by(running.pid)
        self.listen[serve] = running.listen
        # One whose output nobody reads stops sooner or later.
        assert running.process.stdout is not None
        threading.Thread(target=running.process.stdout.read).start()

    def restart(self, serve: str, number: signal.Signals) -> None:
        running = self._running[serve]
        running.signal(number)
        assert running.wait() == (0 if number == signal.SIGTERM else -number)
        self._start(serve, self.listen[serve])

    def expect_at_rest(self) -> None:
        """No request is under way: each holds what it started with, and connections that lie idle."""
        for serve in SERVES:
            # A request that was cancelled ends here a moment after it has ended at the gateway.
            held = partial(self._more_than_at_rest, serve)
            wait_until(lambda held=held: not held(), held)  # type: ignore[misc]

    def _more_than_at_rest(self, serve: str) -> str:
        running = self._running[serve]
        start, now = self._at_start[serve], Held.by(running.pid)
        metrics = Scrape(running.ready["metrics"])
        assert metrics.sum("tensorferry_landing_bytes") == LANDING_BYTES
        used = metrics.get("tensorferry_landing_bytes", state="used")
        at_rest = used == 0 and now.fds <= start.fds + IDLE_CONNECTIONS + SLACK and now.threads <= start.threads + SLACK
        return "" if at_rest else f"{serve}: {start} at the start, {now} now, {used} bytes of landing memory"


class Held(NamedTuple):
    """What a process holds."""

    fds: int
    threads: int

    @staticmethod
    def by(pid: int) -> "Held":
        return Held(*(len(list(Path(f"/proc/{pid}/{what}").iterdir())) for what in ("fd", "task")))


class Gateway:
    """Its load is switched on and off."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def say(self, line: str) -> Event:
        self._running.say(line)
        return self._running.next()

    def load_for(self, seconds: float) -> None:
        self.say("start")
        time.sleep(seconds)  # the load itself
        self.say("stop")

    def end(self) -> dict[str, int]:
        """What became of the requests."""
        self._running.end_input()
        outcomes: dict[str, int] = self._running.next()["outcomes"]
        assert self._running.wait() == 0
        return outcomes


def stress(command: Path, shm: PrivateShm, seconds: float) -> None:
    dice = random.Random(1)
    program = command.parent.parent / "tensorferry_load_gateway"
    with contextlib.ExitStack() as stack:
        workers = Workers(command, shm, stack)
        args = ["--encoder", workers.listen["encoder"], "--vllm", workers.listen["vllm"]]
        gateway = Gateway(stack.enter_context(Running(program, *args, prefix=shm.prefix)))
        # What a process keeps once it has done everything once is no leak.
        gateway.load_for(seconds / 4)
        before = gateway.say("idle")
        workers.expect_at_rest()

        gateway.say("start")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(dice.uniform(0.2, 1.5))
            workers.restart(dice.choice(SERVES), dice.choice((signal.SIGKILL, signal.SIGTERM)))
        gateway.say("stop")
        gateway.load_for(seconds / 4)

        after = gateway.say("idle")
        for held in ("used_bytes", "resting_bytes", "leases"):
            assert (before[held], after[held]) == (0, 0)
        assert after["fds"] <= before["fds"] + SLACK
        assert after["threads"] <= before["threads"] + SLACK
        workers.expect_at_rest()
        assert shm.names() == []
        outcomes = gateway.end()
    # Requests that can be repeated are; a Generate is not, and says so.
    unwanted = [name for name in outcomes if not name.startswith("delivered ") and name not in ("left", "broken off")]
    assert unwanted == [], outcomes
    for carrier in ("grpc", "local", "file", "tcp"):
        assert outcomes[f"delivered {carrier}"] > seconds, outcomes
    assert outcomes["left"] > 0, outcomes


def test_load(command: Path, shm: PrivateShm) -> None:
    stress(command, shm, 8)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_load_of_minutes(command: Path, shm: PrivateShm) -> None:
    stress(command, shm, 120)
