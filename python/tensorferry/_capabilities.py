"""What a worker tells gateways about itself."""

from dataclasses import dataclass

from tensorferry import _core, _protobuf
from tensorferry._puller import Puller


@dataclass(frozen=True)
class Capabilities:
    """What proto/tensorferry/v1/transport.proto says of a worker. The default takes bytes in the message only."""

    version: str = ""
    instance_id: bytes = b""
    lanes: tuple[str, ...] = ("inline",)
    transports: tuple[str, ...] = ("grpc",)
    landing_bytes: int = 0
    max_inline_bytes: int = 0
    boot_id: bytes = b""
    shm_namespace: str = ""
    uid: int | None = None
    descriptor_versions: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """As the protobuf message tensorferry.v1.Capabilities."""
        message = _protobuf.Writer()
        message.text(1, self.version)
        message.data(2, self.instance_id)
        for lane in self.lanes:
            message.text(3, lane, always=True)
        for transport in self.transports:
            message.text(4, transport, always=True)
        message.number(5, self.landing_bytes)
        message.number(6, self.max_inline_bytes)
        if self.boot_id or self.shm_namespace:
            shm = _protobuf.Writer()
            shm.data(1, self.boot_id)
            shm.text(2, self.shm_namespace)
            message.data(7, shm.finish(), always=True)
        if self.uid is not None:
            message.number(8, self.uid, always=True)
        message.numbers(9, self.descriptor_versions)
        return message.finish()

    @classmethod
    def decode(cls, raw: bytes) -> "Capabilities":
        """What is not said keeps its default."""
        texts: dict[int, list[str]] = {1: [], 3: [], 4: []}
        data: dict[int, bytes] = {}
        numbers: dict[int, int] = {}
        shm: dict[int, bytes] = {}
        versions: list[int] = []
        for number, value in _protobuf.Reader(memoryview(raw)):
            if isinstance(value, int):
                numbers[number] = value
                if number == 9:
                    versions.append(value)
            elif number in texts:
                texts[number].append(str(value, "utf-8", "replace"))
            elif number == 7:
                shm.update((n, bytes(v)) for n, v in _protobuf.Reader(value) if not isinstance(v, int))
            elif number == 9:
                versions += _protobuf.Reader(value).varints()
            else:
                data[number] = bytes(value)
        return cls(
            version="".join(texts[1][-1:]),
            instance_id=data.get(2, b""),
            lanes=tuple(texts[3]) or cls.lanes,
            transports=tuple(texts[4]) or cls.transports,
            landing_bytes=numbers.get(5, 0),
            max_inline_bytes=numbers.get(6, 0),
            boot_id=shm.get(1, b""),
            shm_namespace=str(shm.get(2, b""), "utf-8", "replace"),
            uid=numbers.get(8),
            descriptor_versions=tuple(versions),
        )


def describe_worker(puller: Puller | None, max_message_bytes: int) -> Capabilities:
    """Of this process. ``max_message_bytes`` is what its gRPC server takes, 0 for no limit.

    Call it once per process: each call makes up another instance id.
    """
    return Capabilities(**_core.describe_worker(None if puller is None else puller._core, max_message_bytes))
