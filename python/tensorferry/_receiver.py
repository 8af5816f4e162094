"""Takes a tensor out of a message: its bytes from there, or fetched by the handle in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorferry import _core
from tensorferry._errors import Error
from tensorferry._handle import Handle, checked_keys
from tensorferry._puller import Cancellation, Puller, all_of
from tensorferry._view import Tensor, View, checked_shape


@dataclass(frozen=True)
class _Message:
    """A TensorData that was checked: either its bytes, or the handle of them."""

    dtype: str
    shape: list[int]
    content: _core.Memory | None
    handle: Handle | None

    def tensor(self, memory: _core.Memory) -> Tensor:
        return Tensor(memory._typed(self.dtype, self.shape))


def _payload(data: Any) -> str:
    """Which of inline, shm, remote is set; data for SGLang's messages, which know nothing else."""
    if hasattr(data, "WhichOneof"):
        try:
            return str(data.WhichOneof("payload") or "")
        except ValueError:
            return "data" if hasattr(data, "data") else ""
    return next((name for name in ("inline", "shm", "remote", "data") if getattr(data, name, None) is not None), "")


class Receiver:
    """Receives tensors for a worker; every call from any thread.

    ``data`` is any TensorData: a protobuf message of SMG's packages, whichever build of them the worker uses, or any
    object with the same fields. What it tells is checked before a byte is fetched. Without a puller only bytes in the
    message are taken.
    """

    def __init__(self, puller: Puller | None = None) -> None:
        self._puller = puller

    def receive(
        self, data: Any, *, timeout: float = 5.0, key: int | None = None, cancel: Cancellation | None = None
    ) -> Tensor:
        """``timeout``, in seconds, covers everything; ``key`` is the one that the bytes must have (EPD: the room)."""
        message = self._read(data)
        if message.content is not None:
            return message.tensor(message.content)
        puller, handle = self._fetch(message)
        return message.tensor(puller.pull(handle, timeout=timeout, key=key, cancel=cancel))

    async def receive_async(self, data: Any, *, timeout: float = 5.0, key: int | None = None) -> Tensor:
        """As receive(), without blocking the loop. Cancelling the task cancels the pull."""
        message = self._read(data)
        if message.content is not None:
            return message.tensor(message.content)
        puller, handle = self._fetch(message)
        return message.tensor(await puller.pull_async(handle, timeout=timeout, key=key))

    def receive_all(
        self,
        datas: Sequence[Any],
        *,
        timeout: float = 5.0,
        keys: Sequence[int | None] | None = None,
        cancel: Cancellation | None = None,
    ) -> list[Tensor | Error]:
        """Receives many at once. For each, in order, a tensor or the error that it ended with.

        ``keys`` has one for each, as ``key`` of receive().
        """
        known = checked_keys(keys, datas)
        results: list[Tensor | Error | None] = [None] * len(datas)
        fetched: list[tuple[int, _Message, Handle]] = []
        for at, data in enumerate(datas):
            try:
                message = self._read(data)
                if message.content is not None:
                    results[at] = message.tensor(message.content)
                else:
                    fetched.append((at, message, self._fetch(message)[1]))
            except Error as error:
                results[at] = error
        if fetched:
            assert self._puller is not None
            views = self._puller.pull_all(
                [handle for _, _, handle in fetched],
                timeout=timeout,
                keys=[known[at] for at, _, _ in fetched],
                cancel=cancel,
            )
            for (at, message, _), view in zip(fetched, views, strict=True):
                results[at] = message.tensor(view) if isinstance(view, View) else view
        return [result for result in results if result is not None]

    async def receive_all_async(
        self, datas: Sequence[Any], *, timeout: float = 5.0, keys: Sequence[int | None] | None = None
    ) -> list[Tensor | Error]:
        """As receive_all(), without blocking the loop."""
        pairs = zip(datas, checked_keys(keys, datas), strict=True)
        return await all_of([self.receive_async(data, timeout=timeout, key=key) for data, key in pairs])

    def _read(self, data: Any) -> _Message:
        payload = _payload(data)
        dtype = str(data.dtype)
        if payload in ("inline", "data"):
            shape = checked_shape(data.shape)
            content = _core.Memory._of_buffer(getattr(data, payload), "grpc")
            return _Message(dtype, shape, content, None)
        if payload in ("shm", "remote"):
            handle = Handle.of(getattr(data, payload))
            try:
                shape = checked_shape(data.shape)
                _core.check_tensor(dtype, shape, handle.nbytes)
            except Error:
                # The gateway may wait to hear of its readers.
                if payload == "remote" and self._puller is not None:
                    self._puller.decline(handle)
                raise
            return _Message(dtype, shape, None, handle)
        raise _core.error_of_reason(
            "no_payload", f"the tensor {list(data.shape)} has no payload: one of inline, shm, remote must be set"
        )

    def _fetch(self, message: _Message) -> tuple[Puller, Handle]:
        assert message.handle is not None
        if self._puller is None:
            raise _core.error_of_reason(
                "lane_off", "a handle to fetch, but this worker takes bytes in the message only: it has no Puller"
            )
        if message.handle.transport == "file" and "file" not in self._puller.transports:
            raise _core.error_of_reason(
                "lane_off",
                "a file under /dev/shm, but this worker reads none: set shm_files of its Puller, or set that gateway "
                "to inline",
            )
        return self._puller, message.handle
