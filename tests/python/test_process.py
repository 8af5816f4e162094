"""Signals while a call waits, and what a process ends with, or may not do, around the interpreter's own life."""

import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tensorferry import Exporter


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


WAITING = """
import os, select, signal, socket, sys, threading, time, tensorferry
gateway = tensorferry.Exporter(arena_bytes=8 << 20, listen="127.0.0.1:0")
worker = tensorferry.Puller(landing_bytes=1 << 20)
lease = gateway.export(bytes(1 << 20))
handle = lease.handle()
held = worker.pull(handle)
# What listens at this gateway's address never answers.
mute = socket.create_server(("127.0.0.1", 0))
address = f"127.0.0.1:{mute.getsockname()[1]}"
unanswered = tensorferry.Exporter(arena_bytes=1 << 20, listen="127.0.0.1:0", advertise=[address]).export(b"x").handle()
into = bytearray(1)
receiver = tensorferry.Receiver(worker)
message = tensorferry.TensorData("uint8", [1 << 20], remote=handle)
waits_for_landing = lambda: worker.stats().waiting_for_landing
# The call, and how another thread sees that it waits.
calls = {
    "pull": (lambda: worker.pull(handle, timeout=600), waits_for_landing),
    "pull_all": (lambda: worker.pull_all([handle] * 40, timeout=600), waits_for_landing),
    "pull_into": (lambda: worker.pull_into(unanswered, into, timeout=600), lambda: select.select([mute], [], [], 0)[0]),
    "receive": (lambda: receiver.receive(message, timeout=600), waits_for_landing),
    "receive_all": (lambda: receiver.receive_all([message, message], timeout=600), waits_for_landing),
    "drain": (lambda: gateway.drain(600), lambda: gateway.export(b"").error),
}
def call(name, signal_number):
    what, waits = calls[name]
    def send():
        while not waits():
            time.sleep(0.001)
        os.kill(os.getpid(), signal_number)
    threading.Thread(target=send).start()
    return what()
"""

INTERRUPTED = (
    WAITING
    + """
class Raised(Exception): pass
def raises(*_): raise Raised
name, handler = sys.argv[1:]
# Set in any case: what runs in a shell's background is started with SIGINT ignored.
signal.signal(signal.SIGINT, raises if handler == "handler" else signal.default_int_handler)
try:
    call(name, signal.SIGINT)
except (KeyboardInterrupt, Raised) as error:
    print(type(error).__name__, error.__context__, flush=True)
into.append(0)  # no pull holds it
assert worker.stats().waiting_for_landing == 0
held.release()
assert worker.stats().landing_used_bytes == 0
if name != "drain":
    assert bytes(worker.pull(handle, timeout=30)) == bytes(1 << 20)
print("goes on")
"""
)


@pytest.mark.parametrize("call", ["pull", "pull_all", "pull_into", "receive", "receive_all", "drain"])
@pytest.mark.parametrize("handler", ["default", "handler"])
def test_ctrl_c_ends_a_call_that_waits(call: str, handler: str) -> None:
    """Its time is ten minutes, and the test's is less."""
    done = run(INTERRUPTED, call, handler)
    expected = "KeyboardInterrupt" if handler == "default" else "Raised"
    assert done.stdout == f"{expected} None\ngoes on\n", done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


HANDLED = (
    WAITING
    + """
signal.signal(signal.SIGUSR1, lambda *_: held.release())
assert bytes(call("pull", signal.SIGUSR1)) == bytes(1 << 20)
print("arrived")
"""
)


def test_a_handler_that_does_not_raise_runs_while_the_pull_goes_on() -> None:
    """It even gives the pull what it waits for."""
    done = run(HANDLED)
    assert done.stdout == "arrived\n", done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


BUSY_AT_EXIT = """
import sys, threading, tensorferry
gateway = tensorferry.Exporter(arena_bytes=8 << 20, listen="127.0.0.1:0", local_socket=sys.argv[1])
worker = tensorferry.Puller(landing_bytes=2 << 20)
lease = gateway.export(bytes(1000))
handles = [lease.handle(shm=shm) for shm in (True, False)]
started = threading.Barrier(9)
def pull(handle):
    started.wait()
    while True:
        try: worker.pull(handle, timeout=600)
        except Exception: pass
for i in range(8):
    threading.Thread(target=pull, args=(handles[i % 2],), daemon=True).start()
started.wait()
print("end")
"""


def test_daemon_threads_that_pull_do_not_disturb_the_end(tmp_path: Path) -> None:
    """The interpreter takes the GIL from them for ever, wherever they are."""
    # At once, so that threads are stopped in the midst of more than waiting.
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda i: run(BUSY_AT_EXIT, tmp_path / str(i)), range(6)):
            assert done.returncode == 0, done.stderr
            assert done.stdout == "end\n"


HOLDING_AT_EXIT = """
import pickle, sys, tensorferry
worker = tensorferry.Puller(landing_bytes=1 << 20)
view = worker.pull(pickle.loads(bytes.fromhex(sys.argv[1])))
assert view.borrowed
sys.modules["kept"] = (view, memoryview(view), view.__dlpack__(max_version=(1, 0)))
print("holds")
sys.stdin.read()
"""


def test_a_gateway_gets_back_what_a_worker_held_when_it_ended(gateway: Exporter) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING_AT_EXIT, pickle.dumps((lease := gateway.export(bytes(1000))).handle()).hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        lease.close()
        assert gateway.stats().used_bytes > 0
        process.stdin.close()
        assert process.wait(60) == 0
    until = time.monotonic() + 60
    while gateway.stats().used_bytes and time.monotonic() < until:
        time.sleep(0.01)
    assert gateway.stats().used_bytes == 0


AFTER_THE_INTERPRETER = """
import ctypes, sys, types, tensorferry
gateway = tensorferry.Exporter(arena_bytes=8 << 20, listen="127.0.0.1:0", local_socket=sys.argv[1])
worker = tensorferry.Puller(landing_bytes=1 << 20)
lease = gateway.export(b"abc")
views = [worker.pull(lease.handle(shm=shm)) for shm in (True, False)]
views.append(tensorferry.Receiver().receive(types.SimpleNamespace(dtype="uint8", shape=[3], inline=bytearray(b"abc"))))
take = ctypes.pythonapi.PyCapsule_GetPointer
take.restype, take.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
for view in views:
    capsule = view.__dlpack__(max_version=(1, 0))
    managed = take(capsule, b"dltensor_versioned")
    rename(capsule, USED := b"used_dltensor_versioned")
    deleter = ctypes.c_void_p.from_address(managed + 16)
    # Of a library in C, which ends after Python.
    assert ctypes.CDLL(None).__cxa_atexit(deleter, ctypes.c_void_p(managed), None) == 0
sys.modules["kept"] = USED
print("end")
"""


def test_a_library_in_c_may_give_back_after_the_interpreter_has_ended(tmp_path: Path) -> None:
    done = run(AFTER_THE_INTERPRETER, tmp_path / "s")
    assert done.stdout == "end\n", done.stderr
    assert done.returncode == 0, done.stderr


SUBINTERPRETER = """
import _xxsubinterpreters as interpreters
other = interpreters.create(isolated=False)
try:
    interpreters.run_string(other, "import tensorferry")
except interpreters.RunFailedError as error:
    print(error)
"""


def test_a_subinterpreter_is_refused() -> None:
    done = run(SUBINTERPRETER)
    assert "ImportError" in done.stdout, done.stdout + done.stderr
    assert "main interpreter" in done.stdout
