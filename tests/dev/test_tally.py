"""The numbers that CI reads."""

import subprocess
from pathlib import Path

import pytest

TALLY = Path(__file__).parents[2] / "ci" / "tally.py"

CTEST = """<?xml version="1.0"?><testsuite tests="3"><testcase name="a" status="run"/>
<testcase name="b" status="fail"><failure message=""/></testcase>
<testcase name="c" status="notrun"><skipped message="x"/></testcase></testsuite>"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "unit.xml").write_text(CTEST)
    (tmp_path / "lint").mkdir()
    (tmp_path / "lint" / "checks.txt").write_text("passed ruff\nfailed my py\n")
    return tmp_path


def tally(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run([TALLY, *arguments], capture_output=True, text=True, check=True)
    return done.returncode, done.stdout


def test_sums_over_all_runners(results: Path) -> None:
    assert tally(results) == (0, "2 passed, 2 failed, 1 skipped\n")


def test_names_no_skipped_tests_where_there_are_none(results: Path) -> None:
    assert tally(results / "lint") == (0, "1 passed, 1 failed\n")


def test_lists_names(results: Path) -> None:
    assert tally("--failed", results) == (0, "my py\nb\n")
    assert tally("--skipped", results) == (0, "c\n")
