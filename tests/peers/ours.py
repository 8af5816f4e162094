"""The command at one end of SMG's peers: started with their NIXL, over TCP; and what /proc says of it."""

import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import ferry
import numpy as np
from ferry import Event, Result, Running, wait_until
from peers import stock

# Held to what the peers use.
OVER_TCP = ["env", "UCX_TLS=tcp"]


def with_lib() -> list[str | Path]:
    return ["--nixl-lib", stock.nixl_lib()]


def pull_arguments(lease: stock.Lease, *args: str | Path) -> list[str | Path]:
    what = ["--descriptor", lease.descriptor.hex(), "--nbytes", str(lease.nbytes)]
    return ["pull", "--json", "--transport", "nixl", *with_lib(), *what, *args]


def pull(command: Path, lease: stock.Lease, *args: str | Path) -> Result:
    return ferry.run(command, *pull_arguments(lease, *args), prefix=OVER_TCP)


def pull_each(command: Path, leases: Sequence[stock.Lease], *args: str | Path) -> list[Result]:
    """At the same time: most of it is waiting."""
    with ThreadPoolExecutor(len(leases)) as pool:
        return list(pool.map(lambda lease: pull(command, lease, *args), leases))


def start_pull(command: Path, lease: stock.Lease, *args: str | Path) -> Running:
    return Running(command, *pull_arguments(lease, *args), prefix=OVER_TCP)


def _with_default(args: tuple[str | Path, ...], option: str, value: int | str) -> list[str | Path]:
    return [*args] if option in args else [option, str(value), *args]


@contextmanager
def exporter(command: Path, *args: str | Path) -> Iterator[Running]:
    # Touching the usual gigabyte takes longer than most tests.
    arguments = _with_default(args, "--arena-bytes", 64 * stock.MIB)
    with ferry.exporter(command, *with_lib(), *arguments, engine="nixl", prefix=OVER_TCP) as running:
        yield running


@contextmanager
def worker(command: Path, *args: str | Path, prefix: Sequence[str] = ()) -> Iterator[Running]:
    arguments = _with_default(tuple(_with_default(args, "--engine", "nixl")), "--landing-bytes", 128 * stock.MIB)
    with ferry.worker(command, *with_lib(), *arguments, prefix=[*prefix, *OVER_TCP]) as running:
        yield running


def send_arguments(to: str, *args: str | Path) -> list[str | Path]:
    return ["send", "--json", "--to", to, "--engine", "nixl", "--lane", "remote", *with_lib(), *args]


def arrays(folder: Path, *sizes: int) -> list[Path]:
    """A file of random bytes for each size."""
    made = []
    for nbytes in sizes:
        path = folder / f"{nbytes}.npy"
        np.save(path, np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8))
        made.append(path)
    return made


def expect_sent(rows: list[Event]) -> None:
    for row in rows:
        assert (row.get("lane"), row.get("transport"), row.get("verified")) == ("remote", "nixl", True), row


class Rows:
    """All that a process prints, read as it comes: one whose output nobody reads stops sooner or later."""

    def __init__(self, running: Running) -> None:
        self.rows: list[Event] = []
        self._stdout = running.process.stdout
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._stdout is not None
        for line in self._stdout:
            with suppress(json.JSONDecodeError):  # cut off by a signal
                self.rows.append(ferry.parse(line))

    def all(self) -> list[Event]:
        """When the process has ended."""
        self._thread.join()
        return self.rows


@contextmanager
def collected(running: Running) -> Iterator[Rows]:
    """Kills the process in the end, if it has not ended."""
    with running:
        rows = Rows(running)
        try:
            yield rows
        finally:
            running.process.kill()
            rows.all()


def lease_of(exported: Event) -> stock.Lease:
    assert exported["event"] == "exported", exported
    assert exported["transport"] == "nixl"
    return stock.Lease.of(bytes.fromhex(exported["descriptor"]), exported["nbytes"])


def is_stopped(pid: int) -> bool:
    states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state == "T" for state in states)


def lives(pid: int) -> bool:
    """A zombie does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def agents_of(pid: int) -> list[int]:
    """The agents that a gateway process has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            name, rest = re.fullmatch(r"\d+ \((.*)\) (.*)", (entry / "stat").read_text().strip(), re.DOTALL).groups()  # type: ignore[union-attr]
            state, parent = rest.split()[:2]
            if name == "tensorferry-nix" and state not in "ZX" and int(parent) == pid:
                found.append(int(entry.name))
    return found


def agent_of(pid: int) -> int:
    """The agent of a gateway, which may be starting another at this moment."""
    wait_until(lambda: len(agents_of(pid)) == 1, f"one agent of {pid}")
    return agents_of(pid)[0]


def _sockets(pid: int) -> Iterator[tuple[str, str, int, int]]:
    """Of each TCP socket of a process: local port and state, in hexadecimal, unsent and unread bytes."""
    inodes = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                inodes.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))  # noqa: PTH115
        lines = [
            line for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        ]
        for line in lines:
            words = line.split()
            if words[9] in inodes:
                unsent, unread = words[4].split(":")
                yield words[1].partition(":")[2], words[3], int(unsent, 16), int(unread, 16)


def unread(pid: int) -> int:
    """How many bytes wait for a process, a stopped one perhaps, on its connections."""
    return sum(waiting for _, state, _, waiting in _sockets(pid) if state == "01")


def unsent(pid: int) -> int:
    """How many bytes of a process wait for those that it sends to."""
    return sum(waiting for _, state, waiting, _ in _sockets(pid) if state == "01")


def connected(pid: int) -> bool:
    """Whether a process has a connection to another, or is about to."""
    return any(state in ("01", "02") for _, state, _, _ in _sockets(pid))


def switches(pid: int) -> int:
    """How often a process's first thread has gone to sleep."""
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    (count,) = re.findall(r"^voluntary_ctxt_switches:\s+(\d+)$", status, re.MULTILINE)
    return int(count)
