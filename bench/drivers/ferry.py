"""Our own Python package fetches."""

from typing import Any

import tensorferry
from bench.drivers import worker

job = worker.job()
puller = tensorferry.Puller(landing_bytes=max(nbytes for nbytes, *_ in job.sizes) + (1 << 20))


def fetch(descriptor: bytes, nbytes: int, key: int) -> tuple[Any, str]:
    del key
    view = puller.pull(tensorferry.Handle("tensorferry", descriptor, nbytes))
    return memoryview(view), view.transport


worker.run(job, fetch)
