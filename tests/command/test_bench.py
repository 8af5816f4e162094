"""`bench`: every engine measures, every byte counts, and what went wrong has no figure."""

import csv
import io
import json
import socket
import subprocess
from pathlib import Path
from typing import TextIO

import pytest
from ferry import Event, Result, Running, run

ENGINES = {
    "local": "local",
    "file": "file",
    "tcp": "tcp",
    "grpc": "grpc",
    "sockets": "sockets",
    "sockets-blocking": "sockets",
    "memcpy": "memcpy",
}
SIZES = {"1000": 1000, "64k": 64 << 10, "3m": 3 << 20}


def bench(command: Path, *args: str | Path) -> Result:
    return run(command, "bench", "--count", "3", "--warm-up", "1", *args)


def check(row: Event) -> None:
    """A row of figures is complete and makes sense."""
    assert "error" not in row, row
    for key in ("lane", "engine", "transport", "nbytes", "concurrency", "workers", "batch", "rpc"):
        assert key in row
    assert 0 < row["p50_us"] <= row["p90_us"] <= row["p99_us"] <= row["max_us"], row
    assert row["gb_per_s"] > 0
    assert min(row["gateway_us"], row["worker_us"]) >= 0
    assert min(row["gateway_cpu_s_per_gib"], row["worker_cpu_s_per_gib"]) >= 0
    assert min(row["gateway_peak_bytes"], row["worker_peak_bytes"]) > 1 << 20
    assert "cores" in row["machine"]
    assert row["version"].count(".") == 2
    assert row["version"] == row["gateway_version"]


def test_every_engine_and_yardstick_at_every_size(command: Path) -> None:
    result = bench(command, "--json", "--engine", ",".join(ENGINES), "--sizes", ",".join(SIZES))
    assert result.code == 0, result.err
    assert result.err == "", "progress is for terminals"
    rows = result.rows()
    assert [(row["engine"], row["nbytes"]) for row in rows] == [(e, n) for e in ENGINES for n in SIZES.values()]
    for row in rows:
        check(row)
        assert row["transport"] == ENGINES[row["engine"]]
        assert row["count"] == 3
        assert row["rpc"] == (row["engine"] == "grpc")
        if row["engine"] in ("local", "tcp"):
            # One tensor was on offer: its bytes and what they are rounded up to.
            assert row["nbytes"] <= row["arena_bytes_per_tensor"] <= row["nbytes"] * 1.06 + 4096


@pytest.mark.plain_build  # as test_export_pull.py says
@pytest.mark.parametrize("engine", ["ucx", "ucx-get"])
@pytest.mark.usefixtures("ucx_module")
def test_ucx_is_measured(command: Path, engine: str) -> None:
    result = bench(command, "--json", "--engine", engine, "--sizes", ",".join(SIZES), "--idle", "0.1")
    assert result.code == 0, result.err
    for row in result.rows():
        check(row)
        assert row["transport"] == "ucx"
        assert min(row["gateway_idle_percent"], row["worker_idle_percent"]) >= 0


def test_each_lane_has_an_engine(command: Path) -> None:
    result = bench(command, "--json", "--lane", "inline,shm,remote", "--sizes", "64k")
    assert result.code == 0, result.err
    assert [(row["lane"], row["engine"]) for row in result.rows()] == [
        ("inline", "grpc"),
        ("shm", "local"),
        ("remote", "tcp"),
    ]


@pytest.mark.parametrize("engine", ["local", "tcp"])
@pytest.mark.parametrize(
    "options",
    [
        ["--concurrency", "4", "--workers", "2"],
        ["--batch", "5"],
        ["--batch", "5", "--one-by-one"],
        ["--copy"],
        ["--export"],
        ["--rpc", "--concurrency", "2"],
        ["--rpc", "--batch", "2"],
    ],
)
def test_every_way_of_fetching(command: Path, engine: str, options: list[str]) -> None:
    result = bench(command, "--json", "--engine", engine, "--sizes", "64k,3m", *options)
    assert result.code == 0, result.err
    for row in result.rows():
        check(row)
        assert row["count"] == 3 * row["concurrency"]


@pytest.mark.parametrize("options", [["--concurrency", "4"], ["--batch", "4"]])
def test_sockets_share_their_memory(command: Path, options: list[str]) -> None:
    result = bench(command, "--json", "--engine", "sockets", "--sizes", "64k,3m", *options)
    assert result.code == 0, result.err
    assert len(result.rows()) == 2


def test_each_size_may_have_a_count_of_its_own(command: Path) -> None:
    result = run(command, "bench", "--json", "--engine", "local", "--sizes", "64k,1m", "--count", "7,2")
    assert [row["count"] for row in result.rows()] == [7, 2]


def test_a_duration_ends_it(command: Path) -> None:
    result = run(command, "bench", "--json", "--engine", "local", "--sizes", "64k", "--duration", "0.2")
    assert result.code == 0, result.err
    assert result.row()["count"] > 0


def test_idle_ends_are_looked_at(command: Path) -> None:
    result = bench(command, "--json", "--engine", "tcp", "--sizes", "64k", "--idle", "0.2")
    assert result.code == 0, result.err
    row = result.row()
    assert row["gateway_idle_percent"] >= 0
    assert row["worker_idle_percent"] >= 0


@pytest.mark.parametrize("engine", ["local", "file", "tcp", "sockets", "memcpy", "grpc"])
def test_one_wrong_byte_and_there_is_no_figure(command: Path, engine: str) -> None:
    result = bench(command, "--json", "--engine", engine, "--sizes", "64k", "--corrupt", "3")
    assert result.code == 1
    row = result.row()
    assert row["code"] == "checksum_mismatch", row
    assert not [key for key in row if key.endswith(("_us", "_per_s", "_per_gib", "_peak_bytes"))]
    table = bench(command, "--engine", engine, "--sizes", "64k", "--corrupt", "3")
    assert table.code == 1
    assert "no figure" in table.out
    assert "checksum_mismatch" in table.err
    lines = bench(command, "--csv", "--engine", engine, "--sizes", "64k", "--corrupt", "3")
    assert lines.out == ""


def test_rpcs_notice_wrong_bytes(command: Path) -> None:
    result = bench(command, "--json", "--engine", "tcp", "--rpc", "--sizes", "64k", "--corrupt", "2")
    assert result.code == 1
    assert result.row()["code"] == "checksum_mismatch"


def test_a_size_that_fails_leaves_the_others(command: Path) -> None:
    # The first of the second size: 1 + 3 tensors come before it.
    result = bench(command, "--json", "--engine", "tcp", "--sizes", "1000,64k,1m", "--corrupt", "5")
    assert result.code == 1
    first, second, third = result.rows()
    check(first)
    assert second["code"] == "checksum_mismatch"
    check(third)


def test_an_engine_that_is_missing_is_a_named_gap(command: Path) -> None:
    result = bench(command, "--json", "--engine", "nixl,local", "--sizes", "64k", "--nixl-lib", "/nowhere")
    assert result.code == 1
    gap, measured = result.rows()
    assert gap["code"] == "lane_off"
    assert "/nowhere" in gap["error"]
    check(measured)


def test_csv_has_the_keys_of_json(command: Path) -> None:
    args = ["--engine", "local", "--sizes", "64k,1m"]
    rows = list(csv.reader(io.StringIO(bench(command, "--csv", *args).out)))
    header = list(bench(command, "--json", *args).rows()[0])
    assert rows[0] == header
    assert [row[header.index("nbytes")] for row in rows[1:]] == ["65536", "1048576"]


def test_the_table_names_machine_and_units(command: Path) -> None:
    result = bench(command, "--engine", "tcp", "--sizes", "64k")
    assert result.code == 0, result.err
    assert "cores" in result.out.splitlines()[0]
    assert "GB/s" in result.out
    assert "64 KiB" in result.out


def test_another_host_serves(command: Path) -> None:
    with Running(command, "bench", "--json", "--serve", "127.0.0.1:0") as gateway:
        listen = gateway.next()["listen"]
        # Runs one after another, and two at once.
        for engine in ("tcp", "local", "grpc", "sockets"):
            result = bench(command, "--json", "--peer", listen, "--engine", engine, "--sizes", "64k,1m")
            assert result.code == 0, result.err
            for row in result.rows():
                check(row)
                assert row["clock_error_us"] > 0
        args = [command, "bench", "--json", "--peer", listen, "--engine", "tcp", "--sizes", "64k", "--concurrency", "2"]
        both = [subprocess.Popen(args, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for process in both:
            out, _ = process.communicate()
            assert process.returncode == 0
            check(json.loads(out))
        gateway.process.terminate()
        assert gateway.wait() == 0


def test_a_gateway_gives_no_more_than_there_is(command: Path) -> None:
    """Whatever a worker of another version, or another program, demands: the others are served."""

    def opening(**changes: object) -> str:
        usual = {"engine": "sockets", "rpc": "", "copy_in": False, "largest": 65536, "streams": 1, "batch": 2}
        return "open " + json.dumps({**usual, "corrupt": 0, "nixl_lib": "", **changes})

    with Running(command, "bench", "--json", "--serve", "127.0.0.1:0") as gateway:
        listen = gateway.next()["listen"]
        host, port = listen.rsplit(":", 1)
        for _ in range(3):
            with socket.create_connection((host, int(port))) as stream, stream.makefile("rw") as lines:

                def ask(line: str, lines: TextIO = lines) -> str:
                    lines.write(line + "\n")
                    lines.flush()
                    return lines.readline()

                for engine in ("sockets", "tcp", "grpc"):
                    assert ask(opening(engine=engine, largest=1 << 62)).startswith("error no_memory ")
                    assert ask(opening(engine=engine, streams=1 << 62)).startswith("error protocol_error ")
                assert ask("fill 1 1 1").startswith("error protocol_error ")
                assert ask(opening()).startswith("opened ")
                for demand in ("fill 1 65537 1", "fill 1 65536 3", f"fill 1 {1 << 63} 2"):
                    assert ask(demand).startswith("error protocol_error "), demand
                assert ask("fill 1 65536 2") == "filled\n"
        result = bench(command, "--json", "--peer", listen, "--engine", "tcp", "--sizes", "64k")
        assert result.code == 0, result.err


def test_no_gateway_no_figure(command: Path) -> None:
    # Nobody listens there, and nobody else can.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        result = bench(command, "--json", "--peer", listen, "--engine", "tcp", "--sizes", "64k")
    assert result.code == 1
    assert "error" in result.row()
    assert listen in result.err


@pytest.mark.parametrize(
    "args",
    [
        ["--engine", "pigeon"],
        ["--lane", "rail"],
        ["--sizes", "many"],
        ["--concurrency", "0"],
        ["--workers", "2"],
        ["--sizes", "1,2,3", "--count", "4,5"],
        ["--rpc", "--engine", "sockets"],
        ["--copy", "--engine", "grpc"],
        ["--json", "--csv"],
        ["--peer", "127.0.0.1"],
        ["--peer", "127.0.0.1:1", "--gateway", "x"],
        ["--gateway", "x", "--engine", "tcp"],
    ],
)
def test_usage(command: Path, args: list[str]) -> None:
    result = run(command, "bench", *args)
    assert result.code == 2
    assert result.out == ""
    assert result.err != ""
