"""The command at either end of SMG's real peers: bytes arrive, and slots and leases come back."""

from pathlib import Path

import numpy as np
import pytest
from ferry import Event, Result, exporter, make_file, run, sha256
from peers import stock

DATA = Path(__file__).parent.parent / "data"
# Its agent is held to what the peers use.
OVER_TCP = ["env", "UCX_TLS=tcp"]


@pytest.fixture(autouse=True)
def nixl(command: Path, control: dict[int, stock.Pulled]) -> None:
    del control
    if "nixl" not in run(command, "export", "--help").out:
        pytest.skip("this command has no engine nixl: Tensorferry is NOT tested against SMG's peers")


@pytest.fixture
def with_lib() -> list[str | Path]:
    return ["--nixl-lib", stock.nixl_lib()]


def pull(command: Path, lease: stock.Lease, *args: str | Path) -> Result:
    return run(
        command,
        "pull",
        "--json",
        "--transport",
        "nixl",
        "--nixl-lib",
        stock.nixl_lib(),
        "--descriptor",
        lease.descriptor.hex(),
        "--nbytes",
        str(lease.nbytes),
        *args,
        prefix=OVER_TCP,
    )


def lease_of(exported: Event) -> stock.Lease:
    assert exported["event"] == "exported", exported
    assert exported["transport"] == "nixl"
    return stock.Lease.of(bytes.fromhex(exported["descriptor"]), exported["nbytes"])


def test_a_stock_worker_pulls_from_our_gateway(command: Path, tmp_path: Path, with_lib: list[str | Path]) -> None:
    with exporter(command, *with_lib, engine="nixl", prefix=OVER_TCP) as gateway, stock.Puller() as worker:
        for key, nbytes in enumerate(stock.SIZES):
            source = make_file(tmp_path / "source", nbytes, seed=key)
            lease = lease_of(gateway.ask(f"{key} {source}"))
            assert (lease.key, lease.nbytes) == (key, nbytes)
            assert f"{lease.host.decode()}:{lease.port}" == gateway.listen
            assert worker.pull(lease).get("sha256") == sha256(source)
            assert gateway.next() == {"event": "released", "key": key}
        gateway.end_input()
        assert gateway.wait() == 0


@pytest.mark.parametrize("key", [-(1 << 63), -1, (1 << 63) - 1])
def test_a_stock_worker_frees_extreme_keys(command: Path, tmp_path: Path, with_lib: list[str | Path], key: int) -> None:
    source = make_file(tmp_path / "source", 1000)
    with exporter(command, *with_lib, engine="nixl", prefix=OVER_TCP) as gateway, stock.Puller() as worker:
        lease = lease_of(gateway.ask(f"{key} {source}"))
        assert worker.pull(lease, room=key).get("sha256") == sha256(source)
        assert gateway.next() == {"event": "released", "key": key}


def test_our_worker_pulls_from_a_stock_gateway(command: Path, tmp_path: Path) -> None:
    with stock.Exporter(slots=1, slot_bytes=32 * stock.MIB) as gateway:
        for key, nbytes in enumerate(stock.SIZES):
            # There is one slot: that it is free again is seen by the next export.
            lease = gateway.export(key, nbytes)
            result = pull(command, lease, "--key", str(key), "--out", tmp_path / "got")
            assert result.code == 0, result.out + result.err
            row = result.row()
            assert set(row) == {"nbytes", "sha256", "seconds", "transport"}
            assert (row["nbytes"], row["transport"]) == (nbytes, "nixl")
            assert row["sha256"] == lease.sha256 == sha256(tmp_path / "got")
        gateway.export(99)


def test_our_worker_frees_the_slot_of_a_stock_gateway_when_it_gives_up(command: Path) -> None:
    with stock.Exporter(slots=1) as gateway:
        for key in (1, 2):
            result = pull(command, gateway.export(key), "--key", "77")
            assert result.code == 1
            assert result.row()["code"] == "key_mismatch"
            assert result.row()["retryable"] is False
        lease = gateway.export(3)
        assert pull(command, lease).row()["sha256"] == lease.sha256


@pytest.mark.parametrize(("lane", "transport"), [("remote", "nixl"), ("inline", "grpc"), ("shm", "file")])
def test_a_stock_encoder_takes_what_we_send(
    command: Path, tmp_path: Path, with_lib: list[str | Path], lane: str, transport: str
) -> None:
    array = tmp_path / "array.npy"
    np.save(array, np.arange(3 * 1024 * 768, dtype=np.float32).reshape(3, 1024, 768))
    before = sorted(Path("/dev/shm").glob("smg-*"))
    with stock.Encoder() as encoder:
        result = run(
            command,
            "send",
            "--json",
            *(DATA / "grace_hopper.jpg", DATA / "astronaut.png", array),
            *("--to", encoder.listen, "--engine", "nixl", "--assume-pull", *with_lib, "--lane", lane),
            prefix=OVER_TCP,
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
