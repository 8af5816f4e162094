"""SMG's own Python reader of files under /dev/shm, unmodified."""

from types import SimpleNamespace
from typing import Any

from smg_grpc_servicer.mm_shm import tensor_payload_bytes_from_shm

from bench.drivers import worker


def fetch(descriptor: bytes, nbytes: int, key: int) -> tuple[Any, str]:
    del key
    return tensor_payload_bytes_from_shm(SimpleNamespace(name=descriptor.decode(), nbytes=nbytes, offset=0)), "file"


worker.run(worker.job(), fetch)
