#!/usr/bin/python3 -IS
"""Runs a command; if it is not done in time, prints all stacks of all its processes, kills it and fails.

    ci/with_stacks.py --timeout 60 build/wire_test --gtest_filter=Frame.*

SIGALRM does at once what the timeout does. Processes that the command leaves behind are killed and fail it, too: they
would disturb what runs next. Also a module: dump_stacks() and kill_descendants() serve the Python tests.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GDB = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "set pagination off"]
GDB_SECONDS = 60
TIMED_OUT = 124
LEFT_BEHIND = 125


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`, parents first; `pid` itself is not among them."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has just ended
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [pid]
    for parent_pid in found:
        found += children.get(parent_pid, [])
    return found[1:]


def describe(pid: int) -> str:
    try:
        return f"{pid}: " + Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"{pid}: (ended)"


def kernel_states(pid: int) -> str:
    """What is known without a debugger: name, state and wait channel of each thread."""
    lines = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            lines.append(
                f"thread {task.name} {(task / 'comm').read_text().strip()}: {state} {(task / 'wchan').read_text()}"
            )
        except OSError as error:
            lines.append(f"thread {task.name}: {error}")
    return "\n".join(lines)


def stacks_of(pid: int) -> str:
    try:
        gdb = subprocess.run(
            [*GDB, "-ex", "thread apply all backtrace", "-p", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=GDB_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"gdb: {error}\n{kernel_states(pid)}"
    text = gdb.stdout.decode(errors="replace")
    return text if "\nThread " in text else f"{text}\n{kernel_states(pid)}"


def dump_stacks(pids: list[int]) -> str:
    return "\n".join(f"=== stacks of {describe(pid)}\n{stacks_of(pid)}" for pid in pids)


def wait_until_none_lives(pid: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while descendants(pid) and time.monotonic() < until:
        time.sleep(0.01)


def kill_descendants(pid: int) -> list[str]:
    """Kills all below `pid`. Returns what was killed."""
    pids = descendants(pid)
    killed = [describe(child) for child in pids]
    for child in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    wait_until_none_lives(pid, seconds=10)
    return killed


class TimeIsUpError(Exception):
    pass


def on_alarm(_signal: int, _frame: FrameType | None) -> None:
    raise TimeIsUpError


def start(command: list[str]) -> int:
    prctl = ctypes.CDLL(None).prctl
    # Orphans become our children instead of init's: none escapes the dump and the kill.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"with_stacks: {command[0]}: {error.strerror}", file=sys.stderr)
            os._exit(127)
    return pid


def wait(pid: int) -> int:
    """The exit code of `pid`; meanwhile collects orphans."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                print(f"with_stacks: killed by {signal.Signals(-code).name}", flush=True)
            return code if code >= 0 else 128 - code


def collect_children() -> None:
    """So that no dead ones stay in the process table where nobody else would collect them."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def run(command: list[str], timeout: float) -> int:
    signal.signal(signal.SIGALRM, on_alarm)
    pid = start(command)
    try:
        signal.setitimer(signal.ITIMER_REAL, timeout)
        code = wait(pid)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeIsUpError:
        print(f"with_stacks: not done after {timeout:g} s: {' '.join(command)}", flush=True)
        print(dump_stacks(descendants(os.getpid())), flush=True)
        kill_descendants(os.getpid())
        collect_children()
        return TIMED_OUT
    # What ends with its parent needs a moment for it.
    wait_until_none_lives(os.getpid(), seconds=2)
    if left := kill_descendants(os.getpid()):
        print("with_stacks: left running, killed now:", *left, sep="\n  ", flush=True)
        collect_children()
        return code or LEFT_BEHIND
    return code


def main(arguments: list[str]) -> int:
    if len(arguments) < 3 or arguments[0] != "--timeout":
        print("usage: with_stacks.py --timeout SECONDS COMMAND...", file=sys.stderr)
        return 2
    return run(arguments[2:], float(arguments[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
