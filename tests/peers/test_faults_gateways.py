"""What makes a stock gateway fail, met by our gateway: by workers that are stock, ours, hostile, stopped or killed."""

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from ferry import Running, make_file, sha256, wait_until
from peers import ours, stock

pytestmark = pytest.mark.usefixtures("nixl")

KIB = 1 << 10


def tell(pid: int, number: signal.Signals) -> None:
    """Signals the child of a process that a test has started. SIGSTOP: until it has stopped."""
    os.kill(pid, number)
    if number == signal.SIGSTOP:
        wait_until(lambda: ours.is_stopped(pid), "every thread has stopped")


def export(gateway: Running, key: int, source: Path) -> stock.Lease:
    return ours.lease_of(gateway.ask(f"{key} {source}"))


def expect_read(command: Path, gateway: Running, lease: stock.Lease, source: Path) -> None:
    """By our worker, and the gateway hears of it."""
    result = ours.pull(command, lease)
    assert result.code == 0, result.out + result.err
    assert result.row()["sha256"] == sha256(source)
    gateway.until(lambda event: event == {"event": "released", "key": lease.key})


def test_a_live_key_is_refused_and_nothing_is_lost(command: Path, tmp_path: Path) -> None:
    """Fault 1: a stock gateway takes the key twice, and loses a slot for ever."""
    first, second = make_file(tmp_path / "first", 1000, seed=1), make_file(tmp_path / "second", 2000, seed=2)
    with ours.exporter(command) as gateway:
        for _ in range(3):
            lease = export(gateway, 5, first)
            refused = gateway.ask(f"5 {second}")
            assert refused["event"] == "refused"
            assert "duplicate_key" in refused["reason"]
            expect_read(command, gateway, lease, first)


def test_a_late_notification_ends_no_newer_lease(command: Path, tmp_path: Path) -> None:
    """Fault 2: a stock gateway frees whoever has the key by then. It comes before there is a newer one, and after."""
    source = make_file(tmp_path / "source", 1000)
    with ours.exporter(command, "--ttl", "2") as gateway, stock.Agent() as agent:
        agent.connect(int(gateway.listen.rpartition(":")[2]))
        for key, late_first in ((7, True), (8, False)):
            expired = export(gateway, key, source)
            assert gateway.next() == {"event": "expired", "key": key}
            if late_first:
                agent.notify(expired.tag)
            newer = export(gateway, key, source)
            if not late_first:
                agent.notify(expired.tag)
            # One that is sent after it is heard after it.
            marker = export(gateway, 100 + key, source)
            agent.notify(marker.tag)
            assert gateway.next() == {"event": "released", "key": marker.key}
            expect_read(command, gateway, newer, source)


def test_a_descriptor_from_before_a_restart_names_nothing(command: Path, tmp_path: Path) -> None:
    """Fault 4: a stock gateway counts from one again."""
    source = make_file(tmp_path / "source", 1000)
    listen = f"127.0.0.1:{stock.free_port()}"
    stamps, former = set(), None
    for _ in range(3):
        with ours.exporter(command, "--listen", listen) as gateway:
            lease = export(gateway, 1, source)
            stamps.add(lease.stamp)
            if former is not None:
                for address in (former.address, lease.address):
                    row = ours.pull(command, former.at(address=address)).row()
                    assert row["code"] in ("bad_generation", "out_of_range"), row
                lease = export(gateway, 2, source)
            expect_read(command, gateway, lease, source)
            former = lease
    assert len(stamps) == 3


def test_what_is_no_key_costs_no_good_notification(command: Path, tmp_path: Path) -> None:
    """Fault 17: of those that a stock gateway finds together with one that is no text, it loses all."""
    source = make_file(tmp_path / "source", 1000)
    with ours.exporter(command) as gateway, stock.Agent() as agent:
        agent.connect(int(gateway.listen.rpartition(":")[2]))
        for key in range(1, 6):
            export(gateway, key, source)
        agent.notify(b"5")
        assert gateway.next() == {"event": "released", "key": 5}
        # All at once.
        child = ours.agent_of(gateway.pid)
        tell(child, signal.SIGSTOP)
        agent.notify(
            b"1", b"\xff\xfe", b"2", b"", b"2:9", b"x" * 5000, b"3\n", b"99999999999999999999", b"3", b"\0", b"4"
        )
        tell(child, signal.SIGCONT)
        assert sorted(gateway.next()["key"] for _ in range(4)) == [1, 2, 3, 4]
        expect_read(command, gateway, export(gateway, 6, source), source)


def test_foreign_keys_end_nothing(command: Path, tmp_path: Path) -> None:
    """Fault 18, as far as SMG's protocol lets: a key that no lease has is counted and changes nothing."""
    source = make_file(tmp_path / "source", 1000)
    with ours.exporter(command) as gateway, stock.Agent() as agent:
        agent.connect(int(gateway.listen.rpartition(":")[2]))
        lease = export(gateway, 50, source)
        agent.notify(*(str(key).encode() for key in range(100, 300)))
        marker = export(gateway, 51, source)
        agent.notify(marker.tag)
        assert gateway.next() == {"event": "released", "key": 51}
        expect_read(command, gateway, lease, source)


def test_addresses_that_are_no_lease_are_refused(command: Path, tmp_path: Path) -> None:
    """A misaligned one is another lease's; one outside the arena ends its lease, whose key was right."""
    source = make_file(tmp_path / "source", 64 * KIB)
    with ours.exporter(command) as gateway:
        export(gateway, 1, source)
        lease = export(gateway, 2, source)
        wrong = [lease.at(address=lease.address + 3), lease.at(nbytes=lease.nbytes - 8), lease.at(stamp=77)]
        for result in ours.pull_each(command, wrong):
            assert (result.row()["code"], result.row()["retryable"]) == ("bad_generation", False)
        expect_read(command, gateway, lease, source)
        lease = export(gateway, 3, source)
        row = ours.pull(command, lease.at(address=lease.address + (1 << 40))).row()
        assert row["code"] == "out_of_range"
        assert gateway.next() == {"event": "released", "key": 3}


def test_a_failure_before_the_read_gives_the_memory_back(command: Path, tmp_path: Path) -> None:
    """Fault 16, more often than there is memory for."""
    source = make_file(tmp_path / "source", 3 * stock.MIB)
    with ours.exporter(command, "--arena-bytes", str(8 * stock.MIB)) as gateway:
        for key in range(5):
            lease = export(gateway, key, source)
            assert ours.pull(command, lease, "--key", "77").row()["code"] == "key_mismatch"
            assert gateway.next() == {"event": "released", "key": key}
        expect_read(command, gateway, export(gateway, 99, source), source)


def test_a_worker_stopped_in_mid_read_past_the_ttl(command: Path, tmp_path: Path) -> None:
    """Fault 3: its lease expires, its memory rests, others are right, and it gets no wrong byte when it goes on."""
    large = make_file(tmp_path / "large", 32 * stock.MIB, seed=1)
    other = make_file(tmp_path / "other", 30 * stock.MIB, seed=2)
    small = make_file(tmp_path / "small", 64 * KIB, seed=3)
    with (
        ours.exporter(command, "--ttl", "2", "--arena-bytes", str(40 * stock.MIB)) as gateway,
        ours.worker(command) as reader,
        stock.Caller(reader.listen) as caller,
    ):
        warm = export(gateway, 0, small)
        assert caller.encode_lease(warm) == {"accepted": True}
        assert reader.next()["sha256"] == sha256(small)
        assert gateway.next() == {"event": "released", "key": 0}
        child = ours.agent_of(gateway.pid)

        lease = export(gateway, 1, large)
        tell(child, signal.SIGSTOP)
        caller.begin_lease(lease)
        wait_until(lambda: ours.unread(child) > 0, "the READ has been asked for")
        reader.signal(signal.SIGSTOP)
        tell(child, signal.SIGCONT)
        wait_until(lambda: ours.unsent(child) > 0, "the READ is under way")
        assert gateway.next() == {"event": "expired", "key": 1}

        # Its memory is nobody's yet, and others are served from what is left.
        refused = gateway.ask(f"2 {other}")
        assert refused["event"] == "refused"
        assert "arena_full" in refused["reason"]
        expect_read(command, gateway, export(gateway, 3, small), small)

        reader.signal(signal.SIGCONT)
        answer = caller.next()
        assert answer.get("accepted") is not True or reader.next()["sha256"] == sha256(large)
        expect_read(command, gateway, export(gateway, 4, small), small)


def test_our_gateway_stopped_past_the_deadline_and_continued(command: Path, tmp_path: Path) -> None:
    """A pull from it ends in time, and when it goes on it serves as before."""
    source = make_file(tmp_path / "source", 64 * KIB)
    with ours.exporter(command) as gateway, stock.Puller() as stock_worker:
        child = ours.agent_of(gateway.pid)
        leases = [export(gateway, key, source) for key in range(4)]
        gateway.signal(signal.SIGSTOP)
        for agent_too, lease in ((False, leases[0]), (True, leases[1])):
            if agent_too:
                tell(child, signal.SIGSTOP)
            began = time.monotonic()
            row = ours.pull(command, lease, "--timeout", "0.5").row()
            assert row["code"] == "timed_out", row
            assert time.monotonic() - began < 10
        tell(child, signal.SIGCONT)
        gateway.signal(signal.SIGCONT)
        expect_read(command, gateway, leases[2], source)
        assert stock_worker.pull(leases[3])["sha256"] == sha256(source)
        expect_read(command, gateway, export(gateway, 10, source), source)


def test_a_stopped_agent_holds_up_no_gateway(command: Path, tmp_path: Path) -> None:
    """However often readers come and go meanwhile, the gateway answers and ends."""
    source = make_file(tmp_path / "source", 1000)
    with ours.exporter(command) as gateway:
        child = ours.agent_of(gateway.pid)
        tell(child, signal.SIGSTOP)
        for key in range(1000):
            export(gateway, key, source)
            gateway.say(f"cancel {key}")
            assert gateway.next() == {"event": "cancelled", "key": key}
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
        wait_until(lambda: not ours.lives(child), "its agent has gone")


def test_an_agent_sleeps_when_nobody_may_read(command: Path, tmp_path: Path) -> None:
    """It looks for notifications often while there are leases, and seldom when the last has ended, however."""
    source = make_file(tmp_path / "source", 1000)
    with ours.exporter(command, "--ttl", "1") as gateway:
        child = ours.agent_of(gateway.pid)

        def looks() -> int:
            """In a quarter of a second, by the thread that looks."""
            before = ours.switches(child)
            time.sleep(0.25)
            return ours.switches(child) - before

        for key, end in ((1, "cancelled"), (2, "expired")):
            export(gateway, key, source)
            if end == "cancelled":
                wait_until(lambda: looks() > 100, "the agent looks often")
                gateway.say(f"cancel {key}")
            assert gateway.next() == {"event": end, "key": key}
            wait_until(lambda: looks() < 50, "the agent looks seldom")


def test_workers_killed_in_mid_read(command: Path, tmp_path: Path) -> None:
    """UCX may abort whom a killed worker was reading from. The gateway lives, and so do the leases of others."""
    large = make_file(tmp_path / "large", 32 * stock.MIB, seed=1)
    small = make_file(tmp_path / "small", 64 * KIB, seed=2)
    at_once, wanted, killed = 8, 64, 0
    arena = ["--arena-bytes", str(256 * stock.MIB), "--readers", "100"]
    with ours.exporter(command, *arena) as gateway, stock.Puller() as stock_worker:
        lease = export(gateway, 1, large)
        others = [export(gateway, key, small) for key in range(2, 6)]
        for _ in range(3 * wanted // at_once):
            child = ours.agent_of(gateway.pid)
            tell(child, signal.SIGSTOP)
            with ExitStack() as stack:
                pullers = [
                    stack.enter_context(ours.start_pull(command, lease, "--timeout", "60")) for _ in range(at_once)
                ]
                for puller in pullers:
                    wait_until(lambda pid=puller.pid: ours.connected(pid), "a worker waits for the agent")  # type: ignore[misc]
                tell(child, signal.SIGCONT)
                wait_until(lambda pid=child: ours.unsent(pid) > 0, "a READ is under way")  # type: ignore[misc]
                for puller in pullers:
                    puller.signal(signal.SIGSTOP)
                # More than anything but the tensor has, and now it stays so.
                killed += sum(ours.unread(puller.pid) > 64 * KIB for puller in pullers)
                for puller in pullers:
                    puller.signal(signal.SIGKILL)
            if killed >= wanted:
                break
        assert killed >= wanted
        # What UCX did not do.
        tell(ours.agent_of(gateway.pid), signal.SIGKILL)
        assert gateway.process.poll() is None
        for other in (lease, *others[:3]):
            result = ours.pull(command, other)
            assert result.row()["sha256"] == sha256(large if other is lease else small)
        assert stock_worker.pull(others[3])["sha256"] == sha256(small)


def test_the_end_of_a_gateway_with_live_leases(command: Path, tmp_path: Path) -> None:
    """Fault 23: a stock one ends by SIGSEGV. Ours leaves no agent behind, whatever ends it."""
    source = make_file(tmp_path / "source", 1000)
    for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with ours.exporter(command) as gateway:
            child = ours.agent_of(gateway.pid)
            expect_read(command, gateway, export(gateway, 1, source), source)
            export(gateway, 2, source)
            gateway.signal(number)
            assert gateway.wait() == code
            wait_until(lambda pid=child: not ours.lives(pid), "its agent has gone")  # type: ignore[misc]


def test_the_end_of_input_waits_for_the_last_lease(command: Path, tmp_path: Path) -> None:
    """To be read, or to expire; then the gateway ends well."""
    source = make_file(tmp_path / "source", 1000)
    with ours.exporter(command, "--ttl", "2") as gateway:
        child = ours.agent_of(gateway.pid)
        lease = export(gateway, 1, source)
        gateway.end_input()
        with pytest.raises(subprocess.TimeoutExpired):
            gateway.process.wait(0.3)
        row = ours.pull(command, lease).row()
        assert row.get("sha256", sha256(source)) == sha256(source)
        assert gateway.wait() == 0
        wait_until(lambda: not ours.lives(child), "its agent has gone")
    with ours.exporter(command, "--ttl", "1") as gateway:
        export(gateway, 1, source)
        gateway.end_input()
        assert gateway.next() == {"event": "expired", "key": 1}
        assert gateway.wait() == 0
