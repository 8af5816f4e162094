"""SMG's own Python puller, unmodified, in a process: pulls what each line names, all lines at the same time.

Or the class that stands in for it: see drop_in.py.
"""

import hashlib
import logging
import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

from peers.drivers import drop_in
from peers.drivers.lines import asked, say

drop_in.replace()

from smg_grpc_servicer.mm_rdma import RdmaPixelPuller  # noqa: E402

logging.basicConfig(level=logging.INFO)
puller = RdmaPixelPuller(agent_name=sys.argv[1], log_prefix="stock")


def pull(what: dict[str, Any]) -> None:
    remote = SimpleNamespace(
        descriptor=bytes.fromhex(what["descriptor"]), nbytes=what["nbytes"], transport=what["transport"]
    )
    tensor = SimpleNamespace(remote=remote, shape=what["shape"], dtype=what["dtype"])
    start = time.monotonic()
    try:
        got = puller.feature_from_remote(tensor, explicit_room=what["room"], cast_to=None)
    except Exception as error:  # whatever it is, the test wants to know
        answer: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"}
    else:
        answer = {
            "sha256": hashlib.sha256(got.numpy()).hexdigest(),
            "shape": list(got.shape),
            "dtype": got.dtype.name,
        }
    say(id=what["id"], seconds=time.monotonic() - start, **answer)


say(event="ready", up=drop_in.is_up(puller))
for line in asked():
    if line.get("event") == "wait_for_handshake":
        while not puller._rdma_md_lock.locked():
            time.sleep(0.001)
        say(event="handshake")
    else:
        threading.Thread(target=pull, args=(line,), daemon=True).start()
os._exit(0)  # NIXL's threads may outlive what they use
