"""What lives as long as the process: the end of what is still open, and the way of log lines to `logging`."""

import atexit
import logging
import threading
import weakref
from contextlib import suppress
from typing import Protocol

from tensorferry import _core

logger = logging.getLogger("tensorferry")


class Closable(Protocol):
    def close(self) -> None: ...


_open: "weakref.WeakSet[Closable]" = weakref.WeakSet()
_lock = threading.Lock()
_forwarder: threading.Thread | None = None


def _forward_log() -> None:
    while (line := _core.next_log()) is not None:
        logger.log(*line)


def opened(what: Closable) -> None:
    """Closes it at exit, before the interpreter takes the GIL from threads that call back."""
    global _forwarder
    with _lock:
        _open.add(what)
        if _forwarder is None:
            _forwarder = threading.Thread(target=_forward_log, name="tensorferry-log", daemon=True)
            _forwarder.start()


@atexit.register
def _close_all() -> None:
    with suppress(RuntimeError):  # in a child made by fork there is nothing to close
        _core.require_own_process()
        for what in list(_open):
            what.close()
        _core.stop_log()
        if _forwarder is not None:
            _forwarder.join(timeout=5)
