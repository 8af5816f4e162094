"""Changes an import of SMG's servicers: their worker classes are then those of tensorferry.smg.

DROP_IN names the folder that has the package; without it nothing is changed.
"""

import os
import sys
from typing import Any

FILE_HELPERS = ("tensor_payload_bytes", "tensor_payload_bytes_from_shm", "validated_shm_name", "shm_namespace_id")


def replace() -> None:
    """Before whatever imports them. The servicers find ours under the names of the originals."""
    folder = os.environ.get("DROP_IN")
    if folder is None:
        return
    sys.path.insert(0, folder)
    from smg_grpc_servicer import mm_rdma, mm_shm

    from tensorferry import smg

    mm_rdma.RdmaPixelPuller = smg.RdmaPixelPuller
    for name in FILE_HELPERS:
        setattr(mm_shm, name, getattr(smg, name))


def is_up(puller: Any) -> bool:
    return bool(puller.up) if hasattr(puller, "up") else puller._nixl_agent is not None
