"""The command at either end of SMG's real peers: bytes arrive, and slots and leases come back."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from ferry import Running, make_file, run, sha256
from peers import ours, stock

pytestmark = pytest.mark.usefixtures("nixl")

DATA = Path(__file__).parent.parent / "data"


def test_a_stock_worker_pulls_from_our_gateway(command: Path, tmp_path: Path) -> None:
    with ours.exporter(command) as gateway, stock.Puller() as worker:
        for key, nbytes in enumerate(stock.SIZES):
            source = make_file(tmp_path / "source", nbytes, seed=key)
            lease = ours.lease_of(gateway.ask(f"{key} {source}"))
            assert (lease.key, lease.nbytes) == (key, nbytes)
            assert f"{lease.host.decode()}:{lease.port}" == gateway.listen
            assert worker.pull(lease).get("sha256") == sha256(source)
            assert gateway.next() == {"event": "released", "key": key}
        gateway.end_input()
        assert gateway.wait() == 0


@pytest.mark.parametrize("key", [-(1 << 63), -1, (1 << 63) - 1])
def test_a_stock_worker_frees_extreme_keys(command: Path, tmp_path: Path, key: int) -> None:
    source = make_file(tmp_path / "source", 1000)
    with ours.exporter(command) as gateway, stock.Puller() as worker:
        lease = ours.lease_of(gateway.ask(f"{key} {source}"))
        assert worker.pull(lease, room=key).get("sha256") == sha256(source)
        assert gateway.next() == {"event": "released", "key": key}


def test_our_worker_pulls_from_a_stock_gateway(command: Path, tmp_path: Path) -> None:
    with stock.Exporter(slots=1, slot_bytes=32 * stock.MIB) as gateway:
        for key, nbytes in enumerate(stock.SIZES):
            # There is one slot: that it is free again is seen by the next export.
            lease = gateway.export(key, nbytes)
            result = ours.pull(command, lease, "--key", str(key), "--out", tmp_path / "got")
            assert result.code == 0, result.out + result.err
            row = result.row()
            assert set(row) == {"nbytes", "sha256", "seconds", "transport"}
            assert (row["nbytes"], row["transport"]) == (nbytes, "nixl")
            assert row["sha256"] == lease.sha256 == sha256(tmp_path / "got")
        gateway.export(99)


def test_our_worker_frees_the_slot_of_a_stock_gateway_when_it_gives_up(command: Path) -> None:
    with stock.Exporter(slots=1) as gateway:
        for key in (1, 2):
            result = ours.pull(command, gateway.export(key), "--key", "77")
            assert result.code == 1
            assert result.row()["code"] == "key_mismatch"
            assert result.row()["retryable"] is False
        lease = gateway.export(3)
        assert ours.pull(command, lease).row()["sha256"] == lease.sha256


@pytest.mark.parametrize(("lane", "transport"), [("remote", "nixl"), ("inline", "grpc"), ("shm", "file")])
def test_a_stock_encoder_takes_what_we_send(command: Path, tmp_path: Path, lane: str, transport: str) -> None:
    array = tmp_path / "array.npy"
    np.save(array, np.arange(3 * 1024 * 768, dtype=np.float32).reshape(3, 1024, 768))
    before = sorted(Path("/dev/shm").glob("smg-*"))
    with stock.Encoder() as encoder:
        result = run(
            command,
            "send",
            "--json",
            *(DATA / "grace_hopper.jpg", DATA / "astronaut.png", array),
            *("--to", encoder.listen, "--engine", "nixl", "--assume-pull", *ours.with_lib(), "--lane", lane),
            prefix=ours.OVER_TCP,
        )
        assert result.code == 0, result.out + result.err
        rows = result.rows()
        assert len(rows) == 3
        for row in rows:
            assert row["lane"] == lane
            assert row["transport"] == transport
            assert row["verified"] is None, "a stock encoder tells no digest"
            received = encoder.next()
            assert {name: received[name] for name in ("shape", "dtype", "sha256")} == {
                name: row[name] for name in ("shape", "dtype", "sha256")
            }
    assert sorted(Path("/dev/shm").glob("smg-*")) == before


def test_a_stock_worker_takes_another_lane_when_the_agent_was_restarted(command: Path, tmp_path: Path) -> None:
    """It never reads from a second one (fault 14), which we know before it is asked to."""
    array = tmp_path / "array.npy"
    np.save(array, np.arange(1 << 18, dtype=np.uint8))
    arguments = ["--assume-pull", "--allow-fallback", "--repeat", "100000", "--arena-bytes", str(64 << 20)]
    with stock.Encoder() as encoder:
        with Running(command, *ours.send_arguments(encoder.listen, array, *arguments), prefix=ours.OVER_TCP) as send:
            assert send.next()["transport"] == "nixl"
            os.kill(ours.agent_of(send.pid), signal.SIGKILL)
            row = send.until(lambda row: row["reason"] == "agent_restarted")
            assert row["transport"] == "grpc"
            received = encoder.next()
            while received["sha256"] != row["sha256"]:
                received = encoder.next()
