"""Our two ends over NIXL on one host, and on two, which are two network namespaces."""

from pathlib import Path

import pytest
from ferry import run
from hosts import two_hosts
from peers import ours, stock

pytestmark = pytest.mark.usefixtures("nixl")

SIZES = [*stock.SIZES, 100 * stock.MIB]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Arrays of random bytes, one of each size."""
    return ours.arrays(tmp_path_factory.mktemp("arrays"), *SIZES)


def expect_sent(command: Path, to: str, files: list[Path], *more: str, prefix: list[str]) -> None:
    result = run(command, *ours.send_arguments(to, *files, *more), prefix=prefix)
    assert result.code == 0, result.out + result.err
    rows = result.rows()
    assert [row["nbytes"] for row in rows] == SIZES
    ours.expect_sent(rows)


def test_every_size_on_one_host(command: Path, files: list[Path]) -> None:
    with ours.worker(command) as running:
        expect_sent(command, running.listen, files, prefix=ours.OVER_TCP)


def test_every_size_between_two_hosts(command: Path, files: list[Path]) -> None:
    with two_hosts() as (gateway, other):
        reached = ["--listen", f"{other.v4}:0", "--allow", gateway.network_v4]
        with ours.worker(command, *reached, prefix=other.prefix) as running:
            expect_sent(command, running.listen, files, prefix=[*gateway.prefix, *ours.OVER_TCP])


def test_a_gateway_outside_the_allow_list_is_not_dialled(command: Path, files: list[Path]) -> None:
    with two_hosts() as (gateway, other):
        with ours.worker(command, "--listen", f"{other.v4}:0", prefix=other.prefix) as running:
            result = run(
                command,
                *ours.send_arguments(running.listen, files[1]),
                prefix=[*gateway.prefix, *ours.OVER_TCP],
            )
            assert result.code == 1
            assert result.row()["code"] == "not_allowed"
            assert gateway.v4 in result.row()["error"]


def test_lanes_are_chosen_and_fall_back_with_nixl_as_well(command: Path, files: list[Path]) -> None:
    """With all engines on, auto takes memory on this host; nixl goes before tcp only where tcp is off."""
    with ours.worker(command, "--engine", "local,tcp,nixl") as running:
        for engines, lane, transport in (
            ("local,tcp,nixl", "auto", "local"),
            ("nixl", "auto", "nixl"),
            ("nixl", "inline", "grpc"),
        ):
            result = run(
                command,
                *("send", "--json", "--to", running.listen, files[2], "--lane", lane, "--engine", engines),
                *ours.with_lib(),
                *(["--shm-transport", "local"] if engines == "nixl" else []),
                prefix=ours.OVER_TCP,
            )
            assert result.code == 0, result.out + result.err
            assert (result.row()["transport"], result.row()["verified"]) == (transport, True)
