"""Many threads that pull, keep views for a while, and drop them in any order and any thread."""

import ctypes
import gc
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorferry import Error, Exporter, Puller

THREADS = 16
PULLS = 1000
SIZES = [0, 1, 4096, 65_536, 300_000]
KEPT = 64  # that each thread puts where any other may drop it

_libc = ctypes.CDLL(None)


def resident_bytes() -> int:
    gc.collect()
    _libc.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(400)
def test_16_threads_pull_1000_times_and_memory_comes_back(tmp_path: Path) -> None:
    with (
        Exporter(
            arena_bytes=256 << 20, listen="127.0.0.1:0", local_socket=str(tmp_path / "s"), max_claim_percent=100
        ) as gateway,
        Puller(landing_bytes=256 << 20) as worker,
    ):
        gateway.wait_prefaulted()
        contents = [bytes([i]) * size for i, size in enumerate(SIZES)]
        leases = [gateway.export(content) for content in contents]
        handles = [[lease.handle(shm=shm) for shm in (True, False)] for lease in leases]
        used = gateway.stats().used_bytes
        kept: list[Any] = [None] * KEPT
        failures: list[BaseException] = []

        def work(seed: int, pulls: int) -> None:
            chance = random.Random(seed)
            try:
                for _ in range(pulls):
                    which = chance.randrange(len(SIZES))
                    handle = chance.choice(handles[which])
                    form = chance.randrange(4)
                    if form == 3:
                        into = bytearray(SIZES[which])
                        worker.pull_into(handle, into, timeout=60)
                        got: Any = into
                    else:
                        view = worker.pull(handle, timeout=60)
                        got = view if form == 0 else memoryview(view) if form == 1 else np.from_dlpack(view)
                        del view
                    data = memoryview(got)
                    assert data.nbytes == SIZES[which]
                    assert not data.nbytes or data[0] == data[-1] == which
                    del data
                    kept[chance.randrange(KEPT)] = got
                    del got
                    if chance.random() < 0.1:
                        kept[chance.randrange(KEPT)] = None
            except BaseException as error:
                failures.append(error)

        def run(pulls: int) -> None:
            threads = [threading.Thread(target=work, args=(seed, pulls)) for seed in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failures, failures[0]
            kept[:] = [None] * KEPT

        run(PULLS // 10)  # what allocators, connections and threads keep
        # The landing memory is touched in the background.
        base = 0
        while base != (base := resident_bytes()):
            time.sleep(0.2)
        run(PULLS)
        assert worker.stats().landing_used_bytes == 0
        assert worker.stats().waiting_for_landing == 0
        for lease in leases:
            lease.close()
        until = time.monotonic() + 20
        while gateway.stats().used_bytes and time.monotonic() < until:
            time.sleep(0.01)
        assert gateway.stats().used_bytes == 0
        assert used > 0
        with pytest.raises(Error):
            worker.pull(handles[0][0])
        grown = resident_bytes() - base
        assert grown < 16 << 20, f"{grown} bytes more than before {THREADS * PULLS} pulls"
