"""SMG's own exporter and puller with each other: that they work here, and how they fail.

A fault that Tensorferry mends is shown here with nothing but stock parts.
"""

import hashlib
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from ferry import stop, wait_until
from peers import ours, stock

pytestmark = pytest.mark.usefixtures("control")

NOT_READY = "RuntimeError: NIXL remote metadata not ready"
OTHER_STAMP = "slot generation mismatch"
# What a stock worker waits for a gateway's metadata, by its count.
HANDSHAKE_SECONDS = 5.0


@pytest.mark.parametrize("nbytes", stock.SIZES)
def test_control_the_bytes_arrive_and_the_slot_comes_back(control: dict[int, stock.Pulled], nbytes: int) -> None:
    pulled = control[nbytes]
    assert pulled.answer["sha256"] == pulled.lease.sha256
    assert pulled.answer["shape"] == [nbytes]
    assert pulled.lease.stamp == stock.SIZES.index(nbytes) + 1


def test_control_the_encoder_takes_every_lane() -> None:
    """The servicer around the puller, over gRPC: what it takes, and what it refuses."""
    content = stock.pattern(7, 3000)
    file = Path("/dev/shm") / f"smg-tokenspeed-{os.getpid()}-{time.time_ns()}-0"
    file.write_bytes(content)
    shm = {"name": file.name, "nbytes": len(content)}
    with stock.Exporter(slots=1) as gateway, stock.Encoder() as encoder, stock.Caller(encoder.listen) as caller:
        assert encoder.ready["up"] is True
        lease = gateway.export(2**62 + 5, 3000)
        for answer, sha256, room in (
            (caller.encode({"inline": content.hex()}, shape=[3, 1000]), hashlib.sha256(content).hexdigest(), 7),
            (caller.encode({"shm": shm}, shape=[3, 1000]), hashlib.sha256(content).hexdigest(), 7),
            (caller.encode_lease(lease, shape=[3, 1000]), lease.sha256, lease.key),
        ):
            assert answer == {"accepted": True}
            assert encoder.next() == {
                "request_id": "encode-1",
                "room": room,
                "shape": [3, 1000],
                "dtype": "uint8",
                "sha256": sha256,
            }
        assert not file.exists()
        lease = gateway.export(8)
        for refused in (
            caller.encode_lease(lease, room=9),
            caller.encode_lease(lease, shape=[7]),
        ):
            assert refused["code"] == "INVALID_ARGUMENT", refused


def test_fault_1_a_live_key_used_twice_loses_a_slot_for_ever() -> None:
    """The second lease hides the first, and nothing frees what has no name."""
    with stock.Exporter(slots=2, ttl=0.5) as gateway, stock.Agent() as agent:
        agent.connect(gateway.port)
        twice = [gateway.export(5), gateway.export(5)]
        agent.notify(b"5", b"5")
        for key in (6, 7, 8):  # each is ended by the TTL
            assert gateway.export(key).address == twice[1].address
            assert gateway.try_export(9) is None


def test_fault_2_a_late_notification_frees_a_newer_lease_of_the_same_key() -> None:
    """What a worker reads after the TTL costs another worker its tensor."""
    with stock.Exporter(slots=1, ttl=2) as gateway, stock.Puller() as worker:
        worker.pull(gateway.export(1))
        expired = gateway.export(7)
        newer = gateway.export(7)
        leased = time.monotonic()
        assert OTHER_STAMP in worker.pull(expired)["error"]
        gateway.export(8)
        assert time.monotonic() - leased < 1.5, "freed by the notification, not by the TTL"
        assert OTHER_STAMP in worker.pull(newer)["error"]


def test_fault_3_a_reader_that_stops_in_mid_read_gets_bytes_of_two_tensors() -> None:
    """A shorter tensor in the same slot leaves the old trailer in place, so both stamps are the old ones."""
    large = 16 * stock.MIB  # more than sockets hold
    with (
        stock.Exporter(slots=1, slot_bytes=17 * stock.MIB, ttl=1) as gateway,
        stock.Puller({"SMG_RDMA_READ_TIMEOUT_S": "60"}) as worker,
    ):
        assert worker.pull(gateway.export(1))["sha256"]
        lease = gateway.export(2, large)
        stop(gateway.process)
        pull = worker.start(lease)
        wait_until(lambda: ours.unread(gateway.process.pid) > 0, "the READ has been asked for")
        stop(worker.process)
        gateway.process.send_signal(signal.SIGCONT)
        wait_until(lambda: ours.unsent(gateway.process.pid) > 0, "the READ is under way")
        newer = gateway.export(3, large - 1000)
        assert newer.address == lease.address
        worker.process.send_signal(signal.SIGCONT)
        answer = worker.result(pull)
        assert answer["sha256"] not in (lease.sha256, newer.sha256), "delivered, and wrong"


def test_fault_4_stamps_begin_at_one_in_every_life() -> None:
    """So that a descriptor from before a restart matches, where the address is the same."""
    for _ in range(2):
        with stock.Exporter() as gateway:
            assert [gateway.export(key).stamp for key in (7, 8)] == [1, 2]


def test_fault_13_a_second_gateway_is_never_reached() -> None:
    """All gateways have one agent name, and a worker's agent refuses the metadata of the second."""
    with stock.Exporter() as first, stock.Exporter() as second, stock.Puller() as worker, stock.Puller() as fresh:
        assert worker.pull(first.export(1))["sha256"]
        lease = second.export(2)
        assert NOT_READY in worker.pull(lease)["error"]
        assert worker.pull(first.export(3))["sha256"]
        assert fresh.pull(lease)["sha256"] == lease.sha256


def test_fault_14_a_worker_never_recovers_from_a_gateways_restart() -> None:
    """It holds the dead agent's metadata for good."""
    with stock.Puller() as worker, stock.Puller() as fresh:
        with stock.Exporter() as gateway:
            assert worker.pull(gateway.export(1))["sha256"]
        with stock.Exporter(port=gateway.port) as restarted:
            for key in (1, 2, 3):
                assert "error" in worker.pull(restarted.export(key))
            lease = restarted.export(4)
            assert fresh.pull(lease)["sha256"] == lease.sha256


def test_fault_16_a_failure_before_the_read_leaks_the_slot_until_the_ttl() -> None:
    """Three bad requests empty a pool of three slots, though one bare notification each would free them."""
    with (
        stock.Exporter(slots=3, ttl=3) as gateway,
        stock.Puller({"SMG_RDMA_SLOT_BYTES": "2000"}) as worker,
        stock.Agent() as agent,
    ):
        agent.connect(gateway.port)
        for key in (1, 10):
            start = time.monotonic()
            other_room, other_transport, too_large = (
                gateway.export(key),
                gateway.export(key + 1),
                gateway.export(key + 2, 2000),
            )
            assert "room mismatch" in worker.pull(other_room, room=99)["error"]
            assert "unsupported remote tensor transport" in worker.pull(other_transport, transport="ucx")["error"]
            assert "exceeds landing slot" in worker.pull(too_large)["error"]
            assert gateway.try_export(99) is None
            if key == 1:
                agent.notify(*(lease.tag for lease in (other_room, other_transport, too_large)))
            [gateway.export(key + more) for more in (3, 4, 5)]
            took = time.monotonic() - start
            assert took < 2 if key == 1 else took >= 3
            if key == 1:
                agent.notify(b"4", b"5", b"6")


def test_fault_16_so_does_an_address_that_cannot_be_read() -> None:
    """One outside the gateway's memory is taken for metadata that do not come, for five seconds."""
    with stock.Exporter(slots=2) as gateway, stock.Puller() as worker:
        outside, misaligned = gateway.export(1), gateway.export(2)
        answer = worker.pull(outside.at(address=outside.address + (1 << 40)))
        assert NOT_READY in answer["error"]
        assert answer["seconds"] >= HANDSHAKE_SECONDS
        assert OTHER_STAMP in worker.pull(misaligned.at(address=misaligned.address + 3))["error"]
        # That READ has freed its slot, for all that it brought; the other one waits for the TTL.
        assert gateway.export(3).address == misaligned.address
        assert gateway.try_export(4) is None


def test_fault_17_one_notification_that_is_no_text_loses_the_good_ones() -> None:
    """All that the gateway finds in one look are thrown away with it."""
    with stock.Exporter(slots=5) as gateway, stock.Agent() as agent:
        agent.connect(gateway.port)
        leases = gateway.fill(1)
        # One that is waited for: from now on, notifications arrive at once.
        agent.notify(leases[4].tag)
        marker = gateway.export(5)
        stop(gateway.process)
        agent.notify(b"1", b"2", b"\xff\xfe", b"3", b"4")
        gateway.process.send_signal(signal.SIGCONT)
        while True:  # it may be lost together with the others
            agent.notify(marker.tag)
            came_back = gateway.fill(6)
            if came_back:
                break
        assert len(came_back) < 5, "some of the four were lost"


def test_fault_18_a_read_frees_whatever_key_it_names() -> None:
    """Any worker can free any tensor, and leak the one that it has read."""
    with stock.Exporter(slots=2) as gateway, stock.Agent() as agent:
        agent.connect(gateway.port)
        read, named = gateway.export(50), gateway.export(51)
        assert agent.read_frame(read, tag=named.tag)["sha256"] == read.sha256
        assert gateway.export(52).address == named.address
        assert gateway.try_export(53) is None


def test_fault_19_an_unreachable_gateway_delays_a_healthy_one() -> None:
    """All handshakes wait for one lock, and no failure is remembered."""
    with stock.Exporter() as gateway, stock.Puller() as worker:
        lease = gateway.export(1)
        unreachable = worker.start(lease.at(port=stock.free_port()))
        worker.wait_for_handshake()
        delayed = worker.pull(lease)
        assert delayed["sha256"] == lease.sha256
        assert delayed["seconds"] > HANDSHAKE_SECONDS - 0.5
        assert NOT_READY in worker.result(unreachable)["error"]


def test_fault_20_only_dotted_quads_are_reached() -> None:
    """A host name, IPv6 and a trailing blank each cost five seconds, and the tensor."""
    with stock.Exporter() as gateway, ExitStack() as stack:
        lease = gateway.export(1)
        hosts = [b"localhost", b"::1", b"127.0.0.1 "]
        workers = [stack.enter_context(stock.Puller()) for _ in hosts]
        pulls = [worker.start(lease.at(host=host)) for worker, host in zip(workers, hosts, strict=True)]
        for worker, pull in zip(workers, pulls, strict=True):
            answer = worker.result(pull)
            assert NOT_READY in answer["error"]
            assert answer["seconds"] >= HANDSHAKE_SECONDS
        assert workers[0].pull(lease)["sha256"] == lease.sha256


def test_fault_22_a_missing_library_aborts_the_gateway(tmp_path: Path) -> None:
    """Where it should have gone on with its other lanes."""
    with pytest.raises(AssertionError, match=rf"ended \({-signal.SIGABRT}\)"):
        with stock.Exporter(lib=tmp_path):
            pass


def test_fault_23_a_gateway_that_ends_crashes() -> None:
    """Where the host has drivers for verbs: two copies of libnl meet in the process, and take each other apart."""
    verbs = any(Path("/usr/lib").glob("*/libefa.so.1"))
    with stock.Exporter() as gateway:
        gateway.export(1)
        assert gateway.process.stdin is not None
        gateway.process.stdin.close()
        assert gateway.process.wait() == (-signal.SIGSEGV if verbs else 0)


def test_fault_42_what_was_freed_can_still_be_read() -> None:
    """By whoever reaches the port, and knows or guesses an address."""
    with stock.Exporter() as gateway, stock.Puller() as worker, stock.Agent() as stranger:
        lease = gateway.export(1)
        assert worker.pull(lease)["sha256"] == lease.sha256
        stranger.connect(gateway.port)
        again = stranger.read_frame(lease, tag=b"")
        assert again == {"sha256": lease.sha256, "stamps": [lease.stamp, lease.stamp]}


def test_fault_50_a_worker_without_landing_slots_looks_ready() -> None:
    """And lets every pull wait; the budget of one second is kept in steps of five (fault 24)."""
    with (
        stock.Exporter() as gateway,
        stock.Puller({"SMG_RDMA_LANDING_SLOTS": "0", "SMG_RDMA_LANDING_WAIT_S": "1"}) as worker,
    ):
        assert worker.ready["up"] is True
        answer = worker.pull(gateway.export(1))
        assert "landing-ring starvation" in answer["error"]
        assert answer["seconds"] >= 5
