"""What stands in for the worker classes of SMG's servicers: a worker gets Tensorferry by changing an import.

    from tensorferry.smg import RdmaPixelPuller        # was: from smg_grpc_servicer.mm_rdma import ...
    from tensorferry import smg as mm_shm              # was: from smg_grpc_servicer import mm_shm

Arguments, environment variables and classes of errors are those of the originals, and the words by which gateways
recognise an error are in its text. Beyond them it recovers from a gateway's restart, serves any number of gateways of
one name at a time, checks what a message tells before it fetches anything, and frees the gateway's slot whenever it
gives up. It also takes Tensorferry's own descriptors.

Environment: ``SMG_MM_PIXEL_RDMA`` (1, true, yes, on), ``SMG_RDMA_SLOT_BYTES``, ``SMG_RDMA_LANDING_SLOTS``,
``SMG_RDMA_LANDING_WAIT_S``, ``SMG_RDMA_READ_TIMEOUT_S``, ``TOKENSPEED_UNLINK_MM_SHM_AFTER_READ``; and of our own
``TENSORFERRY_ALLOW`` (networks of gateways that may be dialled, with commas; any when unset, as with the originals),
``TENSORFERRY_NIXL_LIB`` (folder of NIXL's libraries), ``TENSORFERRY_SHM_UIDS`` (users besides this one whose files
under /dev/shm are read, with commas). ``SMG_RDMA_SEND_MD`` has no effect: gateways never need this worker's metadata.
"""

import errno
import logging
import os
import stat
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tensorferry import _core
from tensorferry._errors import Error, InputError, OperationError
from tensorferry._handle import Handle
from tensorferry._puller import Puller
from tensorferry._view import View, checked_shape

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

DEFAULT_GATEWAY_AGENT_NAME = "smg-gateway-encode"

# Around the payload in a slot.
_FRAME_BYTES = 16
# What a landing slot takes beside it, by the alignment of both.
_SLOT_MARGIN = 128
_MIB = 1 << 20


def rdma_pixel_lane_enabled(environ: Mapping[str, str]) -> bool:
    """Whether ``SMG_MM_PIXEL_RDMA`` is on, by the rule of SMG's gateways."""
    return environ.get("SMG_MM_PIXEL_RDMA", "").strip().lower() in ("1", "true", "yes", "on")


def _list(name: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]


class RdmaPixelPuller:
    """Fetches what messages name by ``remote``. When it cannot start it says so in the log, once, and takes nothing."""

    def __init__(
        self, *, agent_name: str, log_prefix: str, gateway_agent_name: str = DEFAULT_GATEWAY_AGENT_NAME
    ) -> None:
        """``agent_name`` is for the log: NIXL knows this agent by a name that no other process has."""
        self._log_prefix = log_prefix
        self._puller: Puller | None = None
        self._slot_bytes = 0
        self._off = "SMG_MM_PIXEL_RDMA is not on"
        if not rdma_pixel_lane_enabled(os.environ):
            return
        try:
            import numpy  # noqa: F401
            import torch  # noqa: F401

            self._slot_bytes = int(os.environ.get("SMG_RDMA_SLOT_BYTES", 32 * _MIB))
            slots = int(os.environ.get("SMG_RDMA_LANDING_SLOTS", 64))
            if slots <= 0 or self._slot_bytes <= _FRAME_BYTES:
                raise ValueError(f"{slots} landing slots of {self._slot_bytes} bytes can take no tensor")
            self._puller = Puller(
                allow=_list("TENSORFERRY_ALLOW") or ["0.0.0.0/0", "::/0"],
                landing_bytes=slots * (self._slot_bytes + _SLOT_MARGIN),
                nixl=True,
                nixl_lib=os.environ.get("TENSORFERRY_NIXL_LIB", ""),
                nixl_gateway_agent_name=gateway_agent_name,
            )
        except Exception as error:
            self._off = str(error)
            logger.error("%s: cannot fetch pixels, takes them in the message only: %s", log_prefix, error)
        else:
            logger.info(
                "%s: fetches pixels as %s (%d landing slots of %d bytes)",
                log_prefix,
                agent_name,
                slots,
                self._slot_bytes,
            )

    @property
    def up(self) -> bool:
        return self._puller is not None

    def close(self) -> None:
        """Ends what is under way; the original has no such call."""
        if self._puller is not None:
            self._puller.close()

    def feature_from_remote(
        self, td: Any, *, explicit_room: int | None = None, cast_to: "torch.dtype | None" = None
    ) -> "torch.Tensor":
        """The tensor, in memory of torch. Floats become ``cast_to``; ``explicit_room`` is the key it must have."""
        transport = getattr(td.remote, "transport", "")
        if transport not in ("", "nixl", "tensorferry"):
            raise _error("unknown_transport", f"unsupported remote tensor transport: {transport!r}")
        if self._puller is None:
            raise _error("lane_off", f"{self._log_prefix}: landing pool unavailable for a remote payload: {self._off}")
        handle = Handle.of(td.remote)
        room = None if explicit_room is None else int(explicit_room)
        try:
            shape = self._checked(td, handle, room)
        except Error as error:
            # Nothing was read, which would have freed the slot.
            self._puller.decline(handle)
            raise _in_stock_words(error, self._log_prefix, room) from None
        landing_timeout = float(os.environ.get("SMG_RDMA_LANDING_WAIT_S", 120))
        timeout = float(os.environ.get("SMG_RDMA_READ_TIMEOUT_S", 60))
        try:
            view = self._puller.pull(handle, timeout=timeout, key=room, landing_timeout=landing_timeout)
        except Error as error:
            raise _in_stock_words(error, self._log_prefix, room) from None
        return _to_torch(view, str(td.dtype), shape, cast_to)

    def _checked(self, td: Any, handle: Handle, room: int | None) -> list[int]:
        key = handle.inspect(room).key
        if room is not None and room != key:
            raise _error("key_mismatch", f"the descriptor is of {key}, the request of {room}")
        if handle.nbytes + _FRAME_BYTES > self._slot_bytes:
            raise _error(
                "too_large",
                f"{handle.nbytes} bytes and {_FRAME_BYTES} around them, slots of {self._slot_bytes}; raise "
                "SMG_RDMA_SLOT_BYTES",
            )
        shape = checked_shape(td.shape)
        _core.check_tensor(str(td.dtype), shape, handle.nbytes)
        return shape


def _error(reason: str, text: str) -> Error:
    return _core.error_of_reason(reason, text)


# The words by which gateways tell SMG's errors apart.
_WORDS = {
    "key_mismatch": "remote descriptor room mismatch",
    "legacy_needs_key": "legacy remote descriptor lacks room",
    "too_short": "remote descriptor too short",
    "too_large": "remote pixel exceeds landing slot",
    "size_mismatch": "remote pixel size mismatch",
    "bad_shape": "remote pixel size mismatch",
    "bad_generation": "slot generation mismatch",
    "landing_full": "landing-ring starvation",
    "lane_off": "landing pool unavailable",
    "shut_down": "landing pool unavailable",
    "timed_out": "NIXL READ timed out",
    "out_of_range": "NIXL READ state=NOT_FOUND",
    "peer_closed": "NIXL READ state=ERR",
    "unreachable": "NIXL remote metadata not ready",
    "bad_address": "NIXL remote metadata not ready",
    "not_allowed": "NIXL remote metadata not ready",
}


def _in_stock_words(error: Error, log_prefix: str, room: int | None) -> Error:
    words = _WORDS.get(error.reason)
    # Of the handshake, not of the READ.
    if error.reason in ("timed_out", "peer_closed") and "listener at" in str(error):
        words = _WORDS["unreachable"]
    text = f"{log_prefix}: {words + ': ' if words else ''}{error}" + ("" if room is None else f" (room={room})")
    # An address that cannot be dialled was, to the original, one that did not answer.
    kind = OperationError if error.reason == "bad_address" else type(error)
    return kind(text, error.reason, error.retryable)


def _to_torch(view: View, dtype: str, shape: list[int], cast_to: Any) -> Any:
    import numpy
    import torch

    array = numpy.asarray(memoryview(view.tensor(dtype, shape)))
    borrowed = not array.flags.writeable  # the gateway's own memory
    if borrowed:
        array = array.copy()
    # bfloat16 is in its 16 bits.
    tensor = torch.from_numpy(array)
    if dtype == "bfloat16":
        tensor = tensor.view(torch.bfloat16)
    if cast_to is not None and tensor.dtype != cast_to and tensor.is_floating_point():
        return tensor.to(cast_to)
    return tensor if borrowed else tensor.clone()


# The helpers for files under /dev/shm.

UNLINK_MM_SHM_AFTER_READ = os.getenv("TOKENSPEED_UNLINK_MM_SHM_AFTER_READ", "1").lower() not in ("0", "false", "no")

_SHM = "/dev/shm/"
_READ_TIMEOUT = 60.0


class MissingFileError(OperationError, FileNotFoundError):
    """No such file under /dev/shm: it was read already, or its gateway is on another host."""


class ForbiddenFileError(OperationError, PermissionError):
    """The file under /dev/shm belongs to another user."""


class _Files:
    """Reads files; made when the first comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._puller: Puller | None = None
        self._unlinks = True

    def puller(self) -> Puller:
        with self._lock:
            if self._puller is None or self._unlinks != UNLINK_MM_SHM_AFTER_READ:
                self._unlinks = UNLINK_MM_SHM_AFTER_READ
                self._puller = Puller(
                    landing_bytes=0,
                    local=False,
                    tcp=False,
                    shm_files=True,
                    unlink_shm_files=self._unlinks,
                    shm_files_of_uids=[int(uid) for uid in _list("TENSORFERRY_SHM_UIDS")],
                    async_threads=1,
                )
            return self._puller


_files = _Files()


def tensor_payload_bytes(tensor_data: Any) -> bytes:
    """The bytes of a TensorData that are in the message or in a file under /dev/shm."""
    payload = tensor_data.WhichOneof("payload")
    if payload == "inline":
        return bytes(tensor_data.inline)
    if payload == "shm":
        return tensor_payload_bytes_from_shm(tensor_data.shm)
    if payload == "remote":
        raise InputError("TensorData.remote payload is not implemented here: see RdmaPixelPuller", "lane_off")
    raise _error("no_payload", "TensorData has no payload: one of inline, shm must be set")


def tensor_payload_bytes_from_shm(shm_handle: Any) -> bytes:
    """The bytes of a file under /dev/shm, which is then removed unless ``UNLINK_MM_SHM_AFTER_READ`` is off.

    Only files that a gateway can have made are read, and only what was read is removed.
    """
    name = validated_shm_name(shm_handle.name)
    handle = Handle("file", name.encode("utf-8", "surrogateescape"), int(shm_handle.nbytes), int(shm_handle.offset))
    path = os.path.join(_SHM, name)  # noqa: PTH118
    try:
        # Before memory is taken for it; whether it is the same file, and all else, is looked at when it was opened.
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
        if not stat.S_ISREG(found.st_mode):
            kind = "a symlink" if stat.S_ISLNK(found.st_mode) else "not a regular file"
            raise InputError(f"TensorData.shm is {kind}: {name!r}", "not_allowed")
        if found.st_size < handle.offset + handle.nbytes:
            raise _error("out_of_range", f"the file is shorter than {handle.offset + handle.nbytes} bytes")
        out = bytearray(handle.nbytes)
        _files.puller().pull_into(handle, out, timeout=_READ_TIMEOUT)
    except FileNotFoundError:
        raise _missing(path) from None
    except Error as error:
        raise _file_error(error, path, name) from None
    return bytes(out)


def _missing(path: str) -> Error:
    text = f"[Errno {errno.ENOENT}] {os.strerror(errno.ENOENT)}: {path!r}"
    return MissingFileError(text, "lease_ended")


def _file_error(error: Error, path: str, name: str) -> Error:
    if error.reason == "lease_ended":
        return _missing(path)
    if error.reason == "uid_mismatch":
        text = f"[Errno {errno.EACCES}] {os.strerror(errno.EACCES)}: {path!r}: {error}"
        return ForbiddenFileError(text, error.reason)
    words = {
        "bad_descriptor": "Invalid TensorData.shm name",
        "out_of_range": "TensorData.shm byte length mismatch",
    }.get(error.reason)
    if error.reason == "not_allowed":
        return InputError(str(error), error.reason)
    if words is None:
        return error
    return InputError(f"{words} ({name!r}): {error}", error.reason, error.retryable)


def validated_shm_name(name: str) -> str:
    """The name without slashes in front. What could lead out of /dev/shm is refused."""
    bare = name.lstrip("/")
    if bare in ("", ".", "..") or "/" in bare or "\0" in bare:
        raise _error("bad_descriptor", f"Invalid TensorData.shm name: {name!r} names no file in {_SHM}")
    return bare


def shm_namespace_id() -> str:
    """What gateways compare to know whether they share /dev/shm with this process; empty when it is not known."""
    return _core.shm_namespace()
