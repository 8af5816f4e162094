"""Stage, publish, pull: every way, and what they fail with."""

import asyncio
import os
import pickle
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ferry import exporter as command_exporter
from ferry import make_file

import tensorferry
from tensorferry import Cancellation, Error, Exporter, Handle, InputError, OperationError, Puller, View

KEY = -(1 << 63)


def full(worker: Puller, gateway: Exporter) -> View:
    """All landing memory, so that the next pull over tcp waits."""
    with gateway.export(bytes(worker.stats().landing_bytes)) as lease:
        return worker.pull(lease.handle(shm=False), timeout=30)


@pytest.fixture
def small_worker() -> Puller:
    return Puller(landing_bytes=1 << 20)


@pytest.mark.parametrize(("shm", "transport", "lane"), [(True, "local", "shm"), (False, "tcp", "remote")])
@pytest.mark.parametrize("nbytes", [0, 1, 65_537, 10 << 20])
def test_bytes_arrive(gateway: Exporter, worker: Puller, nbytes: int, shm: bool, transport: str, lane: str) -> None:
    content = random.Random(nbytes).randbytes(nbytes)
    with gateway.export(content, key=KEY) as lease:
        assert (lease.key, lease.nbytes, lease.dtype, lease.shape) == (KEY, nbytes, "uint8", (nbytes,))
        assert lease.error is None
        view = worker.pull(lease.handle(shm=shm), key=KEY, timeout=30)
        assert (view.transport, view.lane, view.borrowed) == (transport, lane, shm)
        assert bytes(view) == content
        into = bytearray(nbytes)
        assert worker.pull_into(lease.handle(shm=shm), into, timeout=30) == transport
        assert into == content


def test_a_handle_tells_everything_but_the_token(gateway: Exporter) -> None:
    with gateway.export(b"abc", key=7) as lease:
        handle = lease.handle()
        told = handle.inspect()
        assert (told.key, told.nbytes, told.wants_done, told.checksum) == (7, 3, False, None)
        assert [way.transport for way in told.ways] == ["local", "tcp"]
        assert told.ways[1].places == (gateway.listen_address,)
        assert [way.transport for way in lease.handle(shm=False).inspect().ways] == ["tcp"]
        for text in (repr(handle), repr(told)):
            assert handle.descriptor.hex() not in text
            assert repr(handle.descriptor)[2:-1] not in text


def test_smg_descriptors_are_read_too() -> None:
    legacy = (0x2000).to_bytes(8, "little") + (5).to_bytes(8, "little") + (18515).to_bytes(2, "little") + b"127.0.0.1"
    told = Handle("nixl", legacy, 3).inspect(key=42)
    assert (told.key, told.nbytes, told.ways) == (42, 3, (tensorferry.Way("nixl", ("127.0.0.1:18515",)),))
    with pytest.raises(InputError) as raised:
        Handle("nixl", legacy, 3).inspect()
    assert raised.value.reason == "legacy_needs_key"
    own = b"SMGRDMA1" + legacy[:16] + (7).to_bytes(8, "little") + legacy[16:]
    for transport in ("nixl", ""):
        told = Handle(transport, own, 3).inspect()
        assert (told.key, told.generation, told.nbytes, told.wants_done) == (7, 5, 3, True)
        assert told.ways == (tensorferry.Way("nixl", ("127.0.0.1:18515",)),)
    told = Handle("file", b"smg-tokenspeed-1-2-3", 3, 5).inspect()
    assert told.ways == (tensorferry.Way("file", ("smg-tokenspeed-1-2-3",)),)


def test_a_staged_tensor_is_written_in_place(gateway: Exporter, worker: Puller) -> None:
    with gateway.stage((2, 3), "int64") as staged:
        assert staged.in_arena
        assert staged.nbytes == 48
        memory = memoryview(staged.view())
        assert (memory.format, memory.shape, memory.readonly) == ("q", (2, 3), False)
        memory[1, 2] = 77
        with staged.publish(key=1) as lease:
            tensor = worker.pull(lease.handle()).tensor("int64", (2, 3))
            assert memoryview(tensor)[1, 2] == 77
            with pytest.raises(OperationError, match="was published"):
                staged.view()


def test_a_full_arena_is_no_failure_but_a_reason(gateway: Exporter) -> None:
    with gateway.export(bytes(1 << 10), key=1) as first, gateway.export(b"x", key=1) as second:
        assert first.error is None
        assert second.error is not None
        assert second.error.reason == "duplicate_key"
        with gateway.export(bytes(65 << 20)) as third:
            assert third.error is not None
            assert third.error.reason == "arena_full"
            assert third.view().nbytes == 65 << 20
            with pytest.raises(OperationError) as raised:
                third.handle()
            assert raised.value.reason == "arena_full"


def test_a_lease_ends_with_its_object_and_its_memory_with_the_last_array(gateway: Exporter, worker: Puller) -> None:
    lease = gateway.export(b"12345678", key=9)
    handle = lease.handle()
    array = memoryview(lease.view())
    lease.close()
    assert lease.closed
    with pytest.raises(Error) as raised:
        worker.pull(handle)
    assert raised.value.reason == "lease_ended"
    used = gateway.stats().used_bytes
    assert used > 0
    for _ in range(100):  # what comes later does not get the memory
        with gateway.export(b"another_") as other:
            assert bytes(other.view()) == b"another_"
    assert bytes(array) == b"12345678"
    array.release()
    assert gateway.stats().used_bytes < used
    with pytest.raises(Error, match="lease"):
        lease.handle()


def test_counted_readers_end_a_detached_lease(gateway: Exporter, worker: Puller) -> None:
    lease = gateway.export(b"once", key=3, readers=1)
    handle = lease.handle()
    lease.detach()
    assert bytes(worker.pull(handle)) == b"once"
    gateway.drain(10)
    with pytest.raises(Error) as raised:
        worker.pull(handle)
    assert raised.value.reason == "lease_ended"


def test_cancel_and_drain(gateway: Exporter, worker: Puller) -> None:
    lease = gateway.export(b"1", key=3)
    with pytest.raises(tensorferry.TimedOutError, match="1"):
        gateway.drain(0.01)
    gateway.cancel(3)
    gateway.drain(10)
    with pytest.raises(Error) as raised:
        gateway.cancel(3)
    assert raised.value.reason == "lease_ended"
    with gateway.export(b"2") as late:
        assert late.error is not None
        assert late.error.reason == "shut_down"
    del lease, worker


def test_stats(gateway: Exporter, worker: Puller) -> None:
    assert gateway.stats().published == 0
    with gateway.export(bytes(1000)) as lease:
        assert gateway.stats().published == 1
        view = worker.pull(lease.handle(shm=False))
        assert worker.stats().landing_used_bytes >= 1000
        view.release()
        assert worker.stats().landing_used_bytes == 0
    assert gateway.stats().published == 0
    assert worker.stats().waiting_for_landing == 0
    assert worker.transports == gateway.transports == ["local", "tcp"]


def test_many_at_once_each_with_its_own_end(gateway: Exporter, worker: Puller) -> None:
    leases = [gateway.export(bytes([i]) * 1000, key=i) for i in range(40)]
    handles = [lease.handle(shm=i % 2 == 0) for i, lease in enumerate(leases)]
    leases[5].close()
    results = worker.pull_all(handles, timeout=30)
    assert len(results) == 40
    for i, result in enumerate(results):
        if i == 5:
            assert isinstance(result, Error)
            assert result.reason == "lease_ended"
        else:
            assert isinstance(result, View)
            assert bytes(result) == bytes([i]) * 1000


def test_each_of_many_has_a_key_of_its_own(gateway: Exporter, worker: Puller) -> None:
    leases = [gateway.export(b"abc", key=key) for key in range(3)]
    handles = [lease.handle() for lease in leases]
    for results in (
        worker.pull_all(handles, keys=[0, None, 7]),
        asyncio.run(worker.pull_all_async(handles, keys=[0, None, 7])),
    ):
        assert [r.reason if isinstance(r, Error) else bytes(r) for r in results] == [b"abc", b"abc", "key_mismatch"]
    with pytest.raises(InputError, match="2 keys for 3"):
        worker.pull_all(handles, keys=[0, 1])
    with pytest.raises(InputError, match="4 keys for 3"):
        asyncio.run(worker.pull_all_async(handles, keys=[0, 1, 2, 3]))


@pytest.mark.parametrize("timeout", [0, 0.0, -1, float("-inf"), np.float32(0)])
def test_no_time_is_over_at_once(gateway: Exporter, small_worker: Puller, timeout: float) -> None:
    held = full(small_worker, gateway)
    with gateway.export(b"abc") as lease:
        handle = lease.handle(shm=False)
        with pytest.raises(Error, match="landing"):
            small_worker.pull(handle, timeout=timeout)
        with pytest.raises(Error, match="landing"):
            asyncio.run(small_worker.pull_async(handle, timeout=timeout))
    del held


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 1 << 80, np.float64(30)])
def test_any_time_that_is_a_number_will_do(gateway: Exporter, worker: Puller, timeout: float) -> None:
    with gateway.export(b"abc", ttl=timeout) as lease:
        assert bytes(worker.pull(lease.handle(shm=False), timeout=timeout)) == b"abc"


def test_numbers_of_numpy_are_numbers(gateway: Exporter, worker: Puller) -> None:
    # Without their types, which say that they are not.
    numpy: Any = np
    make: Any = Handle
    with gateway.stage(numpy.int64(6), "uint8") as flat, gateway.stage(numpy.array([2, 3]), "uint8") as staged:
        assert (flat.view().shape, staged.view().shape) == ((6,), (2, 3))
        with staged.publish(key=numpy.int64(5), readers=numpy.uint8(0)) as lease:
            told = lease.handle()
            handle = make("tensorferry", bytearray(told.descriptor), numpy.uint64(6))
            assert handle == told
            view: Any = worker.pull(handle, key=numpy.int64(5))
            assert view.tensor("uint8", [numpy.int32(3), numpy.int64(2)]).shape == (3, 2)
    wrong: list[Callable[[], Any]] = [
        lambda: make("tensorferry", b"", 1.5),
        lambda: make("tensorferry", 5, 1),
        lambda: make(None, b"", 1),
        lambda: view.tensor("uint8", [2.5, 3]),
        lambda: worker.pull(handle, key=numpy.float64(5)),
        lambda: gateway.export(b"", readers=-1),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize(
    ("reason", "built_in", "retryable"),
    [
        ("key_mismatch", ValueError, False),
        ("bad_generation", ValueError, False),
        ("size_mismatch", ValueError, False),
        ("too_large", ValueError, False),
        # SMG's workers answer this one with INTERNAL.
        ("unknown_dtype", RuntimeError, False),
        ("lane_off", RuntimeError, False),
        ("unreachable", RuntimeError, True),
        ("timed_out", RuntimeError, True),
        ("timed_out", TimeoutError, True),
        ("cancelled", RuntimeError, False),
    ],
)
def test_errors_are_also_what_stock_workers_catch(reason: str, built_in: type[Exception], retryable: bool) -> None:
    error = tensorferry._core.error_of_reason(reason, "why")
    assert isinstance(error, Error)
    assert isinstance(error, built_in)
    assert isinstance(error, ValueError) != isinstance(error, RuntimeError)
    assert (str(error), error.reason, error.retryable) == ("why", reason, retryable)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.reason) == (type(error), "why", reason)


def test_bad_input_says_so(gateway: Exporter, worker: Puller) -> None:
    with gateway.export(b"abc", key=7) as lease:
        good = lease.handle()
        for bad, key, reason in (
            (good, 8, "key_mismatch"),
            (Handle("tensorferry", good.descriptor[:20], 3), None, "too_short"),
            (Handle("tensorferry", good.descriptor, 4), None, "size_mismatch"),
            (Handle("carrier pigeon", good.descriptor, 3), None, "unknown_transport"),
        ):
            with pytest.raises(InputError) as raised:
                worker.pull(bad, key=key)
            assert raised.value.reason == reason
            assert not raised.value.retryable
        with pytest.raises(InputError):
            worker.pull_into(good, bytearray(4))
        with pytest.raises((TypeError, BufferError)):
            worker.pull_into(good, b"abc")
    for wrong in (-1, 1 << 64):
        with pytest.raises(InputError):
            Handle("tensorferry", b"", wrong)
    with pytest.raises(InputError):
        worker.pull(good, key=1 << 63)
    with pytest.raises(InputError):
        worker.pull(good, timeout=float("nan"))
    with pytest.raises(InputError):
        Puller(allow=["not a network"])
    with pytest.raises(InputError):
        gateway.stage((-1,))
    with pytest.raises(OperationError):
        gateway.stage((1,), "complex64")
    with pytest.raises(InputError):
        gateway.stage((1 << 31, 1 << 31, 4), "int64")


def test_an_address_that_is_not_allowed_is_not_dialled(gateway: Exporter) -> None:
    with gateway.export(b"abc") as lease, Puller(landing_bytes=1 << 20, allow=["10.0.0.0/8"], local=False) as worker:
        with pytest.raises(OperationError) as raised:
            worker.pull(lease.handle())
        assert raised.value.reason == "not_allowed"


def test_a_pull_waits_no_longer_than_it_is_told(gateway: Exporter, small_worker: Puller) -> None:
    held = full(small_worker, gateway)
    with gateway.export(b"abc") as lease:
        start = time.monotonic()
        with pytest.raises(Error) as raised:
            small_worker.pull(lease.handle(shm=False), timeout=0.2)
        assert 0.2 <= time.monotonic() - start < 5
        assert raised.value.reason == "landing_full"
        assert raised.value.retryable
        with pytest.raises(Error, match="landing"):
            small_worker.pull(lease.handle(shm=False), timeout=600, landing_timeout=0.01)
        held.release()
        assert bytes(small_worker.pull(lease.handle(shm=False))) == b"abc"


def test_a_pull_lets_other_threads_run_and_can_be_cancelled(gateway: Exporter, small_worker: Puller) -> None:
    held = full(small_worker, gateway)
    cancel = Cancellation()
    ends: list[Error] = []

    def pull(all_at_once: bool) -> None:
        handle = lease.handle(shm=False)
        try:
            if all_at_once:
                (result,) = small_worker.pull_all([handle], timeout=600, cancel=cancel)
                assert isinstance(result, Error)
                raise result
            small_worker.pull(handle, timeout=600, cancel=cancel)
        except Error as error:
            ends.append(error)

    with gateway.export(b"abc") as lease:
        threads = [threading.Thread(target=pull, args=(how,)) for how in (False, True)]
        for thread in threads:
            thread.start()
        while small_worker.stats().waiting_for_landing < 2:
            time.sleep(0.001)
        assert not cancel.cancelled
        cancel.cancel()
        for thread in threads:
            thread.join()
        assert cancel.cancelled
        assert [type(end) for end in ends] == [tensorferry.PullCancelledError] * 2
        with pytest.raises(tensorferry.PullCancelledError):
            small_worker.pull(lease.handle(), cancel=cancel)
    del held


def test_closing_a_puller_ends_what_waits_and_leaves_views(gateway: Exporter, small_worker: Puller) -> None:
    held = full(small_worker, gateway)
    ends: list[str] = []

    def pull() -> None:
        try:
            small_worker.pull(lease.handle(shm=False), timeout=600)
        except Error as error:
            ends.append(error.reason)

    with gateway.export(b"abc") as lease:
        thread = threading.Thread(target=pull)
        thread.start()
        while small_worker.stats().waiting_for_landing == 0:
            time.sleep(0.001)
        small_worker.close()
        thread.join()
        assert ends == ["shut_down"]
        small_worker.close()
        with pytest.raises(Error):
            small_worker.pull(lease.handle())
    assert bytes(held[:10] if isinstance(held, bytes) else memoryview(held)[:10]) == bytes(10)


def test_a_view_outlives_its_puller_and_its_gateway(tmp_path: Path) -> None:
    content = os.urandom(100_000)
    gateway = Exporter(arena_bytes=1 << 20, listen="127.0.0.1:0", local_socket=str(tmp_path / "s"))
    worker = Puller(landing_bytes=1 << 20)
    lease = gateway.export(content)
    views = [worker.pull(lease.handle(shm=shm)) for shm in (True, False)]
    arrays = [memoryview(view) for view in views]
    del views, worker
    lease.close()
    gateway.close()
    del lease, gateway
    for array in arrays:
        assert bytes(array) == content


def test_a_gateway_that_is_another_process(command: Path, tmp_path: Path) -> None:
    source = make_file(tmp_path / "source", 3_000_000)
    with command_exporter(command) as gateway, Puller(landing_bytes=8 << 20) as worker:
        answer = gateway.ask(f"5 {source}")
        handle = Handle(answer["transport"], bytes.fromhex(answer["descriptor"]), answer["nbytes"])
        view = worker.pull(handle, key=5, timeout=30)
        assert view.transport == "local"
        assert bytes(view) == source.read_bytes()
