"""SMG's own Python puller, unmodified, fetches over NIXL."""

import logging
import os
from types import SimpleNamespace
from typing import Any

from smg_grpc_servicer.mm_rdma import RdmaPixelPuller

from bench.drivers import worker

logging.basicConfig(level=logging.WARNING)
puller = RdmaPixelPuller(agent_name=f"bench-{os.getpid()}", log_prefix="stock")
assert puller._nixl_agent is not None, "NIXL does not start"


def fetch(descriptor: bytes, nbytes: int, key: int) -> tuple[Any, str]:
    remote = SimpleNamespace(descriptor=descriptor, nbytes=nbytes, transport="nixl")
    tensor = SimpleNamespace(remote=remote, shape=[nbytes], dtype="uint8")
    return puller.feature_from_remote(tensor, explicit_room=key, cast_to=None).numpy(), "nixl"


worker.run(worker.job(), fetch)
