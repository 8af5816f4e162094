"""What a worker tells gateways about itself."""

import os
from dataclasses import dataclass, field

from tensorferry import _core, _protobuf
from tensorferry._puller import Puller

# What carries a tensor by which lane.
_LANES = {"local": "shm", "file": "shm", "tcp": "remote", "ucx": "remote", "nixl": "remote"}


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
    descriptor_versions: tuple[int, ...] = field(default=())

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


def describe_worker(puller: Puller | None, max_message_bytes: int) -> Capabilities:
    """Of this process. ``max_message_bytes`` is what its gRPC server takes, 0 for no limit.

    Call it once per process: each call makes up another instance id.
    """
    boot_id, shm_namespace, uid = _core.this_host()
    lanes, transports, landing_bytes = ["inline"], ["grpc"], 0
    if puller is not None:
        landing_bytes = puller.stats().landing_bytes
        for transport in puller.transports:
            lane = _LANES.get(transport)
            # What is copied needs landing memory.
            if lane is None or (transport != "local" and landing_bytes == 0):
                continue
            transports.append(transport)
            if lane not in lanes:
                lanes.append(lane)
    return Capabilities(
        version=_core.version,
        instance_id=os.urandom(16),
        lanes=tuple(lanes),
        transports=tuple(transports),
        landing_bytes=landing_bytes,
        max_inline_bytes=max_message_bytes,
        boot_id=boot_id,
        shm_namespace=shm_namespace,
        uid=uid,
        descriptor_versions=(_core.descriptor_version,),
    )
