"""Contenders of `./dev bench` that need no peer of SMG's: tests/peers/test_bench.py has the others."""

import shutil
from pathlib import Path

import pytest

from bench.contenders import COMMAND, KIB, PARTS, contenders


@pytest.mark.parametrize("name", ["tcp", "stage", "ucx-perftest"])
def test_a_contender_is_measured(command: Path, name: str) -> None:
    assert command == COMMAND, "bench/contenders.py runs the plain build"
    if name == "stage" and not PARTS.exists():
        pytest.skip(f"{PARTS.name} is not built: the parts are NOT measured here")
    if name == "ucx-perftest" and shutil.which("ucx_perftest") is None:
        pytest.skip("there is no ucx_perftest (package ucx-utils): this peer is NOT measured here")
    (contender,) = (each for each in contenders() if each.name == name)
    row = contender.measure({64 * KIB: 4})[64 * KIB]
    assert row["nbytes"] == 64 * KIB
    assert row["p50_us"] > 0
    assert row.get("page_faults", 0) == 0
