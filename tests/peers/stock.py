"""SMG's real, unmodified peers as processes: start one, talk to it, end it by its own pid.

with stock.Exporter(slots=1) as gateway, stock.Puller() as worker:
    lease = gateway.export(42, 1000)
    assert worker.pull(lease)["sha256"] == lease.sha256
"""

import hashlib
import itertools
import json
import os
import random
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from ferry import Event, parse, wait_until

Words = np.ndarray[Any, np.dtype[np.uint64]]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = ROOT / ".peers/bin/python"
SMG = ROOT / ".peers/bin/smg"
EXPORTER = ROOT / "build/peers/target/release/stock_exporter"

AGENT_NAME = "smg-gateway-encode"  # of every stock gateway
FRAME_BYTES = 16
MIB = 1 << 20
# The last fills a slot of a stock gateway.
SIZES = [2, 64 << 10, MIB, 32 * MIB - FRAME_BYTES]

_names = (f"peer-{os.getpid()}-{i}" for i in itertools.count())


def missing() -> str | None:
    """Which of the peers is not there."""
    return next((str(path) for path in (PYTHON, SMG, EXPORTER) if not path.exists()), None)


def nixl_lib() -> Path:
    """The folder of the wheel that has libnixl_capi.so and its plugins."""
    (found,) = (ROOT / ".peers/lib").glob("python3*/site-packages/.nixl_cu13.mesonpy.libs")
    return found


def bare_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """This one without what would configure the peers; and UCX logs where logs belong."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SMG_", "UCX_", "NIXL_", "MC_", "LD_", "PYTHON"))}
    return {**kept, "UCX_LOG_FILE": "stderr", **changes}


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """The same, over TCP."""
    return bare_environment({"UCX_TLS": "tcp", **changes})


def free_port() -> int:
    """One that the kernel gives to nobody by itself, in the time until it is used."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def pattern(key: int, nbytes: int) -> bytes:
    """What the exporter exports: see rust_exporter/src/main.rs."""

    def mix(x: Words) -> Words:
        shift = np.uint64(33)
        x = (x ^ (x >> shift)) * np.uint64(0xFF51AFD7ED558CCD)
        x = (x ^ (x >> shift)) * np.uint64(0xC4CEB9FE1A85EC53)
        return x ^ (x >> shift)

    start = mix(np.array([key % 2**64], np.uint64))
    words = mix(np.add(start, np.arange((nbytes + 7) // 8, dtype=np.uint64), dtype=np.uint64))
    return words.astype("<u8").tobytes()[:nbytes]


@dataclass(frozen=True)
class Lease:
    """A tensor that a gateway has exported, and the parts of its SMGRDMA1 descriptor."""

    key: int
    nbytes: int
    address: int
    stamp: int
    port: int
    host: bytes

    @classmethod
    def of(cls, descriptor: bytes, nbytes: int) -> "Lease":
        assert descriptor[:8] == b"SMGRDMA1", descriptor

        def number(at: int, size: int, signed: bool = False) -> int:
            return int.from_bytes(descriptor[at : at + size], "little", signed=signed)

        return cls(number(24, 8, True), nbytes, number(8, 8), number(16, 8), number(32, 2), descriptor[34:])

    @property
    def descriptor(self) -> bytes:
        numbers = [(self.address, 8), (self.stamp, 8), (self.key % 2**64, 8), (self.port, 2)]
        return b"SMGRDMA1" + b"".join(n.to_bytes(size, "little") for n, size in numbers) + self.host

    @property
    def tag(self) -> bytes:
        """The notification that frees it."""
        return str(self.key).encode()

    @property
    def sha256(self) -> str:
        """Of what a stock exporter exports under this key."""
        return hashlib.sha256(pattern(self.key, self.nbytes)).hexdigest()

    def at(self, **changes: Any) -> "Lease":
        return replace(self, **changes)


@dataclass(frozen=True)
class Pulled:
    lease: Lease
    answer: Event


class Peer:
    """A process that is spoken to in lines. Its end raises, with the last that it wrote to standard error."""

    def __init__(self, args: Sequence[str | Path], env: Mapping[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            list(map(str, args)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment(env),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self._log.close()

    def kill(self) -> None:
        """At once: the exit of a process with NIXL in it may crash."""
        self.process.kill()
        self.process.wait()

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"ended ({self.process.wait()}): {self.log()[-3000:]}")
        return line.rstrip("\n")


class Exporter(Peer):
    """SMG's gateway side: the crate smg-mm-rdma."""

    def __init__(
        self,
        *,
        slots: int = 4,
        slot_bytes: int = MIB,
        ttl: float = 600,
        port: int | None = None,
        name: str = AGENT_NAME,
        lib: Path | None = None,
    ) -> None:
        self.port = port or free_port()
        self.slots = slots
        super().__init__(
            [EXPORTER, str(self.port), str(slots), str(slot_bytes), str(ttl), name],
            {"LD_LIBRARY_PATH": str(lib or nixl_lib())},
        )

    def __enter__(self) -> Self:
        try:
            assert self.read() == "ready"
        except AssertionError:
            self.__exit__(None, None, None)
            raise
        return self

    def try_export(self, key: int, nbytes: int = 1000) -> Lease | None:
        """None: no slot is free."""
        self.write(f"{key} {nbytes}")
        answer = self.read().split()
        if answer[0] == "full":
            return None
        return Lease.of(bytes.fromhex(answer[1]), nbytes)

    def export(self, key: int, nbytes: int = 1000) -> Lease:
        """Waits until a slot is free."""
        # The crate looks every 20 ms for what has ended, and tells nobody.
        lease = wait_until(lambda: self.try_export(key, nbytes), "a free slot")
        assert lease is not None
        return lease

    def fill(self, first_key: int) -> list[Lease]:
        """Leases every slot that is free."""
        leases = []
        for key in itertools.count(first_key):
            lease = self.try_export(key)
            if lease is None:
                break
            leases.append(lease)
        return leases


class Driver(Peer):
    """A program of drivers/, in the virtual environment of the peers; it answers in JSON."""

    def __init__(self, program: str, *args: str, env: Mapping[str, str]) -> None:
        super().__init__(
            [PYTHON, "-u", HERE / "drivers" / program, *args],
            {"PYTHONPATH": f"{HERE / 'stand_ins'}:{HERE.parent}", **env},
        )
        self.ready = Event()

    def __enter__(self) -> Self:
        try:
            self.ready = self.next()
            assert self.ready["event"] == "ready", self.ready
        except AssertionError:
            self.__exit__(None, None, None)
            raise
        return self

    def say(self, **what: Any) -> None:
        self.write(json.dumps(what))

    def next(self) -> Event:
        answer: Event = parse(self.read())
        return answer


LANE_ON = {
    "SMG_MM_PIXEL_RDMA": "1",
    "SMG_RDMA_LANDING_SLOTS": "2",
    "SMG_RDMA_SLOT_BYTES": str(32 * MIB),
    "SMG_RDMA_READ_TIMEOUT_S": "5",
}


class Puller(Driver):
    """SMG's worker side: smg_grpc_servicer.mm_rdma.RdmaPixelPuller."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__("puller.py", next(_names), env={**LANE_ON, **(env or {})})
        self._ids = itertools.count()
        self._answers: dict[int, Event] = {}

    def start(
        self,
        lease: Lease,
        *,
        room: int | None = None,
        shape: Sequence[int] | None = None,
        dtype: str = "uint8",
        transport: str = "nixl",
    ) -> int:
        """Begins a pull; result() waits for it."""
        number = next(self._ids)
        self.say(
            id=number,
            descriptor=lease.descriptor.hex(),
            nbytes=lease.nbytes,
            room=room,
            shape=[lease.nbytes] if shape is None else list(shape),
            dtype=dtype,
            transport=transport,
        )
        return number

    def result(self, number: int) -> Event:
        while number not in self._answers:
            answer = self.next()
            self._answers[answer.pop("id")] = answer
        return self._answers.pop(number)

    def pull(self, lease: Lease, **options: Any) -> Event:
        """The tensor's sha256, shape and dtype, or its error; and how many seconds it took."""
        return self.result(self.start(lease, **options))

    def wait_for_handshake(self) -> None:
        """Until a pull that was started holds what all handshakes wait for."""
        self.say(event="wait_for_handshake")
        assert self.next() == {"event": "handshake"}


class Agent(Driver):
    """A bare NIXL agent, which does what SMG's puller never would."""

    def __init__(self) -> None:
        super().__init__("agent.py", next(_names), env={})

    def ask(self, **what: Any) -> Event:
        self.say(**what)
        answer = self.next()
        assert "error" not in answer, answer["error"]
        return answer

    def connect(self, port: int, *, host: str = "127.0.0.1", name: str = AGENT_NAME) -> None:
        self.ask(do="connect", name=name, host=host, port=port)

    def notify(self, *texts: bytes, name: str = AGENT_NAME) -> None:
        """Notifications that no transfer carries."""
        self.ask(do="notify", name=name, texts=[text.hex() for text in texts])

    def read_frame(self, lease: Lease, tag: bytes, *, name: str = AGENT_NAME) -> Event:
        """READs the frame of a lease, live or not: its `stamps` and the `sha256` of what is between them."""
        return self.ask(do="read", name=name, address=lease.address, nbytes=lease.nbytes, text=tag.hex())


class Encoder(Driver):
    """SMG's TokenSpeed encoder servicer on a port of its own; next() is the next tensor that it took in."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__("encoder.py", env={**LANE_ON, **(env or {})})

    @property
    def listen(self) -> str:
        listen: str = self.ready["listen"]
        return listen


class Caller(Driver):
    """Calls an encoder's Encode as a stock gateway does."""

    def __init__(self, listen: str) -> None:
        super().__init__("caller.py", listen, env={})

    def encode(
        self,
        payload: Mapping[str, Any],
        *,
        shape: Sequence[int],
        dtype: str = "uint8",
        room: int = 7,
        request_id: str = "encode-1",
        timeout: float | None = None,
    ) -> Event:
        """`accepted`, or a gRPC `code` and its `error`. The payload is {LANE: ...}: inline, shm or remote."""
        self.say(payload=payload, shape=list(shape), dtype=dtype, room=room, request_id=request_id, timeout=timeout)
        return self.next()

    def begin_lease(self, lease: Lease, *, transport: str = "nixl", **options: Any) -> None:
        """encode_lease, whose answer is the next()."""
        remote = {"transport": transport, "descriptor": lease.descriptor.hex(), "nbytes": lease.nbytes}
        defaults = {"shape": [lease.nbytes], "dtype": "uint8", "room": lease.key, "request_id": "encode-1"}
        self.say(payload={"remote": remote}, **{**defaults, "timeout": None, **options})

    def encode_lease(self, lease: Lease, **options: Any) -> Event:
        self.begin_lease(lease, **options)
        return self.next()
