"""The programs of docs/python.md, as the guide says to run them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ferry import run
from peers import stock
from shown import Session, run_by

import tensorferry

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/python"
# As its users have it: beside SMG's messages, and without our sources.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(tensorferry.__file__).parents[1])}


@pytest.fixture
def worker() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    if stock.missing() is not None:
        pytest.skip("SMG's messages are missing; ./dev setup brings them")
    process = subprocess.Popen(
        [stock.PYTHON, EXAMPLES / "worker.py", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on port ")
        yield f"127.0.0.1:{line.split()[-1]}", process
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_the_gateway_and_the_worker(worker: tuple[str, subprocess.Popen[str]]) -> None:
    address, process = worker
    assert process.stdout is not None
    for _ in range(2):
        done = subprocess.run(
            [stock.PYTHON, EXAMPLES / "gateway.py", address],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        )
        told = process.stdout.readline()
        assert done.stdout == "accepted 2408448 bytes\n"
        assert told == "<tensorferry.Tensor float32[3, 448, 448] by shm over local borrowed>\n"


def test_the_guide_shows_it(command: Path, tmp_path: Path) -> None:
    if stock.missing() is not None:
        pytest.skip("SMG's messages are missing; ./dev setup brings them")
    (block,) = run_by(__file__)
    environment = {**ENVIRONMENT, "PATH": f"{stock.PYTHON.parent}:{os.environ['PATH']}"}
    with Session(command, tmp_path, environment) as session:
        session.type(block)


@pytest.mark.parametrize(("lane", "transport"), [("inline", "grpc"), ("shm", "local"), ("remote", "tcp")])
def test_our_command_before_the_worker(
    command: Path, worker: tuple[str, subprocess.Popen[str]], lane: str, transport: str
) -> None:
    address, process = worker
    result = run(command, "send", "--json", ROOT / "tests/data/astronaut.png", "--to", address, "--lane", lane)
    assert result.code == 0, result.out + result.err
    assert (result.row()["lane"], result.row()["transport"]) == (lane, transport)
    assert process.stdout is not None
    assert f"by {lane} over {transport}" in process.stdout.readline()


def test_the_gateway_before_a_stock_worker_puts_the_bytes_into_the_message() -> None:
    if stock.missing() is not None:
        pytest.skip("SMG's worker is missing; ./dev setup brings it")
    with stock.Encoder() as encoder:
        subprocess.run([stock.PYTHON, EXAMPLES / "gateway.py", encoder.listen], env=ENVIRONMENT, check=True)
        assert encoder.next()["shape"] == [3, 448, 448]


def test_the_gateway_is_40_lines() -> None:
    assert len((EXAMPLES / "gateway.py").read_text().splitlines()) <= 40


def test_numpy() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "with_numpy.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("66.0 <tensorferry.Tensor float32[3, 4] by shm over local borrowed>\n")


def test_settings() -> None:
    variables = {"SMG_RDMA_SLOT_BYTES": "1048576", "SMG_RDMA_LANDING_SLOTS": "4"}

    def start(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [sys.executable, "-W", "error", EXAMPLES / "with_settings.py"]
        return subprocess.run(command, env={**ENVIRONMENT, **environment}, capture_output=True, text=True, check=False)

    done = start(variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(r"^slot_bytes +1048576 +environment SMG_RDMA_SLOT_BYTES$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("4194304 bytes to land in; derived\n")
    old = start({**variables, "SMG_TOKENSPEED_MM_TENSOR_TRANSPORT": "shm"})
    assert "WARNING" in old.stderr
    assert "SMG_TOKENSPEED_MM_TENSOR_TRANSPORT" in old.stderr
    refused = start({**variables, "SMG_RDMA_LANDING_SLOTS": "4M"})
    assert refused.returncode == 1
    assert "InputError: SMG_RDMA_LANDING_SLOTS" in refused.stderr


def test_torch_if_it_is_there() -> None:
    done = subprocess.run([sys.executable, EXAMPLES / "with_torch.py"], capture_output=True, text=True, check=True)
    assert done.stdout in ("66.0 (3, 4)\n", "torch is not installed\n")
