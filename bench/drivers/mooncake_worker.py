"""Mooncake's transfer engine as a worker: one-sided reads into memory that it has registered."""

from typing import Any

import numpy as np
from mooncake.engine import TransferEngine

from bench.drivers import worker

job = worker.job()
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = np.zeros(max(nbytes for nbytes, *_ in job.sizes), np.uint8)
assert engine.register_memory(memory.ctypes.data, memory.nbytes) == 0


def fetch(descriptor: bytes, nbytes: int, key: int) -> tuple[Any, str]:
    del key
    peer, address = descriptor.decode().split()
    if engine.transfer_sync_read(peer, memory.ctypes.data, int(address), nbytes) != 0:
        raise RuntimeError("transfer_sync_read failed")
    return memory[:nbytes], "mooncake"


worker.run(job, fetch)
