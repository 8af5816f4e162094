"""Everything that `./dev bench` measures: our lanes, the yardsticks and the peers, each as processes of its own.

for contender in contenders():
    rows = contender.run(sizes)          # {nbytes: row}, or Gap: why there is no figure

Each run starts its processes anew, so that what fails takes nothing with it, and no peer that burns a core while it
idles is in the way of the others.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers import stock

Row = dict[str, Any]
Rows = dict[int, Row]
Measure = Callable[[Mapping[int, int]], Rows]  # counts by size

COMMAND = stock.ROOT / "build/tools/tensorferry"
PARTS = stock.ROOT / "build/bench/tensorferry_parts"
PYTHON = stock.ROOT / ".venv/bin/python"
BENCH_PYTHON = stock.ROOT / ".bench/bin/python"

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, MIB, 9 * MIB, 32 * MIB)
# Pulls of each size in a round.
COUNTS = {64 * KIB: 400, MIB: 150, 9 * MIB: 30, 32 * MIB: 12}
# Of peers whose ends make and check their bytes more slowly.
FEWER = {64 * KIB: 150, MIB: 60, 9 * MIB: 16, 32 * MIB: 8}
RUN_SECONDS = 90.0


class Gap(Exception):  # noqa: N818 - it is what it is called in the table
    """Why a contender has no figure."""


@dataclass(frozen=True)
class Contender:
    name: str
    what: str  # for people: which ends, which versions
    sizes: Sequence[int]
    measure: Measure = field(repr=False)

    def run(self, scale: float) -> Rows:
        """`scale` times the usual counts."""
        counts = FEWER if self.name.startswith(("stock", "mooncake")) else COUNTS
        return self.measure({size: max(3, round(counts.get(size, 30) * scale)) for size in self.sizes})


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    return stock.bare_environment({"UCX_WARN_UNUSED_ENV_VARS": "n", **changes})


def need(path: Path, how: str) -> None:
    if not path.exists():
        raise Gap(f"{path.name} is missing: {how}")


def output_of(args: Sequence[str | Path], env: Mapping[str, str], *, may_fail: bool = False) -> str:
    """Its standard output, also of one that failed and said there what. Whatever it started is ended with it."""
    process = subprocess.Popen(
        list(map(str, args)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(env),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        raise Gap(f"no end within {RUN_SECONDS:g} s") from None
    finally:
        # Its session is its own, so that this meets nothing else.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
    if process.returncode != 0 and not (may_fail and out):
        lines = [line for line in (out + err).splitlines() if line.strip()]
        raise Gap(lines[-1][-300:] if lines else f"exit code {process.returncode}")
    return out


def rows_of(out: str) -> Rows:
    """Also of sizes that failed, whose rows have an `error`, if there are others."""
    rows = {row["nbytes"]: row for row in map(json.loads, out.splitlines())}
    if not rows:
        raise Gap("it said nothing")
    if all("error" in row for row in rows.values()):
        raise Gap(next(iter(rows.values()))["error"])
    return rows


def command(*options: str, gateway: Sequence[str] = (), env: Mapping[str, str] = {}) -> Measure:
    """`tensorferry bench` with these options."""

    def measure(counts: Mapping[int, int]) -> Rows:
        need(COMMAND, "./dev build")
        sizes, numbers = (",".join(map(str, of)) for of in (counts.keys(), counts.values()))
        args = ["--json", "--sizes", sizes, "--count", numbers, *options]
        if gateway:
            args += ["--gateway", " ".join(gateway)]
        return rows_of(output_of([COMMAND, "bench", *args], env, may_fail=True))

    return measure


def driver(
    program: str,
    python: Path,
    gateway: Callable[[int], list[str]],
    *,
    env: Mapping[str, str] = {},
    gateway_env: Callable[[], Mapping[str, str]] = dict,
    opening: Mapping[str, str | int] | None = None,
    idle: float = 0,
) -> Measure:
    """A program of bench/drivers as the worker."""

    def measure(counts: Mapping[int, int]) -> Rows:
        need(python, "./dev bench")
        job = {
            "gateway": gateway(max(counts)),
            "sizes": [[size, count, max(3, count // 10)] for size, count in counts.items()],
            "env": dict(gateway_env()),
            "open": opening,
            "idle": idle,
        }
        folders = ("build/wheel-site", "", "tests", "tests/peers/stand_ins")
        path = ":".join(str(stock.ROOT / folder) for folder in folders)
        args: list[str | Path] = [python, "-u", "-m", f"bench.drivers.{program}", json.dumps(job)]
        return rows_of(output_of(args, {"PYTHONPATH": path, **env}))

    return measure


def stock_gateway(slot_bytes: int) -> list[str]:
    need(stock.EXPORTER, "./dev setup")
    # Four slots: warm after four tensors.
    return [str(stock.EXPORTER), str(stock.free_port()), "4", str(slot_bytes + 64), "600"]


def stock_puller(transports: str | None, idle: float = 0) -> Measure:
    ucx = {"UCX_TLS": transports} if transports else {}
    lane_on = {
        "SMG_MM_PIXEL_RDMA": "1",
        "SMG_RDMA_LANDING_SLOTS": "2",
        "SMG_RDMA_SLOT_BYTES": str(32 * MIB + 64),
        "SMG_RDMA_READ_TIMEOUT_S": "30",
    }
    return driver(
        "stock_puller",
        stock.PYTHON,
        stock_gateway,
        env={**ucx, **lane_on},
        gateway_env=lambda: {"LD_LIBRARY_PATH": str(stock.nixl_lib())},
        idle=idle,
    )


def our_gateway(largest: int) -> list[str]:
    del largest
    return [str(COMMAND), "bench", "--serve-streams", "0"]


def our_puller_over_nixl(*options: str, stock_end: bool = False) -> Measure:
    """From SMG's exporter, or from an end of ours."""

    def measure(counts: Mapping[int, int]) -> Rows:
        need(stock.PYTHON, "./dev setup")
        lib = str(stock.nixl_lib())
        gateway = ["env", f"LD_LIBRARY_PATH={lib}", *stock_gateway(32 * MIB)] if stock_end else []
        nixl = ["--engine", "nixl", "--nixl-lib", lib]
        return command(*nixl, *options, gateway=gateway, env={"UCX_TLS": "tcp"})(counts)

    return measure


def ucx_perftest(counts: Mapping[int, int]) -> Rows:
    """The time of one way, as it prints for a tag ping-pong."""
    rows: Rows = {}
    env = environment({"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"})
    for size, count in counts.items():
        port = str(stock.free_port())
        args = ["ucx_perftest", "-t", "tag_lat", "-s", str(size), "-n", str(count), "-w", str(max(3, count // 10))]
        try:
            server = subprocess.Popen(
                ["ucx_perftest", "-p", port], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except FileNotFoundError:
            raise Gap("ucx_perftest is missing: Debian's package ucx-utils") from None
        try:
            wait_until_it_listens(int(port), server)
            rows[size] = perftest_row(size, count, output_of([*args, "-p", port, "127.0.0.1"], env))
        finally:
            server.kill()
            server.wait()
    return rows


def wait_until_it_listens(port: int, server: subprocess.Popen[Any]) -> None:
    """Without connecting, which would count as its client: by the system's table of sockets."""
    wanted = re.compile(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A ", re.MULTILINE)
    while not any(wanted.search(Path(f"/proc/net/{table}").read_text()) for table in ("tcp", "tcp6")):
        if server.poll() is not None:
            raise Gap(f"ucx_perftest ended ({server.returncode})")
        os.sched_yield()


def perftest_row(size: int, count: int, out: str) -> Row:
    """Of `Final:  iterations  percentile  average  overall  …`, microseconds."""
    found = re.search(r"^Final: +\d+ +([\d.]+) ", out, re.MULTILINE)
    if found is None:
        raise Gap("ucx_perftest prints no final line")
    p50 = float(found.group(1))
    return {"nbytes": size, "count": count, "p50_us": p50, "gb_per_s": size / p50 / 1e3, "transport": "ucx"}


def parts(*options: str) -> dict[str, Row]:
    """What tensorferry_parts prints: the time of each part, GB/s where it moves bytes, and its counters."""
    need(PARTS, "./dev bench")
    return parts_of(json.loads(output_of([PARTS, "--benchmark_format=json", *options], {})))


def staged(counts: Mapping[int, int]) -> Rows:
    """Of tensorferry_parts: a whole pull right after the tensor was written finds cold caches there."""
    found = parts("--benchmark_filter=StageAndPublish", "--benchmark_min_time=0.05")
    rows: Rows = {}
    for size in counts:
        part = found[f"StageAndPublish/{size}"]
        micros = part["time"] / {"ns": 1000, "us": 1}[part["unit"]]
        rows[size] = {"nbytes": size, "p50_us": micros, "page_faults": part["counters"]["page_faults"]}
    return rows


def parts_of(printed: Row) -> dict[str, Row]:
    known = {"threads", "repetitions", "repetition_index", "family_index", "per_family_instance_index", "iterations"}
    found: dict[str, Row] = {}
    for part in printed["benchmarks"]:
        if part.get("error_occurred"):
            continue
        counters = {
            key: value
            for key, value in part.items()
            if isinstance(value, float) and key not in {*known, "real_time", "cpu_time", "bytes_per_second"}
        }
        row: Row = {"time": part["real_time"], "unit": part["time_unit"], "counters": counters}
        if "bytes_per_second" in part:
            row["gb_per_s"] = part["bytes_per_second"] / 1e9
        found[part["name"]] = row
    return found


def contenders() -> list[Contender]:
    def ours(name: str, what: str, *options: str, sizes: Sequence[int] = SIZES) -> Contender:
        return Contender(name, what, sizes, command(*options))

    small, medium = (64 * KIB, MIB), (64 * KIB, MIB, 9 * MIB)
    found = [
        ours("tcp", "lane remote over tcp, a view", "--engine", "tcp"),
        ours("sockets", "bare sockets, spin then poll", "--engine", "sockets"),
        ours("sockets-blocking", "bare sockets that only sleep", "--engine", "sockets-blocking"),
        Contender("stock", "SMG's exporter and puller, NIXL over UCX_TLS=tcp", SIZES, stock_puller("tcp")),
        Contender("stock-own", "the same, as NIXL chooses", SIZES, stock_puller(None)),
        Contender(
            "mooncake",
            "Mooncake's transfer engine over tcp",
            SIZES,
            driver(
                "mooncake_worker",
                BENCH_PYTHON,
                lambda largest: [str(BENCH_PYTHON), "-u", "-m", "bench.drivers.mooncake_gateway", str(largest)],
            ),
        ),
        ours("ucx", "lane remote over ucx, a view", "--engine", "ucx"),
        ours("ucx-get", "the same, read by the worker itself (GET, emulated)", "--engine", "ucx-get"),
        Contender("ucx-perftest", "ucx_perftest tag_lat over tcp", SIZES, ucx_perftest),
        Contender(
            "nixl-puller", "our puller, SMG's exporter, UCX_TLS=tcp", SIZES, our_puller_over_nixl(stock_end=True)
        ),
        ours("local", "lane shm over local, a view", "--engine", "local"),
        ours("local-copy", "the same, copied out", "--engine", "local", "--copy"),
        ours("memcpy", "memcpy of mapped memory", "--engine", "memcpy"),
        Contender(
            "stock-shm",
            "a file under /dev/shm: written, read by SMG's reader, unlinked",
            SIZES,
            driver("stock_files", stock.PYTHON, our_gateway, opening={"engine": "file"}),
        ),
        ours("export", "Export of bytes that lie elsewhere", "--engine", "tcp", "--export"),
        Contender(
            "python",
            "our Python package, tcp",
            SIZES,
            driver("ferry", PYTHON, our_gateway, opening={"engine": "tcp"}),
        ),
        ours("rpc", "whole calls, lane remote over tcp", "--engine", "tcp", "--rpc"),
        ours("rpc-local", "whole calls, lane shm over local", "--engine", "local", "--rpc"),
        ours("grpc", "whole calls, the bytes in the message", "--engine", "grpc"),
        ours("batch", "PullAll of 16 over tcp", "--engine", "tcp", "--batch", "16", sizes=medium),
        ours("one-by-one", "16 pulls over tcp", "--engine", "tcp", "--batch", "16", "--one-by-one", sizes=medium),
        ours("tcp-idle", "tcp, doing nothing", "--engine", "tcp", "--idle", "1", sizes=small[:1]),
        ours("local-idle", "local, doing nothing", "--engine", "local", "--idle", "1", sizes=small[:1]),
        ours("ucx-idle", "ucx, doing nothing", "--engine", "ucx", "--idle", "1", sizes=small[:1]),
        Contender("stage", "staging and publishing, nothing else", SIZES, staged),
        Contender("nixl-idle", "nixl, doing nothing", small[:1], our_puller_over_nixl("--idle", "1")),
        Contender("stock-idle", "SMG's pair, doing nothing", small[:1], stock_puller("tcp", idle=1)),
    ]
    for engine in ("tcp", "sockets"):
        wide = ["--engine", engine, "--concurrency", "8", *(["--workers", "8"] if engine == "tcp" else [])]
        found.append(ours(f"{engine}-x8", f"8 workers at once, {engine}", *wide))
    for engine in ("local", "tcp", "sockets", "grpc"):
        for streams in (1, 2, 4, 8):
            wide = ["--engine", engine, "--concurrency", str(streams)]
            found.append(ours(f"{engine}-by-{streams}", f"{streams} at once, {engine}", *wide, sizes=[MIB]))
    return found
