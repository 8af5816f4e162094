"""The demo: what a newcomer sees first."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "tools" / "demo" / "demo.py"


def demo(command: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, DEMO, "--command", command, *args],
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_lane_carries_every_file(command: Path) -> None:
    done = demo(command, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(r["lane"], r["transport"]) for r in rows} == {
        ("inline", "grpc"),
        ("shm", "local"),
        ("remote", "tcp"),
    }
    assert all(r["verified"] is True for r in rows)
    for lane in ("inline", "shm", "remote"):
        sizes = sorted(r["nbytes"] for r in rows if r["lane"] == lane)
        assert sizes[0] < 66_000
        assert sizes[-1] == 100 << 20


LIAR = """#!/usr/bin/env python3
import json, os, subprocess, sys
command = {command!r}
if sys.argv[1] != "send":
    os.execv(command, [command, *sys.argv[1:]])
done = subprocess.run([command, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
for line in done.stdout.splitlines():
    print(json.dumps({{**json.loads(line), {lie}}}))
sys.exit(done.returncode)
"""


@pytest.mark.parametrize("lie", ['"verified": False', '"lane": "inline"', '"sha256": "0"', '"verified": None'])
def test_it_fails_when_anything_is_wrong(command: Path, tmp_path: Path, lie: str) -> None:
    liar = tmp_path / "liar"
    liar.write_text(LIAR.format(command=str(command), lie=lie))
    liar.chmod(0o755)
    done = demo(liar)
    assert done.returncode == 1, done.stdout
    assert "demo:" in done.stderr
