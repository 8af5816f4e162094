"""A test that hangs shows where, and takes nothing else with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import with_stacks

ROOT = Path(__file__).parents[2]
WITH_STACKS = ROOT / "ci" / "with_stacks.py"

HANGING_PROGRAM = """
#include <unistd.h>
#include <cstdio>
#include <thread>
void Ready(const char* who) { std::printf("%s %d\\n", who, getpid()); std::fflush(stdout); }
void HangInAThread() { Ready("thread"); for (;;) pause(); }
void HangInAChild() { Ready("child"); for (;;) pause(); }
int main() {
  if (fork() == 0) { setsid(); HangInAChild(); }
  std::thread thread(HangInAThread);
  thread.join();
}
"""


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture(scope="module")
def hanging_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("hang") / "hang"
    subprocess.run(["g++", "-x", "c++", "-g", "-o", program, "-"], input=HANGING_PROGRAM, text=True, check=True)
    return program


def test_all_threads_of_all_processes_are_shown_and_killed(hanging_program: Path) -> None:
    command: list[str | Path] = [WITH_STACKS, "--timeout", "1000", hanging_program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as wrapper:
        assert wrapper.stdout
        ready = dict(wrapper.stdout.readline().split() for _ in range(2))
        wrapper.send_signal(signal.SIGALRM)
        output = wrapper.stdout.read()

    assert wrapper.returncode == with_stacks.TIMED_OUT
    assert "HangInAThread" in output
    assert "HangInAChild" in output
    assert not alive(int(ready["thread"]))
    assert not alive(int(ready["child"]))


def test_the_time_limit_ends_a_command() -> None:
    done = subprocess.run(
        [WITH_STACKS, "--timeout", "0.2", "sleep", "1000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == with_stacks.TIMED_OUT
    assert "not done after 0.2 s: sleep 1000" in done.stdout


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -SEGV $$", 128 + signal.SIGSEGV),
        ("sleep 1000 &", with_stacks.LEFT_BEHIND),
    ],
)
def test_exit_codes(script: str, code: int) -> None:
    done = subprocess.run([WITH_STACKS, "--timeout", "100", "sh", "-c", script], capture_output=True, check=False)
    assert done.returncode == code


def test_a_python_test_that_hangs_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import subprocess\ndef test_hangs(): subprocess.run(['sleep', '1000'])\ndef test_that_comes_after(): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", "--timeout", "0.5", "--rootdir", tmp_path, "-c",
         ROOT / "pyproject.toml", tmp_path / "test_it.py"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'ci'}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout
    assert "test_hangs: not done after 0.5 s" in done.stdout
    assert "test_hangs" in done.stderr, "Python's own stack"
    assert "sleep 1000" in done.stdout
    assert "Thread 1" in done.stdout, "gdb's stacks of the child"
