"""What Tensorferry promises of speed: which contender is held against which, by how much, at which size.

for goal in GOALS:
    ours = goal.ours.of(round)           # of one round's rows; None: a gap
    ratio = goal.ratio(ours, theirs)     # more is better, whatever is measured
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.contenders import KIB, MIB, Row, Rows

Round = Mapping[str, Rows]
Value = Callable[[Row], float]

MOST = 1e6  # what is infinitely better counts as


def p50(row: Row) -> float:
    return float(row["p50_us"])


def worker(row: Row) -> float:
    return float(row["worker_us"])


def gateway(row: Row) -> float:
    return float(row["gateway_us"])


def rate(row: Row) -> float:
    return float(row["gb_per_s"])


def cpu(row: Row) -> float:
    return float(row["gateway_cpu_s_per_gib"] + row["worker_cpu_s_per_gib"])


def idle(row: Row) -> float:
    return max(float(row["gateway_idle_percent"]), float(row["worker_idle_percent"]))


@dataclass(frozen=True)
class Of:
    """A value of a contender; `minus` is taken off it, as what would have been there anyway."""

    contender: str
    value: Value = p50
    minus: str | None = None

    def get(self, measured: Round, size: int) -> float | None:
        row = measured.get(self.contender, {}).get(size)
        if row is None:
            return None
        if self.minus is None:
            return self.value(row)
        other = measured.get(self.minus, {}).get(size)
        return None if other is None else max(0.0, self.value(row) - self.value(other))


@dataclass(frozen=True)
class Goal:
    work: str
    against: str
    ours: Of
    theirs: Of | float  # a number is a limit that ours stays below
    goals: Mapping[int, float | None]  # None: stated, no goal
    unit: str = "µs"
    more_is_better: bool = False

    def ratio(self, ours: float, theirs: float) -> float:
        """At least 1 when ours is not worse."""
        good, bad = (ours, theirs) if self.more_is_better else (theirs, ours)
        if good == bad:
            return 1.0
        return min(good / bad, MOST) if bad > 0 else MOST


def at(*goals: float | None) -> dict[int, float | None]:
    return dict(zip((64 * KIB, MIB, 9 * MIB, 32 * MIB), goals, strict=False))


GOALS = (
    Goal("lane, tcp", "stock pair, NIXL, UCX_TLS=tcp", Of("tcp"), Of("stock"), at(25, 8, 5, 3)),
    Goal("lane, tcp", "stock pair, NIXL, its own choice", Of("tcp"), Of("stock-own"), at(25, 8, 4, 1.5)),
    Goal("lane, tcp", "Mooncake, tcp", Of("tcp"), Of("mooncake"), at(4, 4, 3.5, 2)),
    Goal("lane, tcp", "bare sockets, spin then poll", Of("tcp"), Of("sockets"), at(0.8, 0.9, 0.95, 0.95)),
    Goal("lane, tcp", "bare sockets, blocking", Of("tcp"), Of("sockets-blocking"), at(None, None, None, None)),
    Goal("lane, tcp", "lane, ucx over tcp", Of("tcp"), Of("ucx"), at(1.5, 1.3, 1, 1)),
    Goal("lane, ucx over tcp", "the same by GET", Of("ucx"), Of("ucx-get"), at(None, None, None, None)),
    Goal("lane, ucx over tcp", "ucx_perftest tag latency", Of("ucx"), Of("ucx-perftest"), at(0.75, 0.9, 0.9, 0.9)),
    Goal(
        "lane, nixl, our puller", "stock puller, same stock exporter", Of("nixl-puller"), Of("stock"), at(5, 3, 2, 1.3)
    ),
    Goal("lane, local, view", "stock shm lane", Of("local"), Of("stock-shm"), at(5, 30, 300, 1000)),
    Goal("lane, local, copied out", "stock shm lane", Of("local-copy"), Of("stock-shm"), at(5, 4, 8, 8)),
    Goal("lane, local, copied out", "memcpy", Of("local-copy", worker), Of("memcpy"), at(None, None, None, None)),
    Goal(
        "Export(span), warm",
        "stock export call, warm",
        Of("export", gateway),
        Of("stock", gateway),
        at(3, 1.2, 1.2, 1.2),
    ),
    Goal("Python pull, tcp", "stock Python puller", Of("python"), Of("stock"), at(20, 7, 4, 1.5)),
    Goal("RPC, remote tcp", "inline in gRPC", Of("rpc"), Of("grpc"), at(0.9, 1.5, 2.5, 2.5)),
    Goal("RPC, shm local", "inline in gRPC", Of("rpc-local"), Of("grpc"), at(None, None, None, None)),
    Goal(
        "RPC, CPU seconds per GiB, both sides",
        "inline in gRPC",
        Of("rpc", cpu),
        Of("grpc", cpu),
        at(None, 2, 3, 3),
        unit="s/GiB",
    ),
    Goal(
        "8 workers pulling at once, sum",
        "the bare sockets' throughput",
        Of("tcp-x8", rate),
        Of("sockets-x8", rate),
        at(0.8, 0.9, 0.9, 0.9),
        unit="GB/s",
        more_is_better=True,
    ),
    Goal("PullAll of 16", "16 pulls one after another", Of("batch"), Of("one-by-one"), at(1.3, 1, 1)),
    Goal("stage + publish", "limit of 3 µs", Of("stage"), 3, at(1, 1, 1, 1)),
    Goal(
        "stage + publish + descriptor, the tensor just written",
        "limit of 3 µs",
        Of("tcp", gateway),
        3,
        at(None, None, None, None),
    ),
    Goal("a local view", "limit of 15 µs", Of("local", worker), 15, at(1, 1, 1, 1)),
    Goal("idle, tcp", "limit of 0.5 % of a core", Of("tcp-idle", idle), 0.5, at(1), unit="%"),
    Goal("idle, local", "limit of 0.5 % of a core", Of("local-idle", idle), 0.5, at(1), unit="%"),
    Goal("idle, ucx", "limit of 0.5 % of a core", Of("ucx-idle", idle), 0.5, at(None), unit="%"),
    Goal("idle, nixl", "stock pair, idle", Of("nixl-idle", idle), Of("stock-idle", idle), at(None), unit="%"),
    Goal(
        "arena for a tensor in flight",
        "limit of 1.06 MiB",
        Of("tcp", lambda row: float(row["arena_bytes_per_tensor"]) / MIB),
        1.06,
        {MIB: 1},
        unit="MiB",
    ),
    Goal(
        "page faults after start-up",
        "limit of none",
        Of("tcp", lambda row: float(row["gateway_faults"])),
        0,
        at(1, 1, 1, 1),
        unit="",
    ),
    Goal("Python adds to a pull, tcp", "limit of 8 µs", Of("python", worker, minus="tcp"), 8, at(1)),
)
