"""JSON lines between a driver and the test that started it. The libraries' own output goes to standard error."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

_out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
_lock = threading.Lock()


def say(**what: Any) -> None:
    with _lock:
        _out.write(json.dumps(what) + "\n")
        _out.flush()


def asked() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)
