"""Mooncake's transfer engine as a gateway: memory that it has registered, read by whoever knows the address."""

import os
import sys
import time

import numpy as np
from mooncake.engine import TransferEngine
from peers import stock

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = np.zeros(int(sys.argv[1]), np.uint8)
assert engine.register_memory(memory.ctypes.data, memory.nbytes) == 0
descriptor = f"127.0.0.1:{engine.get_rpc_port()} {memory.ctypes.data}".encode().hex()


def say(line: str) -> None:
    out.write(line + "\n")
    out.flush()


say("ready")
fill_cpu = 0.0
for line in sys.stdin:
    words = line.split()
    if words[0] == "fill":
        began = time.thread_time()
        key, nbytes = int(words[1]), int(words[2])
        memory[:nbytes] = np.frombuffer(stock.pattern(key, nbytes), np.uint8)
        fill_cpu = time.thread_time() - began
        say("filled")
    else:
        # The bytes lie where the engine wants them, and an address is all that a reader needs.
        say(f"ok {descriptor} 0 {time.monotonic_ns()} {fill_cpu:.9f}")
os._exit(0)
