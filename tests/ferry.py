"""Runs the command `tensorferry` for tests: start it, read its JSON lines, end it by its own pid."""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

Value = TypeVar("Value")


class Event(dict[str, Any]):
    """A line that a program printed. What is missing in it is seldom why: most often the line says that itself."""

    def __missing__(self, key: str) -> Any:
        raise AssertionError(f"no {key!r} in {dict(self)}")


def parse(line: str | bytes) -> Any:
    return json.loads(line, object_hook=Event)


def stop(process: subprocess.Popen[Any]) -> None:
    """SIGSTOP, and waits until it counts: the other threads go on until the one that gets the signal has run."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


# What a machine with much else to do may take for something that happens at once.
LIMIT = 60.0


def wait_until(condition: Callable[[], Value], what: str | Callable[[], str]) -> Value:
    """Of what tells nobody when it comes about: a state of the kernel's, or of another process."""
    until = time.monotonic() + LIMIT
    while not (value := condition()):
        assert time.monotonic() < until, f"not in {LIMIT:g} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.001)
    return value


class Running:
    """A process of the command that prints one JSON object a line. Reading waits for the line, not for a time."""

    def __init__(self, command: Path, *args: str | Path, prefix: Sequence[str] = ()) -> None:
        self.listen = ""
        self.ready = Event()
        self.process = subprocess.Popen(
            [*prefix, str(command), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Running":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            # What it was still to be told, it will never read.
            with suppress(BrokenPipeError):
                pipe.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def next(self) -> Event:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise AssertionError(f"ended ({self.process.wait()}): {self.process.stderr.read()}")
        event: Event = parse(line)
        return event

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        while True:
            event = self.next()
            if wanted(event):
                return event

    def metrics_on_stderr(self) -> str:
        """Where `send --metrics` serves them, which it says in its first line there."""
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert "metrics at http://" in line, line
        return line.partition("http://")[2].removesuffix("/metrics\n")

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> Event:
        """What `export` answers to a line: lease events that come in between are skipped."""
        self.say(line)
        return self.until(lambda e: e["event"] in ("exported", "refused"))

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        if number == signal.SIGSTOP:
            stop(self.process)
        else:
            self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait()


def established(gateway: Running) -> bool:
    """Whether somebody is connected to where it listens."""
    text = Path("/proc/net/tcp").read_text()
    wanted = f":{int(gateway.listen.rpartition(':')[2]):04X} 01"
    return any(wanted in " ".join(line.split()[2:4]) for line in text.splitlines()[1:])


def wait_connected(gateway: Running) -> None:
    wait_until(lambda: established(gateway), "a connection")


class Result:
    """What a finished run of the command left."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def rows(self) -> list[Event]:
        return [parse(line) for line in self.out.splitlines()]

    def row(self) -> Event:
        rows = self.rows()
        assert len(rows) == 1, self.out + self.err
        return rows[0]


def printed(
    *command: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    context: Callable[[], str] = str,
) -> str:
    """By any program, on both outputs. It must exit with 0."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(map(str, command))}\n{done.stdout}{context()}"
    return done.stdout


def without_settings(**changes: str) -> dict[str, str]:
    """This process's environment without what tells Tensorferry how to work."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SMG_", "EPD_", "TOKENSPEED_", "TENSORFERRY_"))}
    return {**kept, **changes}


@contextmanager
def holder(*command: str | Path) -> Iterator[int]:
    """The pid of a process that keeps namespaces for others. It says `ready` when they are made."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.kill()


def run(command: Path, *args: str | Path, prefix: Sequence[str] = (), env: dict[str, str] | None = None) -> Result:
    return Result(
        subprocess.run(
            [*prefix, str(command), *map(str, args)],
            capture_output=True,
            text=True,
            env=env,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    )


@contextmanager
def exporter(
    command: Path, *args: str | Path, engine: str | None = None, prefix: Sequence[str] = ()
) -> Iterator[Running]:
    """`tensorferry export` on a free loopback port, ready."""
    options: list[str | Path] = []
    if "--listen" not in args:
        options += ["--listen", "127.0.0.1:0"]
    if engine is not None:
        options += ["--engine", engine]
    with Running(command, "export", "--json", *options, *args, prefix=prefix) as running:
        ready = running.next()
        assert ready["event"] == "ready", ready
        running.ready = ready
        running.listen = ready["listen"]
        yield running


@contextmanager
def worker(command: Path, *args: str | Path, prefix: Sequence[str] = ()) -> Iterator[Running]:
    """`tensorferry worker` on a free loopback port, ready."""
    options: list[str | Path] = []
    if "--listen" not in args:
        options += ["--listen", "127.0.0.1:0"]
    with Running(command, "worker", "--json", *options, *args, prefix=prefix) as running:
        ready = running.next()
        assert ready["event"] == "ready", ready
        running.ready = ready
        running.listen = ready["listen"]
        yield running


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_file(path: Path, nbytes: int, seed: int = 1) -> Path:
    """Bytes that no neighbour shares: a keyed stream, cheap to make and never the same twice."""
    block = hashlib.shake_128(str(seed).encode()).digest(1 << 16)
    with path.open("wb") as out:
        left = nbytes
        count = 0
        while left > 0:
            piece = count.to_bytes(8, "little") + block[8:]
            out.write(piece[: min(left, len(piece))])
            left -= len(piece)
            count += 1
    return path


def pull_arguments(exported: Event, *more: str | Path) -> list[str | Path]:
    """`tensorferry pull` of what `export` answered."""
    descriptor = ["--descriptor", exported["descriptor"], "--nbytes", str(exported["nbytes"])]
    return ["pull", "--json", "--transport", exported["transport"], *descriptor, *more]
