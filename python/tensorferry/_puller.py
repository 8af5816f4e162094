"""The worker's face: fetches the bytes that a handle names."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from tensorferry import _core, _nixl, _runtime
from tensorferry._closing import Closing
from tensorferry._errors import Error
from tensorferry._handle import Handle, checked_key, checked_keys
from tensorferry._view import View

LOOPBACK = ("127.0.0.0/8", "::1")


class Cancellation:
    """A switch that ends waiting, from any thread. It cannot be switched back; any number of pulls may share it."""

    def __init__(self) -> None:
        self._core = _core.Cancellation()

    def cancel(self) -> None:
        self._core.cancel()

    @property
    def cancelled(self) -> bool:
        return self._core.cancelled()


@dataclass(frozen=True)
class PullerStats:
    landing_bytes: int
    landing_used_bytes: int
    waiting_for_landing: int


async def completion(start: Callable[[_core.Cancellation, Callable[[Any, Error | None], None]], None]) -> Any:
    """Starts a pull, and waits for its end without blocking the loop.

    A task that is cancelled cancels its pull, and is only then over: no byte is written any more.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    cancel = _core.Cancellation()

    def settle(result: Any, error: Error | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def done(result: Any, error: Error | None) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(settle, result, error)

    start(cancel, done)
    try:
        await asyncio.wait([future])
    except BaseException as end:
        cancel.cancel()
        if isinstance(end, asyncio.CancelledError):  # and not the end of the coroutine itself, which may not wait
            await over([future])
            future.exception()  # seen: nobody else will look
        raise
    return future.result()


async def over(futures: "Sequence[asyncio.Future[Any]]") -> None:
    """Waits for all, however often the task is cancelled meanwhile."""
    while waiting := [future for future in futures if not future.done()]:
        with suppress(asyncio.CancelledError):
            await asyncio.wait(waiting)


class Puller(Closing):
    """Fetches tensors from gateways. One per process; every call from any thread.

    ``allow`` names the networks of the gateways that may be dialled, ``landing_bytes`` the memory for tensors that come
    over a network. ``shm_files`` reads, and removes, the files under /dev/shm that SMG's gateways write. ``nixl``
    fetches from SMG's gateways by NIXL, whose libraries are looked for in ``nixl_lib``, or in what is installed.
    """

    def __init__(
        self,
        *,
        allow: Sequence[str] = LOOPBACK,
        landing_bytes: int = 1 << 30,
        prefault: bool = True,
        local: bool = True,
        tcp: bool = True,
        shm_files: bool = False,
        unlink_shm_files: bool = True,
        shm_files_of_uids: Sequence[int] = (),
        async_threads: int = 2,
        nixl: bool = False,
        nixl_lib: str = "",
        nixl_gateway_agent_name: str = "smg-gateway-encode",
    ) -> None:
        self._core = _core.Puller(
            allow=list(allow),
            landing_bytes=landing_bytes,
            prefault=prefault,
            local=local,
            tcp=tcp,
            shm_files=shm_files,
            unlink_files=unlink_shm_files,
            allowed_uids=list(shm_files_of_uids),
            async_threads=async_threads,
            nixl=nixl,
            nixl_lib=nixl_lib,
            nixl_search=_nixl.installed_libraries() if nixl else [],
            gateway_agent_name=nixl_gateway_agent_name,
        )
        _runtime.opened(self)

    def pull(
        self,
        handle: Handle,
        *,
        timeout: float = 5.0,
        key: int | None = None,
        cancel: Cancellation | None = None,
        landing_timeout: float | None = None,
    ) -> View:
        """Fetches the bytes. ``timeout`` is in seconds and covers everything; ``key`` is the one they must have.

        With ``landing_timeout`` waiting for landing memory has a time of its own, and ``timeout`` counts from its end.
        """
        return View(self._core.pull(handle.parts(), timeout, _switch(cancel), checked_key(key), landing_timeout))

    def pull_into(
        self,
        handle: Handle,
        into: Any,
        *,
        timeout: float = 5.0,
        key: int | None = None,
        cancel: Cancellation | None = None,
    ) -> str:
        """Fetches into writable memory of just the right size, and returns the transport that carried the bytes.

        The memory is anything contiguous on the host that has the buffer protocol or DLPack, such as a torch tensor.
        """
        return self._core.pull_into(handle.parts(), into, timeout, _switch(cancel), checked_key(key))

    def pull_all(
        self,
        handles: Sequence[Handle],
        *,
        timeout: float = 5.0,
        keys: Sequence[int | None] | None = None,
        cancel: Cancellation | None = None,
    ) -> list[View | Error]:
        """Fetches many at once. For each handle, in order, a view or the error that it ended with.

        ``keys`` has one for each handle, as ``key`` of pull().
        """
        parts = [handle.parts() for handle in handles]
        results = self._core.pull_all(parts, timeout, _switch(cancel), checked_keys(keys, handles))
        return [result if isinstance(result, Error) else View(result) for result in results]

    async def pull_async(self, handle: Handle, *, timeout: float = 5.0, key: int | None = None) -> View:
        """As pull(), without blocking the loop. Cancelling the task cancels the pull."""
        parts, checked = handle.parts(), checked_key(key)
        return View(await completion(lambda cancel, done: self._core.pull_async(parts, timeout, cancel, checked, done)))

    async def pull_into_async(self, handle: Handle, into: Any, *, timeout: float = 5.0, key: int | None = None) -> str:
        """As pull_into(), without blocking the loop. ``into`` belongs to the puller until it is over."""
        parts, checked = handle.parts(), checked_key(key)
        return cast(
            str,
            await completion(
                lambda cancel, done: self._core.pull_into_async(parts, into, timeout, cancel, checked, done)
            ),
        )

    async def pull_all_async(
        self, handles: Sequence[Handle], *, timeout: float = 5.0, keys: Sequence[int | None] | None = None
    ) -> list[View | Error]:
        """As pull_all(), without blocking the loop."""
        pairs = zip(handles, checked_keys(keys, handles), strict=True)
        return await all_of([self.pull_async(handle, timeout=timeout, key=key) for handle, key in pairs])

    def decline(self, handle: Handle) -> None:
        """This handle will not be pulled: lets a gateway that waits to hear of its readers know. Never blocks."""
        self._core.decline(handle.parts())

    def close(self) -> None:
        """Ends what is under way in every thread with reason shut_down, and all that comes later. Views stay valid."""
        self._core.close()

    @property
    def transports(self) -> list[str]:
        """What is enabled, in order of preference."""
        return self._core.transports()

    def stats(self) -> PullerStats:
        return PullerStats(**self._core.stats())


def _switch(cancel: Cancellation | None) -> _core.Cancellation | None:
    return None if cancel is None else cancel._core


async def all_of(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """Results and Errors in order; any other exception ends the rest and is raised, when all have ended."""

    async def settled(call: Awaitable[Any]) -> Any:
        try:
            return await call
        except Error as error:
            return error

    tasks = [asyncio.ensure_future(settled(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await over(tasks)
