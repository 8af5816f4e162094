"""A TensorData of SMG's packages from its bytes, for workers that have no protobuf classes for it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

from tensorferry import _core
from tensorferry._protobuf import Reader

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_Handle = TypeVar("_Handle")
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
                out.shape += (
                    [value] if isinstance(value, int) else [dim & 0xFFFFFFFF for dim in Reader(value).varints()]
                )
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
                    out.shm = _fill(value, _SHM, previous[0] or ShmHandle())
                else:
                    out.remote = _fill(value, _REMOTE, previous[1] or RemoteTensorHandle())
        return out


_NUMBERS: dict[str, dict[int, str]] = {
    "tokenspeed": {1: "shape", 2: "dtype", 3: "inline", 4: "shm", 5: "remote"},
    "vllm": {1: "inline", 2: "shape", 3: "dtype", 4: "shm", 5: "remote"},
}


def _text(value: memoryview) -> str:
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        raise _core.error_of_reason("bad_input", "a text of the message is not UTF-8") from None


# Of a handle's message: field number to attribute, and how to read it; a number needs no reading.
_Fields = dict[int, tuple[str, Callable[[memoryview], object] | None]]
_SHM: _Fields = {1: ("name", _text), 2: ("offset", None), 3: ("nbytes", None), 4: ("owner_id", _text)}
_REMOTE: _Fields = {1: ("transport", _text), 2: ("descriptor", bytes), 3: ("nbytes", None)}


def _fill(message: memoryview, fields: _Fields, out: _Handle) -> _Handle:
    for number, value in Reader(message):
        name, read = fields.get(number, ("", None))
        if not name or isinstance(value, int) != (read is None):
            continue
        setattr(out, name, value if isinstance(value, int) or read is None else read(value))
    return out
