"""What `./dev bench` measures of the package: its driver works."""

from pathlib import Path

from bench.contenders import COMMAND, KIB, contenders


def test_the_package_is_measured(command: Path) -> None:
    assert command == COMMAND, "bench/contenders.py runs the plain build"
    (ours,) = (each for each in contenders() if each.name == "python")
    row = ours.measure({64 * KIB: 4})[64 * KIB]
    assert row["count"] == 4
    assert row["transport"] == "tcp"
    assert 0 < row["p50_us"] <= row["max_us"]
