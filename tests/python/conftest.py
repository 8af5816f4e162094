"""What the tests of the Python package share: it is the wheel's, and each has a gateway and a worker of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tensorferry

ARENA_BYTES = 64 << 20
LANDING_BYTES = 64 << 20


def pytest_sessionstart() -> None:
    # The sources have no extension module, but a stale build might.
    assert "wheel-site" in str(tensorferry.__file__), f"{tensorferry.__file__} is not the wheel's: run ./dev test"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tensorferry.Exporter]:
    with tensorferry.Exporter(
        arena_bytes=ARENA_BYTES,
        listen="127.0.0.1:0",
        local_socket=str(tmp_path / "gateway.sock"),
        max_claim_percent=100,
    ) as exporter:
        yield exporter


@pytest.fixture
def worker() -> Iterator[tensorferry.Puller]:
    with tensorferry.Puller(landing_bytes=LANDING_BYTES) as puller:
        yield puller
