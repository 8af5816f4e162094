"""`doctor` says which lanes work, and how to mend the others. Each finding is provoked by the real thing: namespaces,
limits, a /dev/shm, a network of a test's own."""

import os
import platform
import re
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from doctor import altered, doctor, limited
from ferry import run, worker
from hosts import drop_answers, two_hosts
from private_shm import private_shm
from smg import StockWorker, message

WAYS = [("inline", "grpc"), ("shm", "local"), ("shm", "file"), ("remote", "tcp")]
MIB = 1 << 20


# One RDMA device with one port, beside the network's interfaces.
DEVICE = """
mount -t tmpfs tmpfs /mnt
cp -a /sys/class/net /mnt/net
mount -t tmpfs tmpfs /sys/class
cp -a /mnt/net /sys/class/net
mkdir -p /sys/class/infiniband/test0/ports/1 /sys/class/infiniband_verbs/uverbs77
echo "{state}" > /sys/class/infiniband/test0/ports/1/state
echo InfiniBand > /sys/class/infiniband/test0/ports/1/link_layer
echo "200 Gb/sec" > /sys/class/infiniband/test0/ports/1/rate
echo test0 > /sys/class/infiniband_verbs/uverbs77/ibdev
"""
# What only matters to UCX is examined although there is no NIXL.
NO_NIXL = ["--engine", "tcp,nixl", "--nixl-lib", "/nowhere"]

# How much room /dev/shm has here is not the question.
NO_FILES = ["--engine", "local,tcp"]

# Runs what follows with one system call forbidden, as a container's profile does; with one second argument of it.
FORBID = """
import ctypes, os, struct, sys
number, second, *command = sys.argv[1:]
load_number, load_second = (0x20, 0, 0, 0), (0x20, 0, 0, 24)
fail_with_eperm, allow = (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)
# Unless it is the one skip to the end.
if second:
    steps = load_number, (0x15, 0, 3, int(number)), load_second, (0x15, 0, 1, int(second)), fail_with_eperm, allow
else:
    steps = load_number, (0x15, 0, 1, int(number)), fail_with_eperm, allow
program = b"".join(struct.pack("HBBI", *step) for step in steps)
code = ctypes.create_string_buffer(program, len(program))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
assert libc.prctl(22, 2, filter, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(command[0], command)
"""
MEMFD_CREATE = {"x86_64": "319", "aarch64": "279"}
FCNTL = {"x86_64": "72", "aarch64": "25"}
F_ADD_SEALS = "1033"


def test_every_lane_works_here(command: Path) -> None:
    with private_shm() as shm:
        report = doctor(command, "--require", "inline,shm,remote", prefix=shm.prefix)
    assert report.code == 0
    assert [(r["lane"], r["transport"]) for r in report.rows if r["check"] == "transfer"][::2] == WAYS
    # By real tensors, whose speed is told.
    for direction in ("send", "receive"):
        assert set(report.verdicts(direction).values()) == {"ok"}, report.not_ok()
        for _, transport in WAYS:
            assert "GB/s" in report.finding("transfer", transport, direction)["evidence"]


def test_every_lane_works_to_a_worker(command: Path) -> None:
    with private_shm() as shm, worker(command, prefix=shm.prefix) as running:
        report = doctor(command, "--peer", running.listen, prefix=shm.prefix)
        assert report.code == 0
        assert report.not_ok() == set()
        assert report.finding("versions", "tcp")["evidence"].count("0.1.0") == 2
        assert f"uid {os.geteuid()} here, {os.geteuid()} at the worker" in report.finding("user", "local")["evidence"]
        seen = []
        while ("remote", "tcp") not in seen:
            event = running.next()
            seen.append((event["lane"], event["transport"]))
        assert list(dict.fromkeys(seen)) == WAYS


def test_every_engine_is_examined_unless_told_otherwise(command: Path) -> None:
    said = run(command, "doctor", "--json", "--require", "inline,shm,remote")
    assert said.code == 0, said.out + said.err
    rows = said.row()["checks"]
    assert {row["transport"] for row in rows} == {"grpc", "local", "file", "tcp", "ucx", "nixl"}
    assert {"ucx_library", "nixl_library", "rdma_device", "ucx_device", "memlock"} <= {row["check"] for row in rows}


def test_a_page_for_people(command: Path) -> None:
    with private_shm() as shm:
        calm = run(command, "doctor", "--engine", "local,file,tcp", prefix=shm.prefix)
    assert calm.code == 0, calm.err
    assert "Nothing stands in the way." in calm.out
    for word in ("cause:", "degraded", "off "):
        assert word not in calm.out
    ill = run(command, "doctor", "--engine", "local,file,tcp", "--peer", "127.0.0.1:9")
    assert ill.code == 1
    for word in ("cause:", "evidence:", "fix:", "docs/doctor.md"):
        assert word in ill.out
    # One thing is wrong, and it is said once.
    assert ill.out.count("cause:") == 1


def test_a_required_lane_that_is_off(command: Path) -> None:
    with worker(command, "--lanes", "inline,shm") as running:
        assert doctor(command, "--peer", running.listen).code == 0
        assert doctor(command, "--peer", running.listen, "--require", "inline,shm").code == 0
        report = doctor(command, "--peer", running.listen, "--require", "shm,remote")
        assert report.code == 1
        assert "lane remote is required, and is off" in report.err
        assert "shm" not in report.err
    # One that nobody looked at is not on either.
    assert doctor(command, "--engine", "local", "--require", "remote").code == 1
    assert run(command, "doctor", "--require", "fast").code == 2


def test_a_setting_that_is_wrong(command: Path) -> None:
    result = run(command, "doctor", env={**os.environ, "SMG_RDMA_SLOT_BYTES": "-1"})
    assert result.code == 2
    assert "SMG_RDMA_SLOT_BYTES" in result.err


# The worker cannot be had.


def test_nobody_there(command: Path) -> None:
    report = doctor(command, "--peer", "127.0.0.1:9")
    assert report.code == 1
    assert set(report.verdicts().values()) == {"off"}
    assert "off" not in report.verdicts("receive").values()
    finding = report.finding("peer", "tcp")
    assert "127.0.0.1:9" in finding["cause"]
    assert "refuses" in finding["evidence"]


def test_a_stopped_worker(command: Path) -> None:
    with worker(command) as running:
        running.signal(signal.SIGSTOP)
        report = doctor(command, "--peer", running.listen, "--timeout", "0.5")
        assert set(report.verdicts().values()) == {"off"}
        finding = report.finding("peer", "grpc")
        assert "takes connections" in finding["evidence"]
        assert "stopped" in finding["fix"]
        running.signal(signal.SIGKILL)


def test_a_name_that_is_none(command: Path) -> None:
    for name in ("nobody.invalid:1", "no-port"):
        finding = doctor(command, "--peer", name).finding("peer", "grpc")
        assert name in finding["cause"]
        assert "HOST:PORT" in finding["fix"]


# The network.


def test_across_hosts(command: Path) -> None:
    with two_hosts() as (gateway, other):
        with worker(
            command, "--listen", f"{other.v4}:0", "--allow", gateway.network_v4, prefix=other.prefix
        ) as running:
            report = doctor(command, "--peer", running.listen, prefix=gateway.prefix)
            assert report.verdict("tcp", "send") == "ok"
            assert f"fetched from {gateway.v4}:" in report.finding("transfer", "tcp")["evidence"]


def test_a_firewall_before_the_gateway(command: Path) -> None:
    with two_hosts() as (gateway, other):
        drop_answers(gateway, 18515)
        with worker(
            command, "--listen", f"{other.v4}:0", "--allow", gateway.network_v4, prefix=other.prefix
        ) as running:
            at = f"{gateway.v4}:18515"
            report = doctor(command, "--peer", running.listen, "--listen", at, "--engine", "tcp", prefix=gateway.prefix)
            assert report.verdict("grpc", "send") == "ok"
            finding = report.finding("transfer", "tcp")
            assert finding["verdict"] == "off"
            assert at in finding["evidence"]
            assert "firewall" in finding["fix"]


def test_a_firewall_before_the_worker(command: Path) -> None:
    with two_hosts() as (gateway, other):
        with worker(command, "--listen", f"{other.v4}:0", prefix=other.prefix) as running:
            drop_answers(other, int(running.listen.rpartition(":")[2]))
            report = doctor(command, "--peer", running.listen, "--timeout", "0.5", prefix=gateway.prefix)
            finding = report.finding("peer", "grpc")
            assert finding["verdict"] == "off"
            assert "no answer" in finding["evidence"]
            assert "firewall" in finding["fix"]


def test_no_route_to_the_worker(command: Path) -> None:
    with two_hosts() as (gateway, _):
        finding = doctor(command, "--peer", "198.51.100.1:50051", prefix=gateway.prefix).finding("peer", "grpc")
        assert "unreachable" in finding["evidence"]
        assert "route" in finding["fix"]


def test_a_busy_port(command: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        report = doctor(command, "--listen", at, "--require", "remote")
        assert report.code == 1
        finding = report.finding("transfer", "tcp", "send")
        assert finding["verdict"] == "off"
        assert at in finding["cause"]
        assert "--listen" in finding["fix"]
        assert report.verdict("tcp", "receive") == "ok"


def test_an_address_of_another_host(command: Path) -> None:
    finding = doctor(command, "--listen", "192.0.2.1:0").finding("transfer", "tcp", "send")
    assert finding["verdict"] == "off"
    assert "192.0.2.1" in finding["cause"]


def test_a_worker_that_may_not_dial_us(command: Path) -> None:
    with worker(command, "--allow", "192.0.2.0/24") as running:
        report = doctor(command, "--peer", running.listen)
        assert report.verdict("local", "send") == "ok"
        finding = report.finding("transfer", "tcp")
        assert finding["verdict"] == "off"
        assert "192.0.2.0/24" in finding["cause"]
        assert "--allow" in finding["fix"]


# The two ends disagree.


def test_a_lane_that_the_worker_does_not_take(command: Path) -> None:
    with worker(command, "--lanes", "inline") as running:
        report = doctor(command, "--peer", running.listen)
        assert report.code == 0
        assert report.verdicts() == {"grpc": "ok", "local": "off", "file": "off", "tcp": "off"}
        assert "--lanes" in report.finding("transfer", "local")["fix"]


def test_lanes_that_are_on_at_one_end_only(command: Path) -> None:
    here = {"SMG_MM_TENSOR_TRANSPORT": "remote", "SMG_RDMA_LISTEN_IP": "127.0.0.1"}
    with worker(command, "--lanes", "inline") as running:
        finding = doctor(command, "--peer", running.listen, **here).finding("remote_switch", "tcp")
        assert finding["verdict"] == "off"
        assert "environment SMG_MM_TENSOR_TRANSPORT" in finding["evidence"]
    with worker(command) as running:
        report = doctor(command, *NO_FILES, "--peer", running.listen, SMG_MM_TENSOR_TRANSPORT="inline")
        assert report.not_ok() == {("shm_switch", "degraded"), ("remote_switch", "degraded")}


def test_remote_without_an_address(command: Path) -> None:
    finding = doctor(command, SMG_MM_PIXEL_RDMA="1").finding("listen_ip", "tcp")
    assert finding["verdict"] == "degraded"
    assert "SMG_RDMA_LISTEN_IP" in finding["fix"]


def test_sizes_and_times_that_disagree(command: Path) -> None:
    small = ["--landing-bytes", str(8 * MIB), "--max-message-bytes", str(4 * MIB)]
    waits = ["env", "SMG_RDMA_LANDING_WAIT_S=600"]
    with worker(command, *small, prefix=waits) as running:
        report = doctor(command, "--peer", running.listen)
        for check, transport, needles in (
            ("worker_landing", "tcp", ("8 MiB", "32 MiB")),
            ("message_size", "grpc", ("4 MiB", "32 MiB")),
            ("ttl", "tcp", ("210 s", "660 s")),
        ):
            finding = report.finding(check, transport)
            assert finding["verdict"] == "degraded", finding
            assert all(needle in finding["evidence"] for needle in needles), finding
        agreed = ["--rdma-slot-bytes", str(2 * MIB), "--rdma-landing-wait-s", "600"]
        assert doctor(command, *NO_FILES, "--peer", running.listen, *agreed).not_ok() == set()


def test_no_version_in_common(command: Path) -> None:
    later: Any = message("tensorferry.v1.Capabilities")(
        version="9.8.7",
        instance_id=bytes(16),
        lanes=["inline", "shm", "remote"],
        transports=["grpc", "local", "tcp"],
        landing_bytes=1 << 30,
        descriptor_versions=[99],
    )
    with StockWorker(lambda _: None, capabilities=later) as running:
        report = doctor(command, "--peer", running.listen)
        for transport in ("local", "tcp"):
            finding = report.finding("versions", transport)
            assert finding["verdict"] == "off"
            assert "9.8.7 at the worker" in finding["evidence"]
            assert "99 there" in finding["evidence"]
            assert "same version" in finding["fix"]


def test_a_stock_worker(command: Path) -> None:
    with StockWorker(lambda _: None) as running:
        report = doctor(command, "--peer", running.listen)
        assert report.verdict("grpc", "send") == "ok"
        assert "not verified" in report.finding("transfer", "grpc")["evidence"]
        assert "a stock worker there" in report.finding("versions", "tcp")["evidence"]
        # It reads no descriptors of ours.
        assert report.finding("transfer", "tcp")["verdict"] == "off"


def test_another_host(command: Path, tmp_path: Path) -> None:
    """Told apart by boot ids, whatever they can share."""
    (tmp_path / "boot").write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    elsewhere = altered(f"mount --bind {tmp_path}/boot /proc/sys/kernel/random/boot_id")
    with worker(command) as running:
        report = doctor(command, "--peer", running.listen, prefix=elsewhere)
        finding = report.finding("host", "local")
        assert finding["verdict"] == "off"
        assert "01234567-89ab-cdef-0123-456789abcdef here" in finding["evidence"]
        assert "lane remote" in finding["fix"]
        assert report.verdict("tcp", "send") == "ok"


def test_another_user(command: Path) -> None:
    with private_shm() as shm:
        theirs = shm.for_everyone(command)
        with worker(theirs, prefix=shm.as_nobody) as running:
            report = doctor(command, "--peer", running.listen, prefix=shm.prefix)
            assert report.verdicts() == {"grpc": "ok", "local": "off", "file": "off", "tcp": "ok"}
            finding = report.finding("user", "local")
            assert finding["evidence"] == "uid 0 here, 65534 at the worker"
            assert "same user" in finding["fix"]


def test_another_dev_shm(command: Path) -> None:
    with private_shm() as shm, worker(command, prefix=shm.prefix) as running:
        report = doctor(command, "--peer", running.listen)
        assert report.finding("shm_namespace", "file")["verdict"] == "off"
        assert report.finding("transfer", "file")["verdict"] == "off"
        assert report.verdict("local", "send") == "ok"


def sees_any_pid_namespace() -> bool:
    """SO_PEERPIDFD, of Linux 6.5."""
    one, other = socket.socketpair()
    with one, other:
        try:
            os.close(one.getsockopt(socket.SOL_SOCKET, 77))
        except OSError:
            return False
        return True


@pytest.mark.parametrize(("kind", "check"), [("--pid", "pid_namespace"), ("--user", "user_namespace")])
def test_other_namespaces(command: Path, kind: str, check: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("namespaces need root: those of pids and users are NOT tested here")
    how = ["--pid", "--fork", "--kill-child"] if kind == "--pid" else ["--user", "--map-root-user"]
    with worker(command, prefix=["unshare", *how]) as running:
        report = doctor(command, "--peer", running.listen)
        finding = report.finding(check, "local")
        assert re.fullmatch(r"\w+ namespace (\d+) here, (?!\1 )\d+ at the worker", finding["evidence"])
        fine = kind == "--pid" and sees_any_pid_namespace()
        assert finding["verdict"] == ("ok" if fine else "degraded")
        assert report.finding("transfer", "local")["verdict"] == "ok"
        if fine:
            # Neither sees the other's processes.
            apart = doctor(command, "--peer", running.listen, prefix=["unshare", *how])
            assert apart.finding(check, "local")["verdict"] == "ok"
            assert apart.finding("transfer", "local")["verdict"] == "ok"
    inside = doctor(command, "--engine", "local", prefix=["unshare", *how])
    assert ("a user namespace" in inside.finding("namespaces", "local")["evidence"]) == (kind == "--user")


# This machine.


def test_a_dev_shm_without_room(command: Path) -> None:
    with private_shm("size=512k,mode=1777") as shm:
        report = doctor(command, prefix=shm.prefix)
        assert report.finding("transfer", "file")["verdict"] == "off"
        assert report.finding("dev_shm", "file")["verdict"] == "degraded"
        assert report.verdict("local", "send") == "ok"
    with private_shm("size=8m,mode=1777") as shm:
        report = doctor(command, prefix=shm.prefix)
        # A small one fits.
        assert report.not_ok() == {("dev_shm", "degraded")}
        assert "8 MiB" in report.finding("dev_shm", "file")["evidence"]


def test_a_dev_shm_that_cannot_be_written_to(command: Path) -> None:
    with private_shm("ro") as shm:
        report = doctor(command, prefix=shm.prefix)
        finding = report.finding("dev_shm", "file")
        assert finding["verdict"] == "off"
        assert "/dev/shm" in finding["cause"]


def test_memory_without_a_name_is_forbidden(command: Path) -> None:
    call = MEMFD_CREATE[platform.machine()]
    report = doctor(command, prefix=[sys.executable, "-c", FORBID, call, ""])
    finding = report.finding("memfd", "local")
    assert finding["verdict"] == "off"
    assert "memfd_create" in finding["cause"]
    assert "seccomp" in finding["fix"]
    assert report.verdict("tcp", "receive") == "off"


def test_sealing_is_forbidden(command: Path) -> None:
    call = FCNTL[platform.machine()]
    finding = doctor(command, prefix=[sys.executable, "-c", FORBID, call, F_ADD_SEALS]).finding("memfd", "local")
    assert finding["verdict"] == "off"
    assert "F_ADD_SEALS" in finding["cause"] + finding["fix"]


@pytest.mark.plain_build
def test_more_memory_than_there_is(command: Path) -> None:
    sizes = ["--arena-bytes", str(1 << 50), "--landing-bytes", str(1 << 50)]
    report = doctor(command, *sizes)
    assert report.finding("arena_memory", "tcp", "send")["verdict"] == "off"
    assert report.finding("landing_memory", "tcp", "receive")["verdict"] == "off"
    assert "1 PiB" in report.finding("arena_memory", "tcp")["cause"]
    # 8 GiB of addresses are enough for the doctor, whatever the machine has.
    report = doctor(command, "--arena-bytes", str(1 << 40), prefix=limited(**{"as": 8 << 30}))
    assert "ulimit -v" in report.finding("arena_memory", "tcp")["cause"]


def test_a_control_group_that_limits_memory(command: Path) -> None:
    """As a container sees its own: at the top, of whichever version."""
    prefix = altered(
        "mount -t tmpfs tmpfs /sys/fs/cgroup\nmkdir /sys/fs/cgroup/memory\n"
        "echo 1073741824 | tee /sys/fs/cgroup/memory.max > /sys/fs/cgroup/memory/memory.limit_in_bytes"
    )
    finding = doctor(command, prefix=prefix).finding("arena_memory", "tcp")
    assert finding["verdict"] == "degraded"
    assert re.search(r"/sys/fs/cgroup/.*memory.* allows \(1 GiB\)", finding["cause"])


def test_a_limit_of_file_sizes(command: Path) -> None:
    """Memory without a name counts as a file."""
    report = doctor(command, prefix=limited(fsize=100_000))
    finding = report.finding("memfd", "local")
    assert finding["verdict"] == "off"
    assert "RLIMIT_FSIZE" in finding["cause"]


def test_few_open_files(command: Path) -> None:
    report = doctor(command, *NO_FILES, prefix=limited(nofile=128))
    assert report.not_ok() == {("open_files", "degraded")}
    assert "128" in report.finding("open_files", "grpc")["cause"]


def test_few_mappings(command: Path, tmp_path: Path) -> None:
    (tmp_path / "few").write_text("1024\n")
    prefix = altered(f"mount --bind {tmp_path}/few /proc/sys/vm/max_map_count")
    finding = doctor(command, prefix=prefix).finding("map_count", "tcp")
    assert finding["verdict"] == "degraded"
    assert "1024" in finding["cause"]


def test_yama_forbids_looking_into_processes(command: Path) -> None:
    prefix = altered(
        "mount -t tmpfs tmpfs /proc/sys/kernel\nmkdir /proc/sys/kernel/yama\n"
        "echo 2 > /proc/sys/kernel/yama/ptrace_scope"
    )
    finding = doctor(command, *NO_NIXL, prefix=prefix).finding("ptrace_scope", "nixl")
    assert finding["verdict"] == "degraded"
    assert "is 2" in finding["evidence"]


def test_no_rdma_device(command: Path) -> None:
    finding = doctor(command, *NO_NIXL, prefix=altered("mount -t tmpfs tmpfs /sys/class")).finding(
        "rdma_device", "nixl"
    )
    assert finding["verdict"] == "degraded"
    assert "no RDMA device" in finding["cause"]


def test_an_rdma_device_and_too_little_to_lock(command: Path) -> None:
    prefix = altered(DEVICE.format(state="4: ACTIVE"))
    report = doctor(command, *NO_NIXL, prefix=[*prefix, *limited(memlock=65536)])
    finding = report.finding("memlock", "nixl")
    assert finding["verdict"] == "degraded"
    assert "64 KiB" in finding["cause"]
    # No such device file: this container was given none.
    finding = report.finding("rdma_device", "nixl")
    assert "test0:1 (4: ACTIVE, InfiniBand, 200 Gb/sec)" in finding["evidence"]
    assert "/dev/infiniband/uverbs77" in finding["cause"]
    # Where ucx_info can be asked, it has found no way to this device.
    choice = report.finding("ucx_device", "nixl")
    assert "test0:1" in choice["evidence"] + choice["cause"]
    sizes = ["--arena-bytes", "65536", "--landing-bytes", "65536"]
    plenty = doctor(command, *NO_NIXL, *sizes, prefix=[*prefix, *limited(memlock=65536)])
    assert plenty.finding("memlock", "nixl")["verdict"] == "ok"


def test_the_way_that_ucx_picks(command: Path) -> None:
    if shutil.which("ucx_info") is None:
        pytest.skip("there is no ucx_info (package ucx-utils): what UCX picks is NOT tested here")
    only = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}
    asked = doctor(command, *NO_NIXL, **only).finding("ucx_device", "nixl")
    assert asked["evidence"] == "ucx_info chooses tcp/lo"
    prefix = altered(DEVICE.format(state="4: ACTIVE"))
    passed_by = doctor(command, *NO_NIXL, prefix=prefix, **only).finding("ucx_device", "nixl")
    assert passed_by["verdict"] == "degraded"
    assert "tcp/lo, although test0:1 is active" in passed_by["cause"]
    assert "UCX_NET_DEVICES" in passed_by["fix"]
    # Nobody to ask: what the system shows.
    alone = doctor(command, *NO_NIXL, prefix=[*prefix, "env", "PATH=/nowhere"]).finding("ucx_device", "nixl")
    assert alone["evidence"].startswith("test0:1 by /sys/class/infiniband")


def test_an_rdma_port_that_is_down(command: Path) -> None:
    report = doctor(command, *NO_NIXL, prefix=altered(DEVICE.format(state="1: DOWN")))
    finding = report.finding("rdma_device", "nixl")
    assert finding["verdict"] == "degraded"
    assert "active" in finding["cause"]
    assert report.finding("memlock", "nixl")["verdict"] == "ok"


# Libraries.


def test_a_library_that_is_missing_or_broken(command: Path, tmp_path: Path) -> None:
    (tmp_path / "libnixl_capi.so").write_text("not a library\n")
    for folder, needle in (("/nowhere", "holds no libnixl_capi.so"), (str(tmp_path), "cannot load")):
        report = doctor(command, "--engine", "tcp,nixl", "--nixl-lib", folder, "--require", "remote")
        # tcp is of the same lane.
        assert report.code == 0
        finding = report.finding("nixl_library", "nixl")
        assert finding["verdict"] == "off"
        assert needle in finding["cause"]
        assert "pip install nixl" in finding["fix"]


def test_a_worker_without_the_library(command: Path) -> None:
    with worker(command, "--engine", "local,tcp,nixl", "--nixl-lib", "/nowhere") as running:
        report = doctor(command, *NO_NIXL, "--peer", running.listen)
        finding = report.finding("worker_engines", "nixl")
        assert finding["verdict"] == "off"
        assert "the worker has no nixl: nixl: /nowhere holds no libnixl_capi.so" in finding["cause"]
        assert report.verdict("tcp", "send") == "ok"
        # Nor does who only sends search at the wrong end.
        remote = ["--lane", "remote", "--engine", "nixl", "--rdma-listen-ip", "127.0.0.1"]
        asked = run(command, "explain", *remote, "--worker", running.listen)
        assert "the worker could not offer nixl: nixl: /nowhere holds no libnixl_capi.so" in asked.out, asked.err
