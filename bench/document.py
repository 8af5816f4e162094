"""docs/performance.md and its plots, made from a record and the prose of performance.md.in.

for name, content in files(record).items():
    (docs / name).write_text(content)
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from bench import svg
from bench.contenders import MIB, Row
from bench.record import Record, missed, size_text

TEMPLATE = Path(__file__).parent / "performance.md.in"
PLOTS = "performance"  # the folder under docs/

LIMITS = {"tcp": "sockets", "local-copy": "memcpy", "python": "sockets", "rpc": "sockets", "nixl-puller": "sockets"}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def goal_line(row: Row) -> list[str]:
    work = [row["work"], row["against"], size_text(row["size"])]
    goal = "-" if row["goal"] is None else f"{row['goal']:g}x"
    if row["ratio"] is None:
        return [*work, "gap", f"no figure: {row['gap']['why']}", goal, "-", "-"]
    verdict = {True: "met", False: "**missed**", None: "-"}[row["met"]]
    spread = f"{figure(row['ratio'])}x ({figure(row['low'])} to {figure(row['high'])})"
    return [
        *work,
        f"{figure(row['ours'])} {row['unit']}",
        f"{figure(row['theirs'])} {row['unit']}",
        goal,
        spread,
        verdict,
    ]


def measured(record: Record, contender: str) -> list[Row]:
    return [row for row in record["measured"] if row["contender"] == contender]


def time_lines(record: Record) -> Iterable[list[str]]:
    limits = {(row["contender"], row["size"]): row["worker_us"] for row in record["measured"] if "worker_us" in row}
    for contender in ("tcp", "local", "local-copy", "python", "nixl-puller", "stock", "stock-shm"):
        for row in measured(record, contender):
            limit = limits.get((LIMITS.get(contender, ""), row["size"]))
            share = "-" if limit is None or row["worker_us"] == 0 else f"{100 * limit / row['worker_us']:.0f} %"
            parts = [figure(row[key]) for key in ("p50_us", "gateway_us", "handover_us", "worker_us")]
            yield [contender, size_text(row["size"]), *parts, figure(limit), share]


def call_lines(record: Record) -> Iterable[list[str]]:
    lane = {(row["contender"], row["size"]): row["p50_us"] for row in record["measured"] if "p50_us" in row}
    for contender, inside in (("rpc", "tcp"), ("rpc-local", "local"), ("grpc", "")):
        for row in measured(record, contender):
            of_lane = lane.get((inside, row["size"]))
            rest = None if of_lane is None else max(0.0, row["p50_us"] - of_lane)
            yield [contender, size_text(row["size"]), figure(row["p50_us"]), figure(of_lane), figure(rest)]


def cost_lines(record: Record) -> Iterable[list[str]]:
    for row in record["measured"]:
        if "-by-" in row["contender"] or "gateway_cpu_s_per_gib" not in row or "gb_per_s" not in row:
            continue
        cpu = [figure(row[key]) for key in ("gateway_cpu_s_per_gib", "worker_cpu_s_per_gib")]
        peak = [figure(row[key] / MIB) for key in ("gateway_peak_bytes", "worker_peak_bytes")]
        yield [row["contender"], size_text(row["size"]), figure(row["gb_per_s"]), *cpu, *peak]


def missed_lines(record: Record) -> list[str]:
    return [
        f"- {row['work']} against {row['against']}, {size_text(row['size'])}: {figure(row['ratio'])}x instead of "
        f"{row['goal']:g}x, {100 * (1 - row['ratio'] / row['goal']):.0f} % short."
        for row in missed(record)
    ] or ["Nothing."]


def part_lines(record: Record) -> Iterable[list[str]]:
    for name, part in record.get("parts", {}).items():
        counters = ", ".join(f"{key} {figure(value)}" for key, value in part["counters"].items())
        yield [name, f"{figure(part['time'])} {part['unit']}", figure(part.get("gb_per_s")), counters]


def gap_lines(gaps: dict[str, str]) -> list[str]:
    if not gaps:
        return []
    return ["Gaps:", "", *(f"- `{name}`: {why}" for name, why in gaps.items()), ""]


def document(record: Record) -> str:
    def text(lines: Iterable[str]) -> str:
        return "\n".join(lines)

    return Template(TEMPLATE.read_text()).substitute(
        machine=record["machine"],
        date=record["date"],
        rounds=record["rounds"],
        load=f"{record['load']:.1f}",
        could=sum(row["met"] is not None for row in record["rows"]),
        met=sum(row["met"] is True for row in record["rows"]),
        goals=text(
            table(
                ["work", "against", "size", "ours", "theirs", "goal", "ratio", ""],
                [goal_line(row) for row in record["rows"]],
            )
        ),
        missed=text(missed_lines(record)),
        times=text(
            table(["contender", "size", "all", "gateway", "on its way", "fetch", "limit", "of it"], time_lines(record))
        ),
        calls=text(table(["call", "size", "all", "the lane alone", "the call"], call_lines(record))),
        costs=text(
            table(["contender", "size", "GB/s", "CPU gateway", "worker", "MiB gateway", "worker"], cost_lines(record))
        ),
        parts=text(table(["part", "time", "GB/s", ""], part_lines(record))),
        contenders=text(f"- `{name}`: {what}" for name, what in record["contenders"].items()),
        versions=", ".join(f"{name} {version}" for name, version in record["versions"].items()),
        gaps=text([*gap_lines(record["gaps"]), ""]) if record["gaps"] else "",
    )


def points(record: Record, contender: str, key: str) -> list[tuple[float, float]]:
    return [(row["size"], row[key]) for row in measured(record, contender) if row.get(key)]


def by_concurrency(record: Record, engine: str) -> list[tuple[float, float]]:
    prefix = f"{engine}-by-"
    rows = [row for row in record["measured"] if row["contender"].startswith(prefix)]
    return [(float(row["contender"].removeprefix(prefix)), row["gb_per_s"]) for row in rows]


def cpu_bars(record: Record, size: int) -> dict[str, dict[str, float]]:
    names = ("local", "tcp", "nixl-puller", "sockets", "grpc", "mooncake", "stock", "stock-shm")
    return {
        name: {"gateway": row["gateway_cpu_s_per_gib"], "worker": row["worker_cpu_s_per_gib"]}
        for name in names
        for row in measured(record, name)
        if row["size"] == size
    }


def files(record: Record) -> dict[str, Any]:
    shown = ("local", "tcp", "sockets", "python", "nixl-puller", "mooncake", "stock", "stock-shm")
    latency = {name: points(record, name, "p50_us") for name in shown}
    throughput = {engine: by_concurrency(record, engine) for engine in ("tcp", "sockets", "grpc")}
    return {
        "performance.md": document(record),
        f"{PLOTS}/latency.svg": svg.lines(
            "Latency by size",
            "size of the tensor",
            "µs (p50)",
            latency,
            log_x=True,
            log_y=True,
            x_text=lambda size: size_text(int(size)),
        ),
        f"{PLOTS}/throughput.svg": svg.lines(
            "Throughput by concurrency, 1 MiB", "pulls at a time", "GB/s", throughput, log_x=True
        ),
        f"{PLOTS}/cpu.svg": svg.bars("CPU for a GiB, tensors of 9 MiB", "CPU seconds", cpu_bars(record, 9 * MIB)),
    }
