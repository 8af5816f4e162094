"""The reference is the code's: the command's help, and the codes of errors."""

import json
import re
from pathlib import Path

import pytest
import reference
from ferry import run
from shown import ROOT, Session

MADE = ["command.md", "errors.md"]
CODES = re.findall(r"^\| `(\w+)` \| \d+ \|", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", MADE)
def test_it_is_what_the_code_says(command: Path, name: str) -> None:
    wanted = reference.contents(command)
    assert sorted(path.name for path in wanted) == MADE
    document = ROOT / "docs" / name
    assert document.read_text() == wanted[document], "./dev docs writes it anew"


def test_codes_are_many_and_each_is_once() -> None:
    assert len(CODES) > 40
    assert len(set(CODES)) == len(CODES)


# Errors of several kinds: what is asked for, and the code.
DESCRIPTOR = "54464552525901028400020011111111111111111111111111111111050000000000000007000000000000002222222222222222"
WRONG = {
    "inspect 00": "bad_descriptor",
    f"inspect {DESCRIPTOR}": "too_short",
    "pull --transport nixl --descriptor 534d4752 --nbytes 4": "legacy_needs_key",
    "send tests/data/chelsea.png --to 127.0.0.1:1": "unreachable",
    "export --listen 0.0.0.0:0": "bad_address",
    "worker --listen 127.0.0.1:0 --metrics 10.0.0.9:0": "bad_address",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_printed_is_a_documented_code(command: Path, line: str) -> None:
    """The same in brackets for people and in the JSON for programs."""
    verb, *arguments = line.replace("tests/data", str(ROOT / "tests" / "data")).split()
    result = run(command, verb, *arguments, "--json")
    assert result.code == 1, result.out + result.err
    assert re.search(rf"\({WRONG[line]}\)$", result.err.splitlines()[-1]), result.err
    assert WRONG[line] in CODES
    for row in result.out.splitlines():
        assert json.loads(row)["code"] == WRONG[line]


def examples(command: Path) -> list[tuple[str, str]]:
    """(verb, line) of every example in the help."""
    found = []
    for verb in re.findall(r"^## (\w+)$", reference.command_document(command), re.MULTILINE):
        part = run(command, verb, "--help").out.partition("Example:\n")[2].partition("\n\n")[0]
        assert part, f"{verb} has no example"
        # What stands far behind a line says where it is typed.
        found += [(verb, re.sub(r" {3,}.*", "", line.strip())) for line in part.splitlines()]
    return found


def test_every_example_of_the_help_runs(command: Path, tmp_path: Path) -> None:
    """As it stands, but for a descriptor, which comes from the example of `export`."""
    found = examples(command)
    header = "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"
    (tmp_path / "features.npy").write_bytes(header.encode("latin-1").ljust(127) + b"\n" + bytes(16))
    (tmp_path / "tensor.bin").write_bytes(bytes(1000))
    (tmp_path / "llava").mkdir()
    with Session(command, tmp_path) as host:
        workers = [line for verb, line in found if verb == "worker"]
        # The first one stays, and serves the other verbs.
        for line in [*workers[1:], workers[0]]:
            host.run(f"{line} &")
            if line != workers[0]:
                host.end()
        exports = [line for verb, line in found if verb == "export"]
        assert len(exports) == 1
        with host.begin(exports[0]) as gateway:
            assert gateway.stdout is not None
            assert json.loads(gateway.stdout.readline())["event"] == "ready"
            exported = json.loads(gateway.stdout.readline())
            others = [line for verb, line in found if verb not in ("worker", "export")]
            for line in others:
                line = line.replace("54464552…", exported["descriptor"]).replace("9437184", str(exported["nbytes"]))
                host.run(f"{line} &" if "bench --serve" in line else line)
            gateway.stdout.read()
        assert gateway.returncode == 0
        assert (tmp_path / "tensor.bin").read_bytes() == bytes(1000)
    assert len(found) == len(workers) + len(exports) + len(others) >= 10
