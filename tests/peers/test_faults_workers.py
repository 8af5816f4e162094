"""What makes a stock worker fail, met by our worker: gateways are stock ones where a fault is not the gateway's own."""

import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from ferry import Event, Running, run, stop, wait_until
from peers import ours, stock

pytestmark = pytest.mark.usefixtures("nixl")

KIB = 1 << 10


def expect_pulled(worker: Running, caller: stock.Caller, lease: stock.Lease) -> None:
    assert caller.encode_lease(lease) == {"accepted": True}
    arrived = worker.next()
    assert (arrived["lane"], arrived["transport"], arrived["sha256"]) == ("remote", "nixl", lease.sha256)


def start_send(command: Path, worker: Running, *args: str | Path) -> Running:
    return Running(command, *ours.send_arguments(worker.listen, *args), prefix=ours.OVER_TCP)


def test_two_stock_gateways_of_one_name_are_both_read(command: Path) -> None:
    """Fault 13: a stock worker never reaches the second."""
    with (
        stock.Exporter(slots=1) as first,
        stock.Exporter(slots=1) as second,
        ours.worker(command) as worker,
        stock.Caller(worker.listen) as caller,
    ):
        for key in range(5):
            for gateway in (first, second):
                expect_pulled(worker, caller, gateway.export(key, 64 * KIB))


def test_two_of_our_gateways_of_one_name_are_read_at_once(command: Path, tmp_path: Path) -> None:
    """Fault 13, with both gateways ours and many requests under way."""
    files = ours.arrays(tmp_path, 64 * KIB, stock.MIB, 3 * stock.MIB + 1)
    with ours.worker(command) as worker, ours.collected(worker) as received:
        with ExitStack() as stack:
            sends = [start_send(command, worker, *files, "--repeat", "20", "--concurrency", "4") for _ in range(2)]
            rows = [stack.enter_context(ours.collected(send)) for send in sends]
            for send in sends:
                assert send.wait() == 0
        for sent in rows:
            assert len(sent.all()) == 20 * len(files)
            ours.expect_sent(sent.all())
        assert len(received.rows) == 2 * 20 * len(files)


def test_a_stock_gateway_is_restarted_under_load(command: Path) -> None:
    """Fault 14: a stock worker never reads from it again."""
    port = stock.free_port()
    with (
        ours.worker(command) as worker,
        ours.collected(worker) as received,
        stock.Exporter() as steady,
        stock.Caller(worker.listen) as loader,
        stock.Caller(worker.listen) as caller,
    ):
        stop = threading.Event()
        loaded: list[Event] = []

        def load() -> None:
            for key in range(1 << 30):
                if stop.is_set():
                    return
                loaded.append(loader.encode_lease(steady.export(key, 64 * KIB)))

        thread = threading.Thread(target=load)
        thread.start()
        leases = []
        try:
            for life in range(10):
                with stock.Exporter(port=port, slots=1) as gateway:
                    for key in (-2 * life - 1, -2 * life - 2):
                        leases.append(gateway.export(key, 64 * KIB))
                        assert caller.encode_lease(leases[-1]) == {"accepted": True}
            wait_until(lambda: len(loaded) > 50, "the load goes on")
        finally:
            stop.set()
            thread.join()
        assert all(answer == {"accepted": True} for answer in loaded)
        assert {lease.sha256 for lease in leases} <= {row["sha256"] for row in received.rows}


def test_our_gateway_is_restarted_fifty_times_under_load(command: Path, tmp_path: Path) -> None:
    """Fault 14, on one port: half of the gateways are killed with requests under way."""
    files = ours.arrays(tmp_path, 64 * KIB, stock.MIB)
    listen = f"127.0.0.1:{stock.free_port()}"
    with (
        ours.worker(command) as worker,
        ours.collected(worker),
        start_send(command, worker, files[0], "--repeat", "1000000") as load,
        ours.collected(load) as loaded,
    ):
        for life in range(50):
            killed = life % 2 == 1
            before = len(loaded.rows)
            repeat = "100000" if killed else "3"
            with start_send(
                command, worker, *files, "--listen", listen, "--concurrency", "4", "--repeat", repeat
            ) as send:
                ours.expect_sent([send.next() for _ in range(6)])
                if killed:
                    send.signal(signal.SIGKILL)
                assert send.wait() == (-signal.SIGKILL if killed else 0)
            wait_until(lambda before=before: len(loaded.rows) > before, "the load goes on")  # type: ignore[misc]
        assert worker.process.poll() is None
        load.signal(signal.SIGKILL)
        ours.expect_sent(loaded.all())


BEFORE_THE_READ: dict[str, Callable[[stock.Lease], dict[str, object]]] = {
    "key_mismatch": lambda lease: {"room": lease.key + 1},
    "size_mismatch": lambda _: {"shape": [7]},
    "bad_input": lambda _: {"dtype": "complex7"},
}


@pytest.mark.parametrize("fault", BEFORE_THE_READ)
def test_a_failure_before_the_read_gives_the_slot_back(command: Path, fault: str) -> None:
    """Fault 16: three of them empty a stock gateway of three slots for a stock worker."""
    with (
        stock.Exporter(slots=2) as gateway,
        ours.worker(command) as worker,
        stock.Caller(worker.listen) as caller,
    ):
        for key in range(5):
            lease = gateway.export(10 * key)
            answer = caller.encode_lease(lease, **BEFORE_THE_READ[fault](lease))
            assert "code" in answer, answer
        expect_pulled(worker, caller, gateway.export(1000))


def test_a_tensor_larger_than_the_landing_memory_gives_its_slot_back(command: Path) -> None:
    """Fault 16, for a tensor that the worker has no room for."""
    with (
        stock.Exporter(slots=2) as gateway,
        ours.worker(command, "--landing-bytes", str(256 * KIB)) as worker,
        stock.Caller(worker.listen) as caller,
    ):
        for key in range(5):
            answer = caller.encode_lease(gateway.export(key, 512 * KIB))
            assert "can never fit" in answer["error"], answer
        expect_pulled(worker, caller, gateway.export(1000))


def test_wrong_key_and_wrong_address_of_pull_give_the_slot_back(command: Path) -> None:
    """Fault 16, more often than there are slots, by a reader that ends right after."""
    with stock.Exporter(slots=2) as gateway:
        for key in range(3):
            lease = gateway.export(10 * key)
            result = ours.pull(command, lease, "--key", "77")
            assert result.row()["code"] == "key_mismatch"
        for key in range(3):
            lease = gateway.export(1000 + key)
            result = ours.pull(command, lease.at(address=lease.address + (1 << 40)))
            assert result.row()["code"] == "out_of_range"
        assert ours.pull(command, gateway.export(2000)).code == 0


def test_a_misaligned_address_or_a_wrong_size_is_another_lease(command: Path) -> None:
    """What is read has other stamps, so it is refused, and nothing is freed that may be somebody else's."""
    with stock.Exporter() as gateway:
        gateway.export(1)  # so that there is memory before the other's
        lease = gateway.export(2, 64 * KIB)
        wrong = [
            lease.at(address=lease.address + 3),
            lease.at(address=lease.address - 8),
            lease.at(nbytes=lease.nbytes + 1),
            lease.at(nbytes=lease.nbytes - 8),
            lease.at(stamp=lease.stamp + 1),
        ]
        for result in ours.pull_each(command, wrong):
            assert result.code == 1
            assert (result.row()["code"], result.row()["retryable"]) == ("bad_generation", False)
        assert ours.pull(command, lease).row()["sha256"] == lease.sha256


def test_addresses_that_cannot_be_are_refused_at_once(command: Path) -> None:
    """Fault 20 and its like: nobody is called, and nothing is waited for."""
    with stock.Exporter() as gateway:
        lease = gateway.export(1)
        wrong = {
            lease.at(host=b"localhost"): "bad_address",
            lease.at(host=b"127.0.0.1 "): "bad_address",
            lease.at(host=b""): "bad_address",
            lease.at(host=b"192.0.2.1"): "not_allowed",
            lease.at(port=0): "bad_address",
            lease.at(stamp=0): "bad_generation",
            lease.at(address=(1 << 64) - 16): "bad_descriptor",
        }
        began = time.monotonic()
        results = ours.pull_each(command, list(wrong), "--timeout", "600")
        assert time.monotonic() - began < 60
        assert [result.row()["code"] for result in results] == list(wrong.values())
        assert ours.pull(command, lease).row()["sha256"] == lease.sha256


def test_an_unreachable_gateway_beside_a_healthy_one(command: Path) -> None:
    """Fault 19: a stock worker lets the healthy one wait for five seconds."""
    with (
        stock.Exporter(slots=1) as gateway,
        socket.create_server(("127.0.0.1", 0)) as silent,  # connects, and never answers
        ours.worker(command) as worker,
        stock.Caller(worker.listen) as caller,
        stock.Caller(worker.listen) as other,
    ):
        warm = gateway.export(0)
        expect_pulled(worker, caller, warm)
        nowhere = warm.at(port=silent.getsockname()[1])
        other.begin_lease(nowhere)
        connection, _ = silent.accept()
        with connection:  # the handshake is under way
            for key in range(1, 20):
                expect_pulled(worker, caller, gateway.export(key))
            answer = other.next()
            assert "does not answer in time" in answer["error"], answer
            began = time.monotonic()
            assert "does not answer in time" in other.encode_lease(nowhere)["error"]
            assert time.monotonic() - began < 1.5, "the failure is remembered"
            expect_pulled(worker, caller, gateway.export(99))


def test_a_stock_gateway_stopped_past_the_deadline_and_continued(command: Path) -> None:
    """Fault 9: what a READ brings later lands in memory that nobody else has, and its slot comes back."""
    with (
        stock.Exporter(slots=1, slot_bytes=8 * stock.MIB) as gateway,
        stock.Exporter(slots=1, slot_bytes=8 * stock.MIB) as healthy,
        ours.worker(command) as worker,
        stock.Caller(worker.listen) as caller,
    ):
        expect_pulled(worker, caller, gateway.export(0))
        late = gateway.export(1, 8 * stock.MIB - stock.FRAME_BYTES)
        stop(gateway.process)
        began = time.monotonic()
        assert "the deadline passed" in caller.encode_lease(late, timeout=3)["error"]
        assert time.monotonic() - began < 3, "a worker answers while there is time for another lane"
        gateway.process.send_signal(signal.SIGCONT)
        for key in range(10):  # while the other READ still comes
            expect_pulled(worker, caller, healthy.export(key, 4 * stock.MIB))
        expect_pulled(worker, caller, gateway.export(2, 8 * stock.MIB - stock.FRAME_BYTES))


def test_a_worker_without_landing_memory_offers_no_nixl(command: Path, tmp_path: Path) -> None:
    """Fault 50: a stock one looks ready, and lets every pull wait."""
    (file,) = ours.arrays(tmp_path, stock.MIB)
    with ours.worker(command, "--landing-bytes", "0") as worker:
        result = run(command, *ours.send_arguments(worker.listen, file), prefix=ours.OVER_TCP)
        assert result.code == 1
        assert result.row()["code"] in ("lane_off", "too_large"), result.out
