"""examples/two_hosts.sh: what it shows, and that nothing of it is left."""

import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import require_namespaces
from shown import ROOT, looks_like, run_by

SCRIPT = ROOT / "examples" / "two_hosts.sh"
PICTURE = ROOT / "tests" / "data" / "astronaut.png"


@contextmanager
def started(command: Path, *arguments: Path | str) -> Iterator[subprocess.Popen[str]]:
    """Afterwards no namespace is there that was not there before, and with it no interface; and no process."""
    require_namespaces()
    mark = secrets.token_hex(8)
    with subprocess.Popen(
        [SCRIPT, *arguments],
        env={**os.environ, "TENSORFERRY": str(command), "STARTED_BY": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        yield script
    assert [path.name for path in Path("/run/netns").glob(f"*-{script.pid}")] == []
    assert [path for path in Path("/proc").glob("[0-9]*/environ") if mark in environment(path)] == []


def environment(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # it has just ended


def test_a_picture_crosses_and_the_guide_shows_it(command: Path) -> None:
    (block,) = run_by(__file__)
    ((line, shown),) = block.commands()
    words = line.split()
    assert words[:2] == ["sudo", "examples/two_hosts.sh"]
    assert words[2:] == [str(PICTURE.relative_to(ROOT))]
    with started(command, *words[2:]) as script:
        out, err = script.communicate()
    assert script.returncode == 0, err
    assert re.search(r" remote tcp +[\d.]+ ms +verified$", out, re.MULTILINE), out
    for wanted, got in zip(shown, out.splitlines(), strict=True):
        assert looks_like(wanted, got), f"{block} shows\n{wanted}\nbut it prints\n{got}"


def test_a_failure_is_its_own_and_leaves_nothing(command: Path) -> None:
    with started(command, "gone.png") as script:
        _, err = script.communicate()
    assert script.returncode == 1
    assert "gone.png: No such file" in err
    with started(command) as script:
        _, err = script.communicate()
    assert script.returncode == 1
    assert "usage: " in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing_either(command: Path, number: signal.Signals) -> None:
    with started(command, PICTURE, "--repeat", "1000000000") as script:
        assert script.stdout is not None
        assert " worker at 10.0.0.7:" in script.stdout.readline()
        assert "verified" in script.stdout.readline()
        script.send_signal(number)
        script.communicate()
    assert script.returncode == 128 + number
