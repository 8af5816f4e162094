"""What the documents say is so: code is code that is compiled, and the tests that they name exist."""

import re
from pathlib import Path

import pytest
import shown
from shown import DOCUMENTS, ROOT

# What examples/ and tests/install/ build, so that a block found there is a block that compiles.
COMPILED = [*ROOT.glob("examples/*.cc"), *ROOT.glob("tests/install/**/*")]


def blocks(document: Path, *languages: str) -> list[str]:
    return [block.text for block in shown.blocks(document) if block.language in languages]


def squeezed(text: str) -> str:
    """Without white space: a quotation may be indented and broken otherwise than its source."""
    return "".join(text.split())


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


@pytest.mark.parametrize(
    ("document", "least"),
    [("shm_files.md", 30), ("lanes.md", 30), ("nixl.md", 90), ("leases.md", 20), ("../SECURITY.md", 20)],
)
def test_the_tests_that_documents_name_exist(document: str, least: int) -> None:
    """They say which test shows what."""
    tests = [*ROOT.glob("tensorferry/**/*_test.cc"), *ROOT.glob("tests/**/test_*.py")]
    sources = "\n".join(file.read_text() for file in tests)
    text = (ROOT / "docs" / document).read_text()
    named = re.findall(r"`((?:[A-Z]\w+\.[A-Z]\w+)|(?:test_\w+))`", text)
    assert len(named) > least
    for name in named:
        suite, _, test = name.rpartition(".")
        wanted = rf"\({suite}, {test}[,)]" if suite else rf"def {name}\("
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


def test_every_check_of_the_doctor_is_documented() -> None:
    """docs/doctor.md has a heading for each, and for nothing else."""
    sources = [file.read_text() for file in (ROOT / "tools" / "doctor").glob("*_checks.cc")]
    checks = re.findall(r'^    \{"(\w+)",(?: "\w+",)? Check\w+\},$', "\n".join(sources), re.MULTILINE)
    assert len(checks) > 20
    headings = re.findall(r"^### (.*)$", (ROOT / "docs" / "doctor.md").read_text(), re.MULTILINE)
    assert sorted(", ".join(headings).split(", ")) == sorted([*checks, "transfer", "peer", "remote_choice"])
