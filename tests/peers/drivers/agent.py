"""A bare NIXL agent in a process: what a peer may do that SMG's own puller never does."""

import hashlib
import os
import sys
import time
from typing import Any

import numpy as np
from nixl_cu13._api import nixl_agent, nixl_agent_config
from peers.drivers.lines import asked, say

LANDING_BYTES = 64 << 20
SECONDS = 10

agent = nixl_agent(sys.argv[1], nixl_agent_config(enable_listen_thread=True, listen_port=0, backends=["UCX"]))
landing = np.zeros(LANDING_BYTES, np.uint8)
base = int(landing.ctypes.data)
agent.register_memory(agent.get_reg_descs([(base, LANDING_BYTES, 0, "")], "DRAM"))


def connect(what: dict[str, Any]) -> dict[str, Any]:
    """The handshake, once more each 300 ms: after a remote was forgotten, the first one may be lost."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        agent.fetch_remote_metadata(what["name"], what["host"], what["port"])
        again = time.monotonic() + 0.3
        while time.monotonic() < again:
            if agent.check_remote_metadata(what["name"]):
                return {}
            time.sleep(0.001)
    raise TimeoutError(f"no metadata from {what['host']}:{what['port']}")


def notify(what: dict[str, Any]) -> dict[str, Any]:
    for text in what["texts"]:
        agent.send_notif(what["name"], bytes.fromhex(text))
    return {}


def read(what: dict[str, Any]) -> dict[str, Any]:
    size = what["nbytes"] + 16
    landing[:size] = 0
    handle = agent.initialize_xfer(
        "READ",
        agent.get_xfer_descs([(base, size, 0)], "DRAM"),
        agent.get_xfer_descs([(what["address"], size, 0)], "DRAM"),
        what["name"],
        bytes.fromhex(what["text"]),
    )
    until = time.monotonic() + SECONDS
    state = agent.transfer(handle)
    while state == "PROC" and time.monotonic() < until:
        state = agent.check_xfer_state(handle)
    agent.release_xfer_handle(handle)
    if state != "DONE":
        raise RuntimeError(f"READ: {state}")
    return {
        "stamps": [int.from_bytes(landing[at : at + 8].tobytes(), "little") for at in (0, size - 8)],
        "sha256": hashlib.sha256(landing[8 : size - 8].tobytes()).hexdigest(),
    }


DOES = {"connect": connect, "notify": notify, "read": read}

say(event="ready")
for line in asked():
    try:
        say(**DOES[line["do"]](line))
    except Exception as error:  # whatever it is, the test wants to know
        say(error=f"{type(error).__name__}: {error}")
os._exit(0)  # NIXL's threads may outlive what they use
