"""Engine ucx through the command, over UCX's tcp: what is its own, the choice between it and tcp, and its absence.

What all engines do is tested of it, too, by test_export_pull.py.
"""

import re
import signal
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
from doctor import doctor
from exposition import Scrape
from ferry import (
    Event,
    Result,
    exporter,
    make_file,
    pull_arguments,
    run,
    sha256,
    worker,
)
from hosts import two_hosts
from shown import Session, run_by

pytestmark = [pytest.mark.plain_build, pytest.mark.usefixtures("ucx_module")]  # as test_export_pull.py says
DATA = Path(__file__).parent.parent / "data"
# Asked for, and read by the worker itself, which UCX emulates here.
BOTH = pytest.mark.parametrize("get", ["off", "emulated"])


def pull(command: Path, exported: Event, *more: str | Path, timeout: float = 60) -> Result:
    return run(command, *pull_arguments(exported, "--engine", "ucx", "--timeout", str(timeout), *more))


@BOTH
def test_a_descriptor_says_whether_it_can_be_read(command: Path, tmp_path: Path, get: str) -> None:
    with exporter(command, "--ucx-get", get, engine="ucx") as gateway:
        exported = gateway.ask(f"42 {make_file(tmp_path / 'source', 1000)}")
    inspected = run(command, "inspect", "--json", exported["descriptor"]).row()
    assert inspected["ways"][0].get("get", False) == (get != "off")


@pytest.mark.parametrize(("at_gateway", "at_worker"), [("off", "emulated"), ("emulated", "off")])
def test_where_one_end_does_not_get_the_worker_asks(
    command: Path, tmp_path: Path, at_gateway: str, at_worker: str
) -> None:
    source = make_file(tmp_path / "source", 9 << 20)
    with exporter(command, "--ucx-get", at_gateway, engine="ucx") as gateway:
        result = pull(command, gateway.ask(f"1 {source}"), "--ucx-get", at_worker)
        assert result.code == 0, result.err
        assert result.row()["sha256"] == sha256(source)
        assert gateway.next() == {"event": "released", "key": 1}


def test_get_is_for_cards_that_read(command: Path) -> None:
    refused = run(command, "export", "--listen", "127.0.0.1:0", "--engine", "ucx", "--ucx-get", "on")
    assert refused.code == 1
    assert "--ucx-get emulated" in refused.err
    assert len(refused.err.splitlines()) == 1, refused.err
    assert run(command, "export", "--listen", "127.0.0.1:0", "--engine", "ucx", "--ucx-get", "perhaps").code == 2


@BOTH
def test_landing_memory_that_is_full_delays_and_loses_nothing(command: Path, tmp_path: Path, get: str) -> None:
    def array(name: str, nbytes: int) -> Path:
        np.save(tmp_path / name, np.arange(nbytes // 4, dtype=np.uint32))
        return tmp_path / f"{name}.npy"

    files = [array(str(i), 3 << 20) for i in range(8)]
    options = ["--engine", "ucx", "--ucx-get", get]
    with worker(command, "--landing-bytes", str(4 << 20), *options) as running:
        send = ["send", "--json", "--to", running.listen, "--lane", "remote", *options, "--concurrency", "8"]
        result = run(command, *send, *files)
        assert result.code == 0, result.err
        assert [row["transport"] for row in result.rows()] == ["ucx"] * 8
        assert all(row["verified"] for row in result.rows())
        refused = run(command, *send, array("large", 9 << 20))
        assert refused.code == 1
        assert "landing" in refused.out + refused.err


def test_a_stranger_at_the_port_disturbs_nobody(command: Path, tmp_path: Path) -> None:
    """A port scanner, a browser. UCX 1.13 ends the process for other bytes: docs/ucx.md says so."""
    source = make_file(tmp_path / "source", 1000)
    with exporter(command, engine="ucx") as gateway:
        exported = gateway.ask(f"1 {source}")
        host, port = gateway.listen.rsplit(":", 1)
        for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(garbage)
        assert pull(command, exported).row()["sha256"] == sha256(source)


@BOTH
def test_send_to_a_worker(command: Path, get: str) -> None:
    with worker(command, "--engine", "ucx", "--ucx-get", get, "--metrics", "127.0.0.1:0") as running:
        send = ["send", "--json", "--to", running.listen, "--lane", "remote", "--engine", "ucx", "--ucx-get", get]
        result = run(command, *send, DATA / "chelsea.png")
        assert result.code == 0, result.err
        assert result.row()["transport"] == "ucx"
        assert result.row()["verified"] is True
        made = Scrape(running.ready["metrics"])
        assert made.get("tensorferry_handshakes_total", end="worker", transport="ucx", result="ok") == 1


def fake_device(folder: Path) -> Path:
    port = folder / "mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    return folder


@pytest.mark.parametrize(("at_gateway", "at_worker"), [(False, False), (True, False), (False, True), (True, True)])
def test_ucx_is_taken_where_both_ends_have_a_device(
    command: Path, tmp_path: Path, at_gateway: bool, at_worker: bool
) -> None:
    device = fake_device(tmp_path / "rdma")
    none = tmp_path / "none"

    def end(has: bool) -> list[str | Path]:
        # A device that is not there carries nothing: UCX goes over tcp here all the same.
        return ["--rdma-devices", device if has else none, "--ucx-transports", "tcp"]

    expected = "ucx" if at_gateway and at_worker else "tcp"
    with worker(command, "--engine", "tcp,ucx", *end(at_worker)) as running:
        send = ["send", "--json", "--to", running.listen, "--lane", "remote", "--engine", "tcp,ucx"]
        result = run(command, *send, *end(at_gateway), DATA / "chelsea.png")
        assert result.code == 0, result.err
        assert result.row()["transport"] == expected
        report = doctor(command, "--engine", "tcp,ucx", "--peer", running.listen, *end(at_gateway))
        why = {
            (True, True): "both ends have an active RDMA device",
            (True, False): "the worker has no active RDMA device",
            (False, True): "the gateway has no active RDMA device",
            (False, False): "neither end has an active RDMA device",
        }
        devices = [("none", "mlx5_0:1")[has] for has in (at_gateway, at_worker)]
        assert report.finding("remote_choice", "ucx")["evidence"] == (
            f"lane remote goes over {expected}: {why[at_gateway, at_worker]}; "
            f"active RDMA devices: {devices[0]} here, {devices[1]} at the worker"
        )
        for transport in ("tcp", "ucx"):
            assert report.finding("transfer", transport)["verdict"] == "ok"


def only_line(err: str, verb: str) -> str:
    """What is said of a module that is not there, and nothing else."""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith(f"tensorferry {verb}: ucx: there is no "), err
    assert "libtensorferry_ucx.so" in lines[0]
    assert "libucx0" in lines[0]
    return lines[0]


def test_without_the_module_the_other_transports_serve(command: Path, tmp_path: Path) -> None:
    missing = ["--ucx-module", str(tmp_path)]
    with worker(command, "--engine", "tcp,ucx", *missing) as running:
        send = ["send", "--json", "--to", running.listen, "--lane", "remote"]
        result = run(command, *send, "--engine", "local,tcp,ucx", *missing, DATA / "chelsea.png")
        assert result.code == 0, result.err
        assert result.row()["transport"] == "tcp"
        only_line(result.err, "send")
        alone = run(command, *send, "--engine", "ucx", *missing, DATA / "chelsea.png")
        assert alone.code == 1
        only_line(alone.err, "send")
        running.signal(signal.SIGTERM)
        running.wait()
        assert running.process.stderr is not None
        only_line(running.process.stderr.read(), "worker")
    source = make_file(tmp_path / "source", 1000)
    with exporter(command, *missing, engine="tcp,ucx") as gateway:
        result = pull(command, gateway.ask(f"1 {source}"), "--engine", "tcp,ucx", *missing)
        assert result.code == 0, result.err
        assert result.row()["transport"] == "tcp"
        only_line(result.err, "pull")
        assert gateway.next() == {"event": "released", "key": 1}
        gateway.end_input()
        assert gateway.wait() == 0
        assert gateway.process.stderr is not None
        only_line(gateway.process.stderr.read(), "export")


def test_the_doctor_tells_what_carries_a_tensor(command: Path, ucx_module: Path) -> None:
    with worker(command, "--engine", "tcp,ucx") as running:
        report = doctor(command, "--engine", "tcp,ucx", "--peer", running.listen)
    # To the peer, and to a worker of its own.
    for direction in ("send", "receive"):
        evidence = report.finding("transfer", "ucx", direction)["evidence"]
        assert "GB/s" in evidence
        assert evidence.endswith("carried by UCX over tcp/lo")
    library = report.finding("ucx_library", "ucx")
    assert library["verdict"] == "ok"
    for needle in (str(ucx_module), "of this build", "UCX 1.", "all symbols", "told to use tcp"):
        assert needle in library["evidence"]


def test_a_device_that_ucx_cannot_open(command: Path, tmp_path: Path) -> None:
    """One that is only seen: its driver is not in this container."""
    report = doctor(command, "--engine", "tcp,ucx", "--rdma-devices", fake_device(tmp_path / "rdma"))
    finding = report.finding("transfer", "ucx")
    assert finding["verdict"] == "off"
    assert "transports ib on devices mlx5_0:1" in finding["cause"]
    assert "ucx_info -d" in finding["fix"]
    assert report.verdict("tcp", "send") == "ok"


def test_the_doctor_without_the_module(command: Path, tmp_path: Path) -> None:
    missing = ["--ucx-module", str(tmp_path)]
    report = doctor(command, "--engine", "tcp,ucx", *missing, "--require", "remote")
    # tcp is of the same lane.
    assert report.code == 0
    finding = report.finding("ucx_library", "ucx")
    assert finding["verdict"] == "off"
    assert str(tmp_path) in finding["cause"]
    assert "libucx0" in finding["fix"]
    assert "goes over tcp" in report.finding("remote_choice", "tcp")["evidence"]
    (tmp_path / "libtensorferry_ucx.so").write_text("not a library\n")
    assert "cannot load" in doctor(command, "--engine", "ucx", *missing).finding("ucx_library", "ucx")["cause"]


def test_devices_that_lane_remote_does_not_use(command: Path, tmp_path: Path) -> None:
    device: list[str | Path] = ["--rdma-devices", fake_device(tmp_path / "rdma")]
    missing = ["--ucx-module", str(tmp_path)]
    with worker(command, "--engine", "tcp,ucx", *device, *missing) as running:
        report = doctor(command, "--engine", "tcp,ucx", "--peer", running.listen, *device, "--ucx-transports", "tcp")
        finding = report.finding("remote_choice", "tcp")
        assert finding["verdict"] == "degraded"
        assert "the worker has no ucx, though both have RDMA devices" in finding["cause"]
        # The worker was told to offer it.
        engines = report.finding("worker_engines", "ucx")
        assert engines["verdict"] == "off"
        assert "libtensorferry_ucx.so" in engines["cause"]


def test_a_log_that_is_appended_to_is_kept(command: Path, tmp_path: Path) -> None:
    """UCX empties the file that it is told to write to."""
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("a") as out:
        subprocess.run([command, "doctor", "--engine", "ucx"], stdout=out, stderr=out, check=True)
    assert log.read_text().startswith("before\n")


def test_export_alone_needs_the_module(command: Path, tmp_path: Path) -> None:
    missing = ["--ucx-module", str(tmp_path)]
    alone = run(command, "export", "--listen", "127.0.0.1:0", "--engine", "ucx", *missing)
    assert alone.code == 1
    only_line(alone.err, "export")


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_across_hosts_and_only_on_a_trusted_network(command: Path, tmp_path: Path, family: str) -> None:
    source = make_file(tmp_path / "source", 9 << 20)
    with two_hosts() as (gateway, other):
        listen, network = gateway.addresses(family)
        refused = run(command, "export", "--listen", listen, "--engine", "ucx", prefix=gateway.prefix)
        assert refused.code == 1
        assert "--trusted-network" in refused.err
        assert "write this process's memory" in refused.err
        trusted = ["--trusted-network", "--ucx-port-range", "30000-30999"]
        with exporter(command, "--listen", listen, *trusted, engine="ucx", prefix=gateway.prefix) as far:
            exported = far.ask(f"1 {source}")
            arguments = pull_arguments(exported, "--engine", "ucx", "--timeout", "60", "--allow", network)
            untrusting = run(command, *arguments, prefix=other.prefix)
            assert untrusting.row()["code"] == "not_allowed"
            result = run(command, *arguments, *trusted, prefix=other.prefix)
            assert result.code == 0, result.err
            assert result.row()["sha256"] == sha256(source)


def test_the_doctor_on_networks_that_are_trusted_or_not(command: Path) -> None:
    with two_hosts() as (gateway, other):
        args = ["--engine", "tcp,ucx", "--listen", f"{other.v4}:0", "--allow", gateway.network_v4, "--trusted-network"]
        with worker(command, *args, prefix=other.prefix) as running:
            ask = ["--engine", "tcp,ucx", "--peer", running.listen]
            refused = doctor(command, *ask, prefix=gateway.prefix).finding("transfer", "ucx")
            assert refused["verdict"] == "off"
            assert "--trusted-network" in refused["cause"]
            assert "tcp" in refused["fix"]
            sent = doctor(command, *ask, "--trusted-network", prefix=gateway.prefix).finding("transfer", "ucx")
            assert sent["verdict"] == "ok", sent
            assert re.search(r"carried by UCX over tcp/\w+$", sent["evidence"])


def test_the_guide_shows_it(command: Path, tmp_path: Path) -> None:
    """UCX's tcp in place of the card that a host has which types these."""
    (block,) = run_by(__file__)
    with Session(command, tmp_path) as session:
        for line, _ in block.commands():
            start = line.endswith("&")
            printed = session.run(f"{line.removesuffix('&')} --trusted-network{' &' if start else ''}")
    assert "lane remote goes over tcp: neither end has an active RDMA device" in printed
