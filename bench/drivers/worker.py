"""The worker's end of a measurement in Python, for peers that are Python: what `tensorferry bench` does, by its rules.

    run(job, fetch)     # job: sys.argv[1]; fetch(descriptor, nbytes, key) -> (bytes-like, transport)

The gateway is a program that answers `fill` and `go` (tools/bench/talk.h) on a socket that is its standard input and
output. A time goes from where the bytes are at the gateway until `fetch` has returned what can be read; looking at the
bytes is not counted, in time or in CPU. Prints a JSON object for each size; a wrong byte ends it.
"""

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from peers import stock

Fetch = Callable[[bytes, int, int], tuple[Any, str]]

GIB = 1 << 30
PATIENCE = 60.0
OFFER_SPIN_NS = 200_000  # as tools/bench/measurer.cc waits

_out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print is no result


@dataclass
class Job:
    """What is to be measured; made by bench/contenders.py."""

    gateway: list[str]
    sizes: list[list[int]]  # [nbytes, count, warm-up]
    env: dict[str, str] = field(default_factory=dict)  # of the gateway
    open: dict[str, Any] | None = None  # for gateways of ours: the engine
    idle: float = 0


@dataclass(frozen=True)
class Offer:
    descriptor: bytes
    gateway_ns: int
    began_ns: int
    fill_cpu: float


def cpu_seconds(pid: int) -> float:
    """Of another process, to the nanosecond: its clock as clock_getcpuclockid(3) names it."""
    return time.clock_gettime((~pid << 3) | 2)


def descendants(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from descendants(int(child))


def peak_bytes(pid: int) -> int:
    (line,) = (x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


class Gateway:
    def __init__(self, job: Job) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._from = ours.makefile("r", encoding="utf-8", newline="\n")
        self._to = ours.makefile("w", encoding="utf-8", newline="\n")
        end = theirs.fileno()
        self.process = subprocess.Popen(job.gateway, stdin=end, stdout=end, env={**os.environ, **job.env})
        theirs.close()
        assert self._read() == "ready"
        if job.open is not None:
            largest = max(nbytes for nbytes, *_ in job.sizes)
            opening = {"rpc": "", "copy_in": False, "streams": 1, "batch": 1, "corrupt": 0, "nixl_lib": ""}
            self._write("open " + json.dumps({**opening, "largest": largest, **job.open}))
            assert self._read().startswith("opened ")

    def _write(self, line: str) -> None:
        self._to.write(line + "\n")
        self._to.flush()

    def _read(self) -> str:
        line = self._from.readline()
        if not line:
            raise RuntimeError(f"the gateway ended ({self.process.wait()})")
        if line.startswith("error "):
            raise RuntimeError(f"the gateway: {line[6:].strip()}")
        return line.rstrip("\n")

    def fill(self, key: int, nbytes: int) -> None:
        self._write(f"fill {key} {nbytes} 1")
        assert self._read() == "filled"

    def _spin(self) -> None:
        """A while, until there is something to read."""
        until = time.monotonic_ns() + OFFER_SPIN_NS
        while time.monotonic_ns() < until:
            with suppress(BlockingIOError):
                self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                return
            os.sched_yield()

    def go(self, key: int, nbytes: int) -> Offer:
        until = time.monotonic() + PATIENCE
        self._write("go")
        self._spin()
        while (line := self._read()) == "full":
            if time.monotonic() > until:
                raise TimeoutError("the gateway stays full")
            time.sleep(0.001)  # it looks every 20 ms, and tells nobody
            self.fill(key, nbytes)
            self._write("go")
        words = line.split()
        assert words[0] == "ok", line
        return Offer(bytes.fromhex(words[1]), int(words[2]), int(words[3]), float(words[4]))

    def cpu(self) -> float:
        return sum(cpu_seconds(pid) for pid in descendants(self.process.pid))

    def peak(self) -> int:
        return sum(peak_bytes(pid) for pid in descendants(self.process.pid))

    def end(self) -> None:
        """At once: the exit of a process with NIXL in it may crash."""
        self.process.kill()
        self.process.wait()


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(1, -int(-share * len(ordered) // 1)) - 1]


def check(got: Any, key: int, nbytes: int) -> None:
    view = np.frombuffer(got, np.uint8)
    if view.size != nbytes or not np.array_equal(view, np.frombuffer(stock.pattern(key, nbytes), np.uint8)):
        raise ValueError("other bytes arrived than were sent")


def measure(gateway: Gateway, fetch: Fetch, nbytes: int, count: int, warm_up: int, first_key: int) -> dict[str, Any]:
    latency: list[float] = []
    parts: dict[str, list[float]] = {"gateway_us": [], "handover_us": [], "worker_us": []}
    fill_cpu = own_cpu = gateway_before = worker_before = 0.0
    transport = ""
    for i in range(warm_up + count):
        if i == warm_up:
            fill_cpu = own_cpu = 0.0
            gateway_before, worker_before = gateway.cpu(), time.process_time()
        key = first_key + i
        gateway.fill(key, nbytes)
        began = time.thread_time()
        offer = gateway.go(key, nbytes)
        own_cpu += time.thread_time() - began
        read = time.monotonic_ns()
        got, transport = fetch(offer.descriptor, nbytes, key)
        ended = time.monotonic_ns()
        began = time.thread_time()
        check(got, key, nbytes)
        del got
        own_cpu += time.thread_time() - began
        fill_cpu += offer.fill_cpu
        if i >= warm_up:
            latency.append((ended - offer.began_ns) / 1e3)
            parts["gateway_us"].append(offer.gateway_ns / 1e3)
            parts["handover_us"].append((read - offer.began_ns - offer.gateway_ns) / 1e3)
            parts["worker_us"].append((ended - read) / 1e3)
    gib = nbytes * count / GIB
    return {
        "nbytes": nbytes,
        "transport": transport,
        "count": count,
        "p50_us": quantile(latency, 0.5),
        "p90_us": quantile(latency, 0.9),
        "p99_us": quantile(latency, 0.99),
        "max_us": max(latency),
        "gb_per_s": nbytes / statistics.median(latency) / 1e3,
        **{name: quantile(values, 0.5) for name, values in parts.items()},
        "gateway_cpu_s_per_gib": max(0.0, gateway.cpu() - gateway_before - fill_cpu) / gib,
        "worker_cpu_s_per_gib": max(0.0, time.process_time() - worker_before - own_cpu) / gib,
        "gateway_peak_bytes": gateway.peak(),
        "worker_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
    }


def idle(gateway: Gateway, seconds: float) -> dict[str, float]:
    gateway_before, worker_before, began = gateway.cpu(), time.process_time(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {
        "gateway_idle_percent": 100 * (gateway.cpu() - gateway_before) / took,
        "worker_idle_percent": 100 * (time.process_time() - worker_before) / took,
    }


def job() -> Job:
    return Job(**json.loads(sys.argv[1]))


def run(what: Job, fetch: Fetch) -> None:
    gateway = Gateway(what)
    try:
        key = 1
        for nbytes, count, warm_up in what.sizes:
            row = measure(gateway, fetch, nbytes, count, warm_up, key)
            key += count + warm_up
            if what.idle:
                row.update(idle(gateway, what.idle))
            _out.write(json.dumps(row) + "\n")
            _out.flush()
    finally:
        gateway.end()
    os._exit(0)  # NIXL's threads may outlive what they use
