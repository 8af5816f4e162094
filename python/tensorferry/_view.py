"""Bytes that arrived, or that are to be sent, as arrays: without a copy."""

from collections.abc import Sequence
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tensorferry import _core

if TYPE_CHECKING:
    import numpy
    from typing_extensions import CapsuleType, Self

# As DLPack names it.
_CPU = (1, 0)


class View(_core.Memory):
    """Flat bytes, 64-byte aligned unless they were in a message.

    ``memoryview(view)``, ``view.numpy()`` and ``torch.from_dlpack(view)`` see the same memory. It is given back when
    the view and all that was made of it have gone, in whichever thread that is. A ``borrowed`` view is the gateway's
    own memory and read-only: copy it or drop it soon.
    """

    def __init__(self, memory: _core.Memory) -> None:
        """Of what pulled it; there is no need to call it."""
        super().__init__(memory)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def dtype(self) -> str:
        """float32, bfloat16, float16, uint8, int64 or uint32."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def readonly(self) -> bool:
        return self._readonly

    @property
    def borrowed(self) -> bool:
        return self._borrowed

    @property
    def transport(self) -> str:
        """What carried the bytes: grpc, local, file, tcp, nixl. Empty for memory of this process."""
        return self._transport

    @property
    def lane(self) -> str:
        """How they travelled: inline, shm, remote. Empty for memory of this process."""
        return _core.lane_of_transport(self._transport)

    def tensor(self, dtype: str, shape: Sequence[int]) -> "Tensor":
        """The same bytes as a row-major tensor."""
        return Tensor(self._typed(dtype, checked_shape(shape)))

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """The same memory as a NumPy array. bfloat16 needs the package ml_dtypes."""
        import numpy

        array = numpy.asarray(memoryview(self))
        if self.dtype != "bfloat16":
            return array
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError(
                "NumPy has no bfloat16 of its own: install ml_dtypes, or take memoryview(view), which is its 16 bits"
            ) from None
        return array.view(ml_dtypes.bfloat16)

    def release(self) -> None:
        """Gives this view's part of the memory back now. BufferError while arrays or memoryviews of it are in use."""
        self._release()

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What else has a part in it keeps it.
        if kind is None:
            self.release()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no len()")
        return self.shape[0]

    def __bytes__(self) -> bytes:
        return memoryview(self).tobytes()

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> "CapsuleType":
        if stream is not None:
            raise BufferError("memory of the host has no streams: stream must be None")
        if dl_device is not None and tuple(dl_device) != _CPU:
            raise BufferError(f"the tensor is in the host's memory and cannot be handed out on device {dl_device}")
        return self._dlpack(max_version is not None and max_version[0] >= 1, bool(copy))

    def __repr__(self) -> str:
        how = f" by {self.lane} over {self.transport}" if self.transport else ""
        state = " released" if self._released else " borrowed" if self.borrowed else ""
        return f"<tensorferry.{type(self).__name__} {self.dtype}{list(self.shape)}{how}{state}>"


class Tensor(View):
    """A view with the dtype and shape that its message gave it."""


def checked_shape(shape: Sequence[int]) -> list[int]:
    """As the library counts dimensions: 32 bits, not negative."""
    dims = [index(dim) for dim in shape]
    for dim in dims:
        if not 0 <= dim < 1 << 32:
            raise _core.error_of_reason("bad_shape", f"dimension {dim} of shape {dims} is outside 0 to 2^32-1")
    return dims
