"""The gateway's face: stages a tensor once, and lets workers fetch it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from tensorferry import _core, _nixl, _runtime
from tensorferry._closing import Closing
from tensorferry._errors import Error
from tensorferry._handle import Handle, checked_key
from tensorferry._view import Tensor, View, checked_shape

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True)
class ExporterStats:
    """Bytes of the arena, and leases by their state. ``heap_fallbacks``: tensors that did not fit the arena."""

    arena_bytes: int
    free_bytes: int
    used_bytes: int
    resting_bytes: int
    writing: int
    published: int
    ended: int
    resting: int
    heap_fallbacks: int
    smg_epoch: int


class Lease(Closing):
    """A published tensor. Keep it until the RPC has ended: closing it, or dropping it, ends it."""

    def __init__(self, core: _core.Lease, dtype: str, shape: tuple[int, ...]) -> None:
        self._core = core
        self._dtype = dtype
        self._shape = shape

    @property
    def key(self) -> int:
        return self._core.key

    @property
    def nbytes(self) -> int:
        return self._core.nbytes

    @property
    def dtype(self) -> str:
        """Empty when the tensor's element type has no name that travels."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def error(self) -> Error | None:
        """Why workers cannot fetch it (arena_full, duplicate_key, shut_down); None when they can."""
        return self._core.error

    @property
    def closed(self) -> bool:
        return self._core.closed

    def handle(self, *, shm: bool = True, remote: bool = True) -> Handle:
        """What a worker that speaks Tensorferry is sent; the arguments permit ways of fetching it."""
        return Handle("tensorferry", self._core.descriptor(shm, remote), self.nbytes)

    def smg_handle(self) -> Handle:
        """What SMG's workers are sent; needs an exporter with ``nixl``."""
        return Handle("nixl", self._core.smg_descriptor(), self.nbytes)

    def view(self) -> Tensor:
        """The bytes, read-only. Their memory stays as long as an array of it, but the lease ends with close()."""
        if self._dtype:
            return Tensor(self._core.memory()).tensor(self._dtype, self._shape)
        return Tensor(self._core.memory())

    def fill(self, message: Any, *, inline: bool = False, shm: bool = True, remote: bool = True) -> None:
        """Writes dtype, shape and handle into a TensorData of any package; the bytes, with ``inline``."""
        message.dtype = self._dtype
        del message.shape[:]
        message.shape.extend(self._shape)
        if inline:
            message.inline = bytes(self.view())
            return
        handle = self.handle(shm=shm, remote=remote)
        message.remote.transport = handle.transport
        message.remote.descriptor = handle.descriptor
        message.remote.nbytes = handle.nbytes

    def readers_are_done(self) -> None:
        """The request was answered, so nobody reads any more: memory that SMG's workers read need not rest."""
        self._core.readers_are_done()

    def detach(self) -> None:
        """Lets its readers, cancel() or its time end it instead of this object."""
        self._core.detach()

    def close(self) -> None:
        self._core.close()


class Staged(Closing):
    """Memory to write a tensor into, in place; dropped unless it is published."""

    def __init__(self, core: _core.Staged, dtype: str, shape: tuple[int, ...]) -> None:
        self._core = core
        self._dtype = dtype
        self._shape = shape

    @property
    def nbytes(self) -> int:
        return self._core.nbytes

    @property
    def in_arena(self) -> bool:
        """Whether workers will be able to fetch it."""
        return self._core.in_arena

    def view(self) -> Tensor:
        """The memory, to be written to."""
        return Tensor(self._core.memory()).tensor(self._dtype, self._shape)

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        return self.view().numpy()

    def publish(self, *, key: int | None = None, readers: int = 0, ttl: float | None = None) -> Lease:
        """Lets workers fetch it. Do not write to it any more."""
        return Lease(self._core.publish(checked_key(key), readers, ttl), self._dtype, self._shape)

    def close(self) -> None:
        """Gives the memory back; nothing after publish()."""
        self._core.drop()


class Exporter(Closing):
    """Memory for tensors, and the places where workers fetch from it. One per process; every call from any thread.

    ``listen`` ("IP:PORT", port 0 picks one) is for workers on other hosts, ``local_socket`` (a path) for those on this
    one, ``nixl`` ("IP:PORT") for SMG's; each is off when empty. Times are in seconds.
    """

    def __init__(
        self,
        *,
        arena_bytes: int = 1 << 30,
        prefault: bool = True,
        lease_ttl: float = 210.0,
        listen: str = "",
        advertise: Sequence[str] = (),
        local_socket: str = "",
        max_claim_percent: int = 25,
        checksum: bool = False,
        nixl: str = "",
        nixl_advertise: str = "",
        nixl_agent_name: str = "",
        nixl_lib: str = "",
    ) -> None:
        self._core = _core.Exporter(
            arena_bytes=arena_bytes,
            prefault=prefault,
            lease_ttl=lease_ttl,
            listen=listen,
            advertise=list(advertise),
            local_socket=local_socket,
            max_claim_percent=max_claim_percent,
            checksum=checksum,
            nixl_listen=nixl,
            nixl_advertise=nixl_advertise,
            nixl_agent_name=nixl_agent_name,
            nixl_agent_program=_nixl.agent_program(),
            nixl_lib=nixl_lib,
            nixl_search=_nixl.installed_libraries() if nixl else [],
        )
        _runtime.opened(self)

    def stage(self, shape: int | Sequence[int], dtype: str = "uint8") -> Staged:
        """Memory for a tensor; a number is so many elements. It never fails for want of arena: see Staged.in_arena."""
        dims = tuple(checked_shape(shape if isinstance(shape, Iterable) else [shape]))
        nbytes = prod(dims) * _core.item_bytes(dtype)
        _core.check_tensor(dtype, list(dims), min(nbytes, (1 << 64) - 1))
        return Staged(self._core.stage(nbytes), dtype, dims)

    def export(
        self,
        tensor: Any,
        *,
        key: int | None = None,
        readers: int = 0,
        ttl: float | None = None,
        copy: bool = False,
    ) -> Lease:
        """Stages and publishes a copy of anything that has DLPack or the buffer protocol, on the host.

        What is not contiguous is refused unless ``copy`` permits to gather it. ``key`` names the lease; None picks one.
        """
        dtype = tensor.dtype if isinstance(tensor, View) else ""
        if getattr(getattr(tensor, "dtype", None), "name", "") == "bfloat16":
            # ml_dtypes' arrays have neither interface.
            tensor, dtype = tensor.view("uint16"), "bfloat16"
        core, found, shape = self._core.export(tensor, copy, checked_key(key), readers, ttl)
        return Lease(core, dtype or found, shape)

    def cancel(self, key: int) -> None:
        """Ends the live lease of this key; reason lease_ended when there is none."""
        checked = checked_key(key)
        assert checked is not None
        self._core.cancel(checked)

    def drain(self, timeout: float) -> None:
        """Exports nothing more, and waits until no lease can be read; reason timed_out says how many remain."""
        self._core.drain(timeout)

    def close(self) -> None:
        """Ends every lease and all serving."""
        self._core.close()

    def wait_prefaulted(self) -> None:
        self._core.wait_prefaulted()

    @property
    def transports(self) -> list[str]:
        return self._core.transports()

    @property
    def listen_address(self) -> str:
        """What tcp readers dial; empty without."""
        return self._core.listen_address()

    @property
    def nixl_address(self) -> str:
        """What NIXL readers dial; empty without."""
        return self._core.nixl_address()

    def stats(self) -> ExporterStats:
        return ExporterStats(**self._core.stats())
