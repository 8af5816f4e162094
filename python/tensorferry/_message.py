"""A TensorData of SMG's packages from its bytes, for workers that have no protobuf classes for it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tensorferry import _core
from tensorferry._protobuf import Reader

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Layout = Literal["tokenspeed", "vllm"]


@dataclass
class ShmHandle:
    name: str = ""
    offset: int = 0
    nbytes: int = 0
    owner_id: str = ""


@dataclass
class RemoteTensorHandle:
    transport: str = ""
    descriptor: bytes = b""
    nbytes: int = 0


@dataclass
class TensorData:
    """At most one of inline, shm, remote is set. ``inline`` is a slice of the bytes that were parsed, not a copy."""

    dtype: str = ""
    shape: list[int] = field(default_factory=list)
    inline: memoryview | None = None
    shm: ShmHandle | None = None
    remote: RemoteTensorHandle | None = None

    @classmethod
    def parse(cls, message: "ReadableBuffer", layout: Layout) -> "TensorData":
        """``layout`` says whose: the field numbers differ, and nothing in the bytes tells which they are."""
        numbers = _NUMBERS.get(layout)
        if numbers is None:
            raise _core.error_of_reason("bad_option", f"layout {layout!r} is none of {', '.join(_NUMBERS)}")
        out = cls()
        for number, value in Reader(memoryview(message).cast("B")):
            name = numbers.get(number)
            if name == "shape":
                out.shape += [value] if isinstance(value, int) else _packed(value)
            elif isinstance(value, int):
                continue
            elif name == "dtype":
                out.dtype = _text(value)
            elif name in ("inline", "shm", "remote"):
                previous = (out.shm, out.remote)
                out.inline = out.shm = out.remote = None
                if name == "inline":
                    out.inline = value
                elif name == "shm":
                    out.shm = _shm(value, previous[0] or ShmHandle())
                else:
                    out.remote = _remote(value, previous[1] or RemoteTensorHandle())
        return out


_NUMBERS: dict[str, dict[int, str]] = {
    "tokenspeed": {1: "shape", 2: "dtype", 3: "inline", 4: "shm", 5: "remote"},
    "vllm": {1: "inline", 2: "shape", 3: "dtype", 4: "shm", 5: "remote"},
}


def _packed(values: memoryview) -> list[int]:
    reader = Reader(values)
    out = []
    while not reader.done():
        out.append(reader.varint() & 0xFFFFFFFF)
    return out


def _text(value: memoryview) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        raise _core.error_of_reason("bad_input", "a text of the message is not UTF-8") from None


def _shm(message: memoryview, out: ShmHandle) -> ShmHandle:
    for number, value in Reader(message):
        if isinstance(value, int):
            if number == 2:
                out.offset = value
            elif number == 3:
                out.nbytes = value
        elif number == 1:
            out.name = _text(value)
        elif number == 4:
            out.owner_id = _text(value)
    return out


def _remote(message: memoryview, out: RemoteTensorHandle) -> RemoteTensorHandle:
    for number, value in Reader(message):
        if isinstance(value, int):
            if number == 3:
                out.nbytes = value
        elif number == 1:
            out.transport = _text(value)
        elif number == 2:
            out.descriptor = bytes(value)
    return out
