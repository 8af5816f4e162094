"""As much of protobuf's encoding as Tensorferry needs itself, so that it registers no message types."""

from collections.abc import Iterable, Iterator

from tensorferry import _core

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def _varint(value: int) -> bytes:
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is outside 0 to 2^64-1")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Writer:
    """Fields in the order in which they are written. Default values are left out, but for `always`."""

    def __init__(self) -> None:
        self._out = bytearray()

    def finish(self) -> bytes:
        return bytes(self._out)

    def number(self, field: int, value: int, *, always: bool = False) -> None:
        if value or always:
            self._out += _varint(field << 3 | _VARINT) + _varint(value)

    def numbers(self, field: int, values: Iterable[int]) -> None:
        """Packed."""
        self.data(field, b"".join(map(_varint, values)))

    def data(self, field: int, value: bytes | bytearray, *, always: bool = False) -> None:
        if value or always:
            self._out += _varint(field << 3 | _LENGTH) + _varint(len(value)) + value

    def text(self, field: int, value: str, *, always: bool = False) -> None:
        self.data(field, value.encode(), always=always)


def _bad(why: str) -> Exception:
    return _core.error_of_reason("bad_input", f"the bytes are no protobuf message: {why}")


class Reader:
    """Iterates over the fields of a message: (number, value), where a value is a number or a slice of the bytes."""

    def __init__(self, message: memoryview) -> None:
        self._message = message
        self._at = 0

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            if self._at >= len(self._message):
                raise _bad("a number ends early")
            byte = self._message[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (1 << 64) - 1
        raise _bad("a number is longer than 64 bits")

    def _take(self, size: int) -> memoryview:
        if size > len(self._message) - self._at:
            raise _bad("a field ends early")
        self._at += size
        return self._message[self._at - size : self._at]

    def done(self) -> bool:
        return self._at >= len(self._message)

    def varints(self) -> Iterator[int]:
        """The numbers of a packed field."""
        while not self.done():
            yield self.varint()

    def __iter__(self) -> Iterator[tuple[int, int | memoryview]]:
        while not self.done():
            tag = self.varint()
            field, kind = tag >> 3, tag & 7
            if field == 0:
                raise _bad("a field has number 0")
            if kind == _VARINT:
                yield field, self.varint()
            elif kind == _LENGTH:
                yield field, self._take(self.varint())
            elif kind in (_FIXED64, _FIXED32):
                yield field, self._take(8 if kind == _FIXED64 else 4)
            else:
                raise _bad(f"a field is of the unknown kind {kind}")
