"""What `./dev bench` measures of the stock peers: their drivers work, and see every byte."""

from pathlib import Path

import pytest
from peers import stock

from bench.contenders import COMMAND, KIB, Contender, Gap, contenders, driver, our_gateway

NAMES = ("stock", "stock-own", "stock-shm", "nixl-puller", "stock-idle")


def contender(name: str) -> Contender:
    (found,) = (each for each in contenders() if each.name == name)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_stock_peer_is_measured(control: dict[int, stock.Pulled], command: Path, name: str) -> None:
    del control
    assert command == COMMAND, "bench/contenders.py runs the plain build"
    row = contender(name).measure({64 * KIB: 4})[64 * KIB]
    assert row["count"] == 4
    assert 0 < row["p50_us"] <= row["max_us"]
    assert row["transport"] == ("file" if name == "stock-shm" else "nixl")
    assert row["gateway_cpu_s_per_gib"] >= 0
    assert row["gateway_peak_bytes"] > 0
    if name == "stock-idle":
        assert row["gateway_idle_percent"] >= 0


def test_a_wrong_byte_of_a_peer_is_a_gap(control: dict[int, stock.Pulled], command: Path) -> None:
    del control
    assert command == COMMAND
    corrupt: dict[str, str | int] = {"engine": "file", "corrupt": 3}
    measure = driver("stock_files", stock.PYTHON, our_gateway, opening=corrupt)
    with pytest.raises(Gap, match="other bytes arrived"):
        measure({64 * KIB: 4})
