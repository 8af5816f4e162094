"""The two programs of docs/embedding.md, as the guide says to run them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def examples(command: Path) -> Path:
    return command.parent.parent / "examples"


@pytest.fixture
def worker_port(examples: Path) -> Iterator[str]:
    worker = subprocess.Popen([examples / "example_worker", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    with worker:
        line = worker.stdout.readline()
        assert line.startswith("listening on port ")
        yield line.split()[-1]
        worker.terminate()


def test_the_guides_output_is_what_they_print(examples: Path, worker_port: str) -> None:
    guide = Path("docs/embedding.md").read_text()
    for _ in range(2):
        result = subprocess.run(
            [examples / "example_gateway", f"127.0.0.1:{worker_port}"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout == "1204224 bytes by lane shm over local\n"
        assert result.stdout in guide


def test_a_worker_that_is_not_there_is_one_clear_line(examples: Path) -> None:
    result = subprocess.run([examples / "example_gateway", "127.0.0.1:1"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("name", ["gateway.cc", "worker.cc", "python/gateway.py", "python/worker.py"])
def test_it_is_short(name: str) -> None:
    assert len((Path("examples") / name).read_text().splitlines()) < 100
