"""As much of protobuf's encoding as Tensorferry's own messages need, so that no message type is registered."""

from collections.abc import Iterable

_VARINT, _LENGTH = 0, 2


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
