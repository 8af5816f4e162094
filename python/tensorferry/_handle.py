"""What a message says of bytes that are elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from tensorferry import _core


@dataclass(frozen=True)
class Way:
    """A transport that a gateway offers, and where: addresses, a socket's path, or a file's name."""

    transport: str
    places: tuple[str, ...]


@dataclass(frozen=True)
class Descriptor:
    """What a handle's bytes mean. The token, which is as secret as the channel that carried it, is left out."""

    instance: bytes
    lease: int
    generation: int
    key: int
    nbytes: int
    checksum: int | None
    wants_done: bool
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Handle:
    """A RemoteTensorHandle or ShmHandle, without the protobuf.

    ``transport`` is the kind of descriptor: "tensorferry", "nixl" (SMG's), "file" (the name in a ShmHandle), or empty:
    one of the first two, by its first bytes.
    """

    transport: str
    descriptor: bytes
    nbytes: int
    offset: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.transport, str):
            raise TypeError(f"the transport of a handle is a text, not {self.transport!r}")
        object.__setattr__(self, "descriptor", bytes(memoryview(self.descriptor)))
        for name in ("nbytes", "offset"):
            value = index(getattr(self, name))
            if not 0 <= value < 1 << 64:
                raise _core.error_of_reason("size_mismatch", f"{name} {value} of a handle is outside 0 to 2^64-1")
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, message: Any) -> "Handle":
        """Of any message, or other object, with the fields of a RemoteTensorHandle or a ShmHandle."""
        if hasattr(message, "descriptor"):
            return cls(getattr(message, "transport", ""), bytes(message.descriptor), int(message.nbytes))
        name = str(message.name).encode("utf-8", "surrogateescape")
        return cls("file", name, int(message.nbytes), int(getattr(message, "offset", 0)))

    def inspect(self, key: int | None = None) -> Descriptor:
        """Decodes it. ``key`` is the one that the caller knows: old descriptors of SMG have none of their own."""
        fields = _core.inspect(*self.parts(), checked_key(key))
        fields["ways"] = tuple(Way(*way) for way in fields["ways"])
        return Descriptor(**fields)

    def parts(self) -> tuple[str, bytes, int, int]:
        return self.transport, self.descriptor, self.nbytes, self.offset

    def __repr__(self) -> str:
        # The descriptor holds a token.
        return f"Handle({self.transport!r}, <{len(self.descriptor)} bytes>, nbytes={self.nbytes})"


def checked_key(key: int | None) -> int | None:
    if key is None:
        return None
    key = index(key)
    if not -(1 << 63) <= key < 1 << 63:
        raise _core.error_of_reason("key_mismatch", f"key {key} does not fit 64 bits with a sign")
    return key


def checked_keys(keys: Sequence[int | None] | None, of: Sequence[object]) -> list[int | None]:
    """One for each of many, or none."""
    if keys is None:
        return [None] * len(of)
    if len(keys) != len(of):
        raise _core.error_of_reason("bad_option", f"{len(keys)} keys for {len(of)} tensors: give one for each")
    return [checked_key(key) for key in keys]
