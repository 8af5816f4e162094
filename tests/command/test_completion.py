"""What bash offers for a line that is being typed."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from ferry import run

# $0 is the script, the rest the words of the line; the last is being typed.
OFFER = """
source "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tensorferry
((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(command: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "tensorferry"
    path.write_text(run(command, "completion").out)
    return path


def offered(script: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", OFFER, script, "tensorferry", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_verbs(command: Path, script: Path) -> None:
    verbs = offered(script, "")
    assert {"worker", "send", "doctor", "explain", "completion", "--help", "--version"} <= set(verbs)
    assert sorted(offered(script, "ex")) == ["explain", "export"]
    for verb in verbs:
        if not verb.startswith("-"):
            assert run(command, verb, "--help").code == 0


def test_every_option_of_a_verb(command: Path, script: Path) -> None:
    for verb in offered(script, ""):
        if verb.startswith("-"):
            continue
        shown = set(re.findall(r"--[a-z][a-z0-9-]*", run(command, verb, "--help").out))
        options = offered(script, verb, "--")
        assert "--help" in options
        assert set(options) <= shown, verb


def test_values_and_files(script: Path) -> None:
    assert offered(script, "send", "--dtype", "f") == ["float16", "float32"]
    assert offered(script, "send", "--to", "") == []  # a host: bash offers what it knows
    assert offered(script, "send", "pho") == []  # a file
    assert offered(script, "send", "--lan") == ["--lane"]


def test_it_is_found_by_name(script: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", 'source "$0"; complete -p tensorferry', script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert done.stdout == "complete -o default -F _tensorferry tensorferry\n"
