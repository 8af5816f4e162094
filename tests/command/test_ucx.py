"""Engine ucx through the command, over UCX's tcp: transfers, faults, the choice between it and tcp, and its absence."""

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from exposition import Scrape
from ferry import Event, Result, Running, exporter, make_file, pull_arguments, run, sha256, worker
from hosts import Host, two_hosts
from shown import Session, run_by

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(autouse=True)
def module(command: Path) -> Path:
    path = command.parent.parent / "lib/tensorferry/libtensorferry_ucx.so"
    if not path.exists():
        pytest.skip("no UCX when this was built: engine ucx is NOT tested here")
    return path


def pull(command: Path, exported: Event, *more: str | Path, timeout: float = 60) -> Result:
    return run(command, *pull_arguments(exported, "--engine", "ucx", "--timeout", str(timeout), *more))


@pytest.mark.parametrize("nbytes", [0, 1, 65536, 65537, 9 << 20, 100 << 20])
def test_the_bytes_arrive(command: Path, tmp_path: Path, nbytes: int) -> None:
    source = make_file(tmp_path / "source", nbytes)
    with exporter(command, engine="ucx") as gateway:
        exported = gateway.ask(f"42 {source}")
        result = pull(command, exported)
        assert result.code == 0, result.err
        assert result.row()["transport"] == "ucx"
        assert result.row()["sha256"] == sha256(source)
        # Nothing of UCX's own on either output.
        assert result.err == ""
        assert gateway.next() == {"event": "released", "key": 42}
        gateway.end_input()
        assert gateway.wait() == 0


def test_eight_readers_end_one_lease(command: Path, tmp_path: Path) -> None:
    source = make_file(tmp_path / "source", 9 << 20)
    with exporter(command, "--readers", "8", engine="ucx") as gateway:
        exported = gateway.ask(f"1 {source}")
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: pull(command, exported), range(8)))
        for result in results:
            assert result.code == 0, result.err
            assert result.row()["sha256"] == sha256(source)
        assert gateway.next() == {"event": "released", "key": 1}
        assert pull(command, exported).row()["code"] == "lease_ended"


def test_cancelled_expired_and_gone(command: Path, tmp_path: Path) -> None:
    source = make_file(tmp_path / "source", 1000)
    with exporter(command, "--ttl", "1", engine="ucx") as gateway:
        cancelled = gateway.ask(f"7 {source}")
        gateway.say("cancel 7")
        assert gateway.next() == {"event": "cancelled", "key": 7}
        assert pull(command, cancelled).row()["code"] == "lease_ended"
        expired = gateway.ask(f"8 {source}")
        assert gateway.next() == {"event": "expired", "key": 8}
        assert pull(command, expired).row()["code"] == "lease_ended"
        gateway.signal(signal.SIGKILL)
        gateway.wait()
        gone = pull(command, expired).row()
        assert gone["code"] == "unreachable"
        assert gone["retryable"] is True


def test_a_stopped_gateway_times_out_and_serves_when_it_goes_on(command: Path, tmp_path: Path) -> None:
    source = make_file(tmp_path / "source", 9 << 20)
    with exporter(command, "--readers", "2", engine="ucx") as gateway:
        exported = gateway.ask(f"1 {source}")
        assert pull(command, exported).code == 0
        gateway.signal(signal.SIGSTOP)
        began = time.monotonic()
        assert pull(command, exported, timeout=1).row()["code"] == "timed_out"
        assert time.monotonic() - began < 30
        gateway.signal(signal.SIGCONT)
        assert pull(command, exported).row()["sha256"] == sha256(source)


def test_a_worker_killed_in_mid_pull_does_not_disturb_the_gateway(command: Path, tmp_path: Path) -> None:
    source = make_file(tmp_path / "source", 100 << 20)
    with exporter(command, "--readers", "1000", engine="ucx") as gateway:
        exported = gateway.ask(f"1 {source}")
        for delay in (0.02, 0.05, 0.08, 0.12, 0.2):
            arguments = pull_arguments(exported, "--engine", "ucx")
            with Running(command, *arguments) as victim:
                time.sleep(delay)  # anywhere in the life of a pull
                victim.signal(signal.SIGKILL)
                victim.wait()
        result = pull(command, exported)
        assert result.code == 0, result.err
        assert result.row()["sha256"] == sha256(source)


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


def test_send_to_a_worker(command: Path) -> None:
    with worker(command, "--engine", "ucx", "--metrics", "127.0.0.1:0") as running:
        send = ["send", "--json", "--to", running.listen, "--lane", "remote", "--engine", "ucx"]
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
        doctor = run(command, "doctor", "--json", "--engine", "tcp,ucx", "--peer", running.listen, *end(at_gateway))
        assert doctor.code == 0, doctor.err
        remote = doctor.row()["remote"]
        assert remote["transport"] == expected
        why = {
            (True, True): "both ends have an active RDMA device",
            (True, False): "the worker has no active RDMA device",
            (False, True): "the gateway has no active RDMA device",
            (False, False): "neither end has an active RDMA device",
        }
        assert remote["why"] == why[at_gateway, at_worker]
        assert [(c["transport"], c["verdict"]) for c in doctor.row()["checks"]][2:] == [("tcp", "ok"), ("ucx", "ok")]


def test_without_the_module_the_other_lanes_work(command: Path, tmp_path: Path) -> None:
    missing = ["--ucx-module", str(tmp_path)]
    with worker(command, "--engine", "tcp,ucx", *missing) as running:
        send = ["send", "--json", "--to", running.listen, "--lane", "remote"]
        result = run(command, *send, DATA / "chelsea.png")
        assert result.code == 0, result.err
        assert result.row()["transport"] == "tcp"
        running.signal(signal.SIGTERM)
        running.wait()
        assert running.process.stderr is not None
        said = running.process.stderr.read()
        assert "libtensorferry_ucx.so" in said
        assert "libucx0" in said
    alone = run(command, "export", "--listen", "127.0.0.1:0", "--engine", "ucx", *missing)
    assert alone.code == 1
    assert len(alone.err.splitlines()) == 1, alone.err
    doctor = run(command, "doctor", "--json", "--engine", "tcp,ucx", *missing)
    assert doctor.code == 0
    row = doctor.row()["checks"][-1]
    assert (row["transport"], row["verdict"]) == ("ucx", "off")
    assert "libucx0" in row["cause"]
    assert doctor.row()["remote"]["transport"] == "tcp"


def addresses(host: Host, family: str) -> tuple[str, str]:
    if family == "v4":
        return f"{host.v4}:0", host.network_v4
    return f"[{host.v6}]:0", host.network_v6


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_across_hosts_and_only_on_a_trusted_network(command: Path, tmp_path: Path, family: str) -> None:
    source = make_file(tmp_path / "source", 9 << 20)
    with two_hosts() as (gateway, other):
        listen, network = addresses(gateway, family)
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


def test_the_guide_shows_it(command: Path, tmp_path: Path) -> None:
    """UCX's tcp in place of the card that a host has which types these."""
    (block,) = run_by(__file__)
    with Session(command, tmp_path) as session:
        for line, _ in block.commands():
            start = line.endswith("&")
            printed = session.run(f"{line.removesuffix('&')} --trusted-network{' &' if start else ''}")
    assert "lane remote goes over tcp: neither end has an active RDMA device" in printed
