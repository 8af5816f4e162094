"""Asynchronous pulls, and what happens in a child made by fork."""

import asyncio
import multiprocessing
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import tensorferry
from tensorferry import Error, Exporter, Puller, View
from tensorferry._puller import all_of


async def beats(during: Awaitable[Any]) -> int:
    """How often the loop came round meanwhile."""
    count = 0
    task = asyncio.ensure_future(during)
    while not task.done():
        await asyncio.sleep(0.001)
        count += 1
    await task
    return count


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main(), debug=True)


@pytest.mark.parametrize(("shm", "transport"), [(True, "local"), (False, "tcp")])
def test_a_pull_is_awaited(gateway: Exporter, worker: Puller, shm: bool, transport: str) -> None:
    async def main() -> None:
        content = os.urandom(3 << 20)
        with gateway.export(content, key=4) as lease:
            view = await worker.pull_async(lease.handle(shm=shm), key=4, timeout=30)
            assert view.transport == transport
            assert bytes(view) == content
            into = bytearray(len(content))
            assert await worker.pull_into_async(lease.handle(shm=shm), into, timeout=30) == transport
            assert into == content
            with pytest.raises(tensorferry.InputError) as raised:
                await worker.pull_async(lease.handle(), key=5)
            assert raised.value.reason == "key_mismatch"

    run(main)


def test_many_at_once(gateway: Exporter, worker: Puller) -> None:
    async def main() -> None:
        leases = [gateway.export(bytes([i]) * 10_000) for i in range(100)]
        handles = [lease.handle(shm=i % 2 == 0) for i, lease in enumerate(leases)]
        leases[3].close()
        for results in (
            await worker.pull_all_async(handles, timeout=30),
            await asyncio.to_thread(worker.pull_all, handles, timeout=30),
        ):
            for i, result in enumerate(results):
                if i == 3:
                    assert isinstance(result, Error)
                    assert result.reason == "lease_ended"
                else:
                    assert isinstance(result, View)
                    assert bytes(result) == bytes([i]) * 10_000

    run(main)


@pytest.fixture
def busy(gateway: Exporter) -> tuple[Puller, View]:
    """A worker whose landing memory is taken: a pull over tcp waits."""
    worker = Puller(landing_bytes=1 << 20)
    with gateway.export(bytes(1 << 20)) as lease:
        return worker, worker.pull(lease.handle(shm=False))


def test_the_loop_goes_on_while_a_pull_waits(gateway: Exporter, busy: tuple[Puller, View]) -> None:
    worker, held = busy

    async def main() -> None:
        with gateway.export(b"abc") as lease:
            waiting = worker.pull_async(lease.handle(shm=False), timeout=0.5)
            start = time.monotonic()
            with pytest.raises(Error, match="landing"):
                await beats(waiting)
            assert time.monotonic() - start >= 0.5

            async def later() -> None:
                pull = asyncio.ensure_future(worker.pull_async(lease.handle(shm=False), timeout=60))
                while worker.stats().waiting_for_landing == 0:
                    await asyncio.sleep(0.001)
                for _ in range(20):  # comes round, although the pull waits
                    await asyncio.sleep(0.001)
                assert not pull.done()
                held.release()
                assert bytes(await pull) == b"abc"

            assert await beats(later()) >= 20

    run(main)


def test_cancelling_the_task_cancels_the_pull(gateway: Exporter, busy: tuple[Puller, View]) -> None:
    worker, _ = busy

    async def main() -> None:
        with gateway.export(b"abc") as lease:
            handle = lease.handle(shm=False)
            pulls = [
                asyncio.ensure_future(worker.pull_async(handle, timeout=600)),
                asyncio.ensure_future(worker.pull_all_async([handle, handle], timeout=600)),
            ]
            while worker.stats().waiting_for_landing < 3:
                await asyncio.sleep(0.001)
            for pull in pulls:
                pull.cancel()
            ends = await asyncio.gather(*pulls, return_exceptions=True)
            assert worker.stats().waiting_for_landing == 0, "a task is over when its pull is"
            assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends

    run(main)


def test_memory_that_was_given_is_let_go_when_a_pull_is_cancelled(worker: Puller) -> None:
    async def main() -> None:
        # What listens at the gateway's address never answers.
        with socket.create_server(("127.0.0.1", 0)) as mute:
            address = f"127.0.0.1:{mute.getsockname()[1]}"
            with Exporter(arena_bytes=1 << 20, listen="127.0.0.1:0", advertise=[address]) as gateway:
                with gateway.export(b"abc") as lease:
                    into = bytearray(3)
                    pull = asyncio.ensure_future(worker.pull_into_async(lease.handle(), into, timeout=600))
                    while not select.select([mute], [], [], 0)[0]:
                        await asyncio.sleep(0.001)
                    with pytest.raises(BufferError):
                        into.append(0)
                    pull.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await pull
                    into.append(0)

    run(main)


def test_a_time_limit_of_asyncio_works(gateway: Exporter, busy: tuple[Puller, View]) -> None:
    worker, _ = busy

    async def main() -> None:
        with gateway.export(b"abc") as lease:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await worker.pull_async(lease.handle(shm=False), timeout=600)
            assert worker.stats().waiting_for_landing == 0

    run(main)


def test_closing_the_puller_ends_what_is_awaited(gateway: Exporter, busy: tuple[Puller, View]) -> None:
    worker, _ = busy

    async def main() -> None:
        with gateway.export(b"abc") as lease:
            pull = asyncio.ensure_future(worker.pull_async(lease.handle(shm=False), timeout=600))
            while worker.stats().waiting_for_landing == 0:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(worker.close)
            with pytest.raises(Error) as raised:
                await pull
            assert raised.value.reason == "shut_down"
            with pytest.raises(Error) as raised:
                await worker.pull_async(lease.handle())
            assert raised.value.reason == "shut_down"

    run(main)


def test_a_loop_that_is_gone_hurts_nobody(gateway: Exporter, busy: tuple[Puller, View]) -> None:
    worker, held = busy
    with gateway.export(b"abc") as lease:
        loop = asyncio.new_event_loop()
        task = loop.create_task(worker.pull_async(lease.handle(shm=False), timeout=600))
        while worker.stats().waiting_for_landing == 0:
            loop.run_until_complete(asyncio.sleep(0.001))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        held.release()
        while worker.stats().landing_used_bytes or worker.stats().waiting_for_landing:
            time.sleep(0.001)
        task.get_coro().close()
        assert bytes(worker.pull(lease.handle(shm=False))) == b"abc"


def test_closing_the_coroutine_cancels_the_pull(gateway: Exporter, busy: tuple[Puller, View]) -> None:
    worker, _ = busy
    with gateway.export(b"abc") as lease:
        loop = asyncio.new_event_loop()
        try:
            task = loop.create_task(worker.pull_async(lease.handle(shm=False), timeout=600))
            while worker.stats().waiting_for_landing == 0:
                loop.run_until_complete(asyncio.sleep(0.001))
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task.get_coro().close()
            while worker.stats().waiting_for_landing:
                time.sleep(0.001)
        finally:
            loop.close()


def test_what_is_wrong_with_one_of_many_ends_all(gateway: Exporter, busy: tuple[Puller, View]) -> None:
    worker, _ = busy

    async def main() -> None:
        with gateway.export(b"abc") as lease:
            handle = lease.handle(shm=False)
            with pytest.raises(TypeError):
                await all_of([worker.pull_async(handle, timeout=600), worker.pull_async(handle, timeout="soon")])  # type: ignore[arg-type]
            assert worker.stats().waiting_for_landing == 0

    run(main)


FORKING = """
import os, sys, traceback, tensorferry
gateway = tensorferry.Exporter(arena_bytes=1 << 20, listen="127.0.0.1:0", local_socket=sys.argv[1])
worker = tensorferry.Puller(landing_bytes=1 << 20)
lease = gateway.export(b"abc")
handle = lease.handle()
view = worker.pull(handle)
def refused(what):
    try:
        what()
    except (RuntimeError, BufferError) as error:
        return "before this process was forked" in str(error)
    return False
child = os.fork()
if child == 0:
    calls = [lambda: tensorferry.Puller(landing_bytes=1 << 20), lambda: tensorferry.Exporter(arena_bytes=1 << 20),
             lambda: worker.pull(handle), worker.stats, worker.close, lambda: gateway.export(b"x"), gateway.stats,
             lambda: lease.handle(), lambda: memoryview(view), lambda: view.__dlpack__(max_version=(1, 0)),
             lambda: worker.pull_all([handle])]
    results = [refused(call) for call in calls]
    del view, lease, worker, gateway, calls, refused
    print(all(results), results, flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
# The child has ended nothing of its parent's.
assert gateway.stats().published == 1
assert bytes(view) == b"abc"
used = gateway.stats().used_bytes
lease.close()
assert gateway.stats().used_bytes == used, "the view is still held"
lease = gateway.export(b"def")
assert bytes(worker.pull(lease.handle(shm=False))) == b"def"
print("parent")
"""


def test_a_fork_after_the_import_is_refused_and_disturbs_nothing(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path / "s")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[0] == "True", done.stdout
    assert done.stdout.split()[-1] == "parent"


def spawned(handle: tensorferry.Handle) -> bytes:
    with Puller(landing_bytes=1 << 20) as worker:
        return bytes(worker.pull(handle, timeout=30))


def test_a_spawned_child_works(gateway: Exporter) -> None:
    with gateway.export(b"abc") as lease:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(spawned, (lease.handle(),)) == b"abc"
