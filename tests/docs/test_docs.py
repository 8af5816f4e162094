"""What the documents say is so: links lead somewhere, C++ is compiled, commands run."""

import re
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
# What examples/ and tests/install/ build, so that a block found there is a block that compiles.
COMPILED = [*ROOT.glob("examples/*.cc"), *ROOT.glob("tests/install/**/*")]


def blocks(document: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def squeezed(text: str) -> str:
    """Without white space: a quotation may be indented and broken otherwise than its source."""
    return "".join(text.split())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        if "://" not in target:
            path = document.parent / target.partition("#")[0]
            assert path.exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_code_is_code_that_is_compiled(document: Path) -> None:
    sources = [squeezed(f.read_text()) for f in COMPILED if f.suffix in (".cc", ".txt")]
    for block in blocks(document, "cpp"):
        assert any(squeezed(block) in source for source in sources), f"{document.name}:\n{block}"
    scripts = [squeezed(path.read_text()) for path in ROOT.glob("examples/python/*.py")]
    for block in blocks(document, "python"):
        assert any(squeezed(block) in script for script in scripts), f"{document.name}:\n{block}"
    for line in "".join(blocks(document, "cmake")).splitlines():
        wanted = squeezed(line.replace("my_gateway", "grpc_consumer"))
        assert any(wanted in source for source in sources), f"{document.name}:\n{line}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_commands_run(command: Path, tmp_path: Path) -> None:
    photo = ROOT / "tests" / "data" / "grace_hopper.jpg"
    (tmp_path / "photo.jpg").write_bytes(photo.read_bytes())
    address = f"127.0.0.1:{free_port()}"
    ran = 0
    started: list[subprocess.Popen[str]] = []
    try:
        for line in "".join(blocks(ROOT / "README.md", "console")).splitlines():
            if not line.startswith("$ tensorferry "):
                continue
            words = shlex.split(line.removeprefix("$ tensorferry ").replace("127.0.0.1:50051", address))
            ran += 1
            if words[-1] == "&":
                process = subprocess.Popen([command, *words[:-1]], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
                started.append(process)
                assert process.stdout is not None
                assert address in process.stdout.readline()  # it says so when it is ready
                continue
            done = subprocess.run([command, *words], cwd=tmp_path, text=True, capture_output=True, check=False)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    finally:
        for process in started:
            process.terminate()
            process.communicate()
            assert process.returncode == 0
    assert ran >= 4


def test_the_readme_shows_the_demo_as_it_is() -> None:
    """The table in the README has the demo's columns and files, whatever the times were that day."""
    text = "".join(blocks(ROOT / "README.md", "text"))
    demo = (ROOT / "tools" / "demo" / "demo.py").read_text()
    for name in re.findall(r'"([\w-]+(?:64KiB|9MiB|100MiB)\.\w+)"', demo):
        assert text.count(name) == 3, name
    columns = re.search(r"COLUMNS = \((.*?)\)", demo)
    assert columns is not None
    for column in re.findall(r'"(\w+)"', columns.group(1)):
        assert column in text


@pytest.mark.parametrize(("document", "least"), [("shm_files.md", 30), ("lanes.md", 30), ("nixl.md", 90)])
def test_the_tests_that_documents_name_exist(document: str, least: int) -> None:
    """They say which test shows what."""
    tests = [*ROOT.glob("tensorferry/**/*_test.cc"), *ROOT.glob("tests/**/test_*.py")]
    sources = "\n".join(file.read_text() for file in tests)
    text = (ROOT / "docs" / document).read_text()
    named = re.findall(r"`((?:[A-Z]\w+\.[A-Z]\w+)|(?:test_\w+))`", text)
    assert len(named) > least
    for name in named:
        suite, _, test = name.rpartition(".")
        wanted = rf"\({suite}, {test}\)" if suite else rf"def {name}\("
        assert re.search(wanted, sources), name


def test_every_fault_of_the_nixl_lane_has_a_test() -> None:
    """The table of docs/nixl.md: each number once, in order, none without a test."""
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]*) \|$", (ROOT / "docs" / "nixl.md").read_text(), re.MULTILINE)
    wanted = [*range(1, 25), *range(34, 41), *range(42, 47), 49, 50]
    assert [int(number) for number, _ in rows] == wanted
    assert all("`" in tests for _, tests in rows)


def test_every_metric_is_moved_by_a_test() -> None:
    """By one beside the code that counts it: the tests of the table and of the arithmetic do not count."""
    table = (ROOT / "tensorferry" / "metrics" / "metric_table.h").read_text()
    metrics = re.findall(r'^  X\((k\w+), "(?:tensorferry|smg_mm)_', table, re.MULTILINE)
    assert len(metrics) >= 28
    tests = [*ROOT.glob("tensorferry/**/*_test.cc")]
    sources = "\n".join(file.read_text() for file in tests if file.parent.name not in ("metrics", "prometheus"))
    assert [metric for metric in metrics if f"Metric::{metric}" not in sources] == []


def test_every_reason_is_documented() -> None:
    """docs/errors.md is the table of base/error.h, row for row."""
    source = (ROOT / "tensorferry" / "base" / "error.h").read_text()
    reasons = re.findall(r'X\(k\w+, \d+, "(\w+)", \w+, (\w+),[\s\\]*"(.*?)"\)', source)
    assert len(reasons) == len(re.findall(r"^  X\(", source, re.MULTILINE))
    documented = re.findall(
        r"^\| `(\w+)` \| (yes|no) \| (.*) \|$",
        (ROOT / "docs" / "errors.md").read_text(),
        re.MULTILINE,
    )
    assert documented == [(name, "yes" if again == "true" else "no", text) for name, again, text in reasons]


def test_every_check_of_the_doctor_is_documented() -> None:
    """docs/doctor.md has a heading for each, and for nothing else."""
    sources = [file.read_text() for file in (ROOT / "tools" / "doctor").glob("*_checks.cc")]
    checks = re.findall(r'^    \{"(\w+)",(?: "\w+",)? Check\w+\},$', "\n".join(sources), re.MULTILINE)
    assert len(checks) > 20
    headings = re.findall(r"^### (.*)$", (ROOT / "docs" / "doctor.md").read_text(), re.MULTILINE)
    assert sorted(", ".join(headings).split(", ")) == sorted([*checks, "transfer", "peer", "remote_choice"])
