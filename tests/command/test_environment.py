"""`worker` and `send` take from the environment what none of their flags says."""

import re
import signal
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from exposition import Scrape
from ferry import Result, Running, exporter, make_file, run, wait_until, worker
from private_shm import private_shm
from smg import Hold, StockWorker, encode, encode_request

MIB = 1 << 20


def variables(**values: str) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in values.items())]


def send(command: Path, to: str, file: Path, *args: str, **values: str) -> Result:
    return run(command, "send", "--json", "--to", to, file, *args, prefix=variables(**values))


@pytest.fixture
def tensor(tmp_path: Path) -> Path:
    path = tmp_path / "features.npy"
    np.save(path, np.frombuffer(make_file(tmp_path / "raw", MIB).read_bytes(), dtype=np.uint8))
    return path


def landing(command: Path, *args: str, **values: str) -> int:
    with Running(command, "worker", "--json", "--listen", "127.0.0.1:0", *args, prefix=variables(**values)) as running:
        landing_bytes: int = running.next()["landing_bytes"]
    return landing_bytes


def test_a_workers_landing_memory(command: Path) -> None:
    slots = {"SMG_RDMA_LANDING_SLOTS": "3", "SMG_RDMA_SLOT_BYTES": str(MIB)}
    assert landing(command, **slots) == 3 * MIB
    assert landing(command, "--landing-bytes", str(5 * MIB), **slots) == 5 * MIB


def test_the_largest_message_of_a_worker(command: Path, tensor: Path) -> None:
    limit = {"TOKENSPEED_GRPC_MAX_MESSAGE_BYTES": "100000"}
    with worker(command, prefix=variables(**limit)) as running:
        result = send(command, running.listen, tensor, "--lane", "inline")
        assert result.code == 1
        assert "max_inline_bytes of 100000" in result.err
    with worker(command, "--max-message-bytes", str(4 * MIB), prefix=variables(**limit)) as running:
        assert send(command, running.listen, tensor, "--lane", "inline").code == 0


def test_the_mode_of_a_sender(command: Path, tensor: Path) -> None:
    with worker(command) as running:

        def lane(*args: str, **values: str) -> str:
            result = send(command, running.listen, tensor, *args, **values)
            assert result.code == 0, result.err
            return str(result.row()["lane"])

        assert lane() == "shm"
        assert lane(SMG_MM_TENSOR_TRANSPORT="inline") == "inline"
        assert lane(SMG_MM_TENSOR_TRANSPORT="rdma") == "remote"
        assert lane(SMG_MM_PIXEL_RDMA="1") == "remote"
        assert lane(SMG_MM_PIXEL_RDMA="0") == "shm"
        assert lane(SMG_MM_TENSOR_TRANSPORT="rdma", TENSORFERRY_REMOTE_MIN_BYTES=str(2 * MIB)) == "shm"
        assert lane(SMG_MM_SHM_MIN_BYTES=str(2 * MIB)) == "remote"
        # A flag goes before.
        assert lane("--lane", "shm", SMG_MM_TENSOR_TRANSPORT="rdma") == "shm"


def test_a_mode_of_the_environment_falls_back_and_a_named_lane_does_not(command: Path, tensor: Path) -> None:
    with worker(command, "--lanes", "inline") as running:
        result = send(command, running.listen, tensor, SMG_MM_TENSOR_TRANSPORT="rdma")
        assert result.code == 0, result.err
        assert (result.row()["lane"], result.row()["reason"]) == ("inline", "not_advertised")
        strict = {"SMG_MM_TENSOR_TRANSPORT": "rdma", "TENSORFERRY_ALLOW_FALLBACK": "0"}
        assert send(command, running.listen, tensor, **strict).code == 1
        assert send(command, running.listen, tensor, "--lane", "remote", SMG_MM_TENSOR_TRANSPORT="shm").code == 1


def test_the_arena_of_a_sender(command: Path, tensor: Path) -> None:
    small = {"SMG_RDMA_POOL_SLOTS": "1", "SMG_RDMA_SLOT_BYTES": "65536"}
    with worker(command) as running:
        result = send(command, running.listen, tensor, "--lane", "remote", **small)
        assert result.code == 1
        assert "arena_full" in result.err
        assert (
            send(command, running.listen, tensor, "--lane", "remote", "--arena-bytes", str(8 * MIB), **small).code == 0
        )


def test_the_address_of_a_sender(command: Path, tensor: Path) -> None:
    with worker(command) as running, worker(command) as other:
        # Another's port.
        taken = {"SMG_RDMA_LISTEN_IP": "127.0.0.1", "SMG_RDMA_LISTEN_PORT": other.listen.rpartition(":")[2]}
        result = send(command, running.listen, tensor, "--lane", "remote", **taken)
        assert result.code == 1
        assert "address_in_use" in result.err
        assert send(command, running.listen, tensor, "--lane", "remote", "--listen", "127.0.0.1:0", **taken).code == 0


def test_a_worker_leaves_files_where_it_is_told_to(command: Path) -> None:
    with private_shm() as shm:
        file = shm.path / "smg-tokenspeed-7-1700000000000000000-0"
        prefix = [*shm.prefix, *variables(TOKENSPEED_UNLINK_MM_SHM_AFTER_READ="0")]
        with worker(command, prefix=prefix) as running:
            file.write_bytes(b"x" * MIB)
            request = encode_request([MIB])
            request.mm_inputs.items[0].encoder_input.shm.name = file.name
            request.mm_inputs.items[0].encoder_input.shm.nbytes = MIB
            for _ in range(2):
                encode(running.listen, request)
            assert file.exists()


def test_how_long_a_worker_holds_on(command: Path, tmp_path: Path) -> None:
    hold = {"SMG_RDMA_LANDING_WAIT_S": "0", "SMG_RDMA_READ_TIMEOUT_S": "1"}
    with exporter(command, engine="tcp") as gateway, worker(command, prefix=variables(**hold)) as running:
        exported = gateway.ask(f"42 {make_file(tmp_path / 'raw', MIB)}")
        request = encode_request([MIB], room=42)
        remote = request.mm_inputs.items[0].encoder_input.remote
        remote.transport = exported["transport"]
        remote.descriptor = bytes.fromhex(exported["descriptor"])
        remote.nbytes = MIB
        gateway.signal(signal.SIGSTOP)
        began = time.monotonic()
        # Half of this would be the limit otherwise, or a minute.
        with pytest.raises(grpc.RpcError):
            encode(running.listen, request, timeout=60)
        assert time.monotonic() - began < 20


def test_the_dtype_of_pictures(command: Path) -> None:
    picture = Path(__file__).parent.parent / "data" / "chelsea.png"
    with worker(command) as running:

        def dtype(*args: str, **values: str) -> str:
            result = send(command, running.listen, picture, *args, **values)
            assert result.code == 0, result.err
            assert result.row()["verified"] is True
            return str(result.row()["dtype"])

        common = {"SMG_TOKENSPEED_ENCODER_INPUT_DTYPE": "fp32"}
        assert dtype() == "bfloat16"
        assert dtype(**common) == "float32"
        assert dtype(SMG_TOKENSPEED_IMAGE_ENCODER_INPUT_DTYPE="half", **common) == "float16"
        assert dtype("--dtype", "uint8", **common) == "uint8"


def test_how_long_each_tensor_took_is_logged(command: Path, tensor: Path) -> None:
    with worker(command) as running:
        result = send(command, running.listen, tensor, SMG_LOG_MM_TIMING="1")
        assert result.code == 0
        line = rf"timing nbytes={MIB} lane=shm transport=local produce_ms=\d+\.\d+ rpc_ms=\d+\.\d+ file={tensor}\n"
        assert re.search(line, result.err), result.err
        assert "timing" not in send(command, running.listen, tensor).err


def test_when_a_lease_of_a_sender_ends(command: Path, tensor: Path) -> None:
    ttl = {"SMG_RDMA_LANDING_WAIT_S": "0", "SMG_RDMA_READ_TIMEOUT_S": "1", "SMG_RDMA_SLOT_TTL_S": "2"}
    hold = Hold()
    with (
        StockWorker(hold) as stock,
        Running(
            command,
            *("send", "--json", "--to", stock.listen, tensor, "--lane", "inline", "--metrics", "127.0.0.1:0"),
            prefix=variables(**ttl),
        ) as gateway,
    ):
        metrics = gateway.metrics_on_stderr()
        hold.wait()
        # Its default is three minutes and a half, and the test's limit is less.
        wait_until(
            lambda: Scrape(metrics).get("tensorferry_lease_ends_total", cause="expired") == 1, "the lease expires"
        )
        hold.let_go()
        assert gateway.wait() == 0


@pytest.mark.parametrize(
    ("variable", "value"), [("SMG_RDMA_SEND_MD", "1"), ("EPD_INGEST_OFFLOOP", "0"), ("EPD_PIXEL_SHM", "0")]
)
def test_a_worker_says_what_changes_nothing(command: Path, variable: str, value: str) -> None:
    with worker(command, prefix=variables(**{variable: value})) as running:
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert running.process.stderr is not None
        assert f"{variable}={value} changes nothing" in running.process.stderr.read()


def test_what_is_wrong_stops_both(command: Path, tensor: Path) -> None:
    result = send(command, "127.0.0.1:9", tensor, SMG_RDMA_POOL_SLOTS="none")
    assert result.code == 2
    assert 'SMG_RDMA_POOL_SLOTS="none"' in result.err
    prefix = variables(SMG_RDMA_LANDING_SLOTS="0")
    result = run(command, "worker", "--listen", "127.0.0.1:0", prefix=prefix)
    assert result.code == 2
    assert 'SMG_RDMA_LANDING_SLOTS="0"' in result.err
    # Not a worker's.
    with worker(command, prefix=variables(SMG_RDMA_POOL_SLOTS="none")):
        pass
