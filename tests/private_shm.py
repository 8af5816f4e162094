"""A /dev/shm of a test's own: a mount namespace, for processes to run in, whose files are seen from outside."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ferry import holder

NOBODY = 65534


class PrivateShm:
    def __init__(self, holder: int) -> None:
        self.path = Path(f"/proc/{holder}/root/dev/shm")
        # Before a command: it runs with this /dev/shm.
        self.prefix = ["nsenter", f"--mount=/proc/{holder}/ns/mnt"]
        # The same in a pid namespace of its own, where the command is process 1.
        self.as_pid_1 = [*self.prefix, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        # The same as another user. /mnt holds what that user has to see.
        self.as_nobody = [
            *self.prefix,
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
        ]
        self._mnt = Path(f"/proc/{holder}/root/mnt")

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir())

    def for_everyone(self, file: Path) -> Path:
        """A copy that every user can reach in there; where it lies in there."""
        shutil.copy(file, self._mnt / file.name)
        (self._mnt / file.name).chmod(0o755)
        return Path("/mnt") / file.name


@contextmanager
def private_shm(options: str = "mode=1777") -> Iterator[PrivateShm]:
    """Skips loudly where namespaces are not permitted; in CI that skip is a failure."""
    if os.geteuid() != 0:
        pytest.skip("a /dev/shm of its own needs root: files under /dev/shm are NOT tested here")
    script = 'mount -t tmpfs -o "$0" tmpfs /dev/shm && mount -t tmpfs tmpfs /mnt && echo ready && exec sleep infinity'
    with holder("unshare", "--mount", "--propagation", "private", "sh", "-c", script, options) as pid:
        yield PrivateShm(pid)
