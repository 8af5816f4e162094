"""A machine of a test's own: a bare Debian 12 whose systemd is process 1 of namespaces, gone when the test is over."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ferry import holder, wait_until

TOP = Path(__file__).parents[1]
PROXIES = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "no_proxy")]
# apt asks nothing, and brings no more than it must.
APT = """
APT::Get::Assume-Yes "true";
APT::Install-Recommends "false";
Acquire::Retries "3";
"""
# In memory, with what a machine has mounted, and a cgroup: becomes process 1.
BOOT = r"""
base=$1 group=$2
mkdir "$group" && echo $$ >"$group/cgroup.procs"
exec unshare --cgroup sh -euc '
root=/mnt
mount -t tmpfs -o mode=755 tmpfs "$root"
cp -a "$1/." "$root"
cp --dereference /etc/resolv.conf /etc/hosts "$root/etc/"
# It would take the locks of apt.
ln -s /dev/null "$root/etc/systemd/system/apt-daily.timer"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in full null random tty urandom zero; do
  touch "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
for folder in dev/shm tmp; do mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"; done
mount -t tmpfs -o mode=755 tmpfs "$root/run"
cd "$root"
pivot_root . mnt
umount -l /mnt
echo ready
exec env -i container=tensorferry PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd >/dev/null 2>&1
' sh "$base"
"""


class Machine:
    def __init__(self, init: int) -> None:
        self._init = init
        # Its files, seen from outside.
        self.root = Path(f"/proc/{init}/root")

    def run(
        self, *command: str | Path, user: str = "root", network: bool = False, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Ends with the command's output. Its network is a loopback of its own, or else this machine's."""
        enter = [
            "nsenter",
            f"--target={self._init}",
            "--root",
            "--wd",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--cgroup",
        ]
        proxies = [f"{name}={os.environ[name]}" for name in PROXIES]
        done = subprocess.run(
            [
                *enter,
                *([] if network else ["--net"]),
                *["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"],
                *(proxies if network else []),
                *([] if user == "root" else ["runuser", f"--user={user}", "--"]),
                *map(str, command),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"{shlex.join(map(str, command))}\n{done.stdout}{done.stderr}"
        return done

    def script(self, text: str, *arguments: str, user: str = "root", network: bool = False) -> str:
        return self.run("bash", "-euc", text, "script", *arguments, user=user, network=network).stdout

    def apt(self, *arguments: str | Path) -> str:
        return self.run("apt-get", *arguments, network=True).stdout

    def copy(self, source: Path, name: str) -> Path:
        """For everyone to read; where it lies in there."""
        target = self.root / "opt" / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        return Path("/opt") / name


def require_root() -> None:
    """Skips loudly where no machine can be made; in CI that skip is a failure."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("a machine of its own needs root and mmdebstrap: packages and the service are NOT tested here")


def _unified_cgroup() -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind = line.split()[:3]
        if kind == "cgroup2":
            own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
            return Path(mount) / own.removeprefix("0::/")
    pytest.skip("no cgroup2 is mounted here, which systemd needs: packages and the service are NOT tested here")


def _remove_cgroup(group: Path) -> None:
    wait_until(lambda: "populated 0" in (group / "cgroup.events").read_text(), f"{group} is empty")
    for folder, _, _ in os.walk(group, topdown=False):
        Path(folder).rmdir()


@contextmanager
def _booted(base: Path, group: Path) -> Iterator[int]:
    """The pid of its systemd."""
    spaces = ["--mount", "--pid", "--uts", "--ipc", "--net"]
    namespaces = ["--fork", "--kill-child", "--propagation=private"]
    try:
        with holder("unshare", *spaces, *namespaces, "sh", "-euc", BOOT, "sh", base, group) as parent:
            yield int(Path(f"/proc/{parent}/task/{parent}/children").read_text())
    finally:
        # With its parent it has ended, and with it every process in there.
        _remove_cgroup(group)


@contextmanager
def machine() -> Iterator[Machine]:
    """One that has booted."""
    require_root()
    made = subprocess.run([TOP / "ci" / "bare_base.sh", "systemd"], check=True, stdout=subprocess.PIPE, text=True)
    group = _unified_cgroup() / f"tensorferry-{os.getpid()}"
    with _booted(Path(made.stdout.strip()), group) as init:
        up = Machine(init)
        (up.root / "etc/apt/apt.conf.d/90tests").write_text(APT)
        wait_until(lambda: up.run("systemctl", "is-active", "multi-user.target", check=False).returncode == 0, "up")
        yield up
