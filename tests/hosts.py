"""Two hosts on one machine: network namespaces joined by a veth pair, made for one test and removed after it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from ferry import wait_until


@dataclass
class Host:
    name: str
    v4: str
    v6: str
    network_v4: str = "10.83.7.0/24"
    network_v6: str = "fd83:7::/64"

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]

    def addresses(self, family: str) -> tuple[str, str]:
        """Where to listen, and its network."""
        if family == "v4":
            return f"{self.v4}:0", self.network_v4
        return f"[{self.v6}]:0", self.network_v6


def _ip(*args: str) -> str:
    return subprocess.run(["ip", *args], check=True, capture_output=True, text=True).stdout


def require_namespaces() -> None:
    """Skips loudly where namespaces are not permitted; in CI that skip is a failure."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2: two hosts are NOT tested here")


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    require_namespaces()
    tag = f"tf{os.getpid() % 100000}"
    a = Host(f"{tag}a", "10.83.7.1", "fd83:7::1")
    b = Host(f"{tag}b", "10.83.7.2", "fd83:7::2")
    made = []
    try:
        for host in (a, b):
            _ip("netns", "add", host.name)
            made.append(host)
            _ip("-n", host.name, "link", "set", "lo", "up")
        _ip(
            "link",
            "add",
            f"{tag}va",
            "netns",
            a.name,
            "type",
            "veth",
            "peer",
            f"{tag}vb",
            "netns",
            b.name,
        )
        for host, end in ((a, f"{tag}va"), (b, f"{tag}vb")):
            _ip("-n", host.name, "addr", "add", f"{host.v4}/24", "dev", end)
            _ip("-n", host.name, "addr", "add", f"{host.v6}/64", "dev", end, "nodad")
            _ip("-n", host.name, "link", "set", end, "up")
        for host, end in ((a, f"{tag}va"), (b, f"{tag}vb")):
            # UCX looks once, when it starts, which interfaces carry.
            wait_until(lambda host=host, end=end: "state UP" in _ip("-n", host.name, "link", "show", "dev", end), end)  # type: ignore[misc]
        yield a, b
    finally:
        for host in made:
            _ip("netns", "del", host.name)


def cut(host: Host) -> None:
    """Takes the host off the network: nothing answers any more, not even with a refusal."""
    for line in _ip("-n", host.name, "-o", "link").splitlines():
        name = line.split(":")[1].strip().partition("@")[0]
        if name != "lo":
            _ip("-n", host.name, "link", "set", name, "down")


def drop_answers(host: Host, port: int) -> None:
    """A firewall: whoever connects to this port of the host hears nothing."""
    _ip("-n", host.name, "rule", "add", "pref", "0", "ipproto", "tcp", "sport", str(port), "blackhole")
    # Behind that, so that it also counts for what the host has of its own.
    _ip("-n", host.name, "rule", "add", "pref", "1", "lookup", "local")
    _ip("-n", host.name, "rule", "del", "pref", "0", "lookup", "local")
