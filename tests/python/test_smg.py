"""Ours in place of SMG's worker classes: in its own servicer, against its own exporter and ours."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ferry import exporter as command_exporter
from ferry import make_file, run, sha256, stop
from peers import stock

import tensorferry
from tensorferry import Error, smg

SITE = Path(tensorferry.__file__).parents[1]
DATA = Path(__file__).parents[1] / "data"
OVER_TCP = ["env", "UCX_TLS=tcp"]
DROP_IN = {"DROP_IN": str(SITE)}


class Encoder(stock.Encoder):
    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__({**DROP_IN, **(env or {})})


class Puller(stock.Puller):
    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__({**DROP_IN, **(env or {})})


@pytest.fixture(scope="module", autouse=True)
def peers() -> None:
    missing = stock.missing()
    if missing is not None:
        pytest.skip(f"{missing} is missing: SMG's real peers are NOT tested here; ./dev setup brings them")


def shm_file(content: bytes) -> Path:
    file = Path("/dev/shm") / f"smg-tokenspeed-{os.getpid()}-{time.time_ns()}-0"
    file.write_bytes(content)
    file.chmod(0o600)
    return file


def test_the_stock_encoder_takes_every_lane_through_ours() -> None:
    content = stock.pattern(7, 3000)
    file = shm_file(content)
    shm = {"name": file.name, "nbytes": len(content)}
    with stock.Exporter(slots=1) as gateway, Encoder() as encoder, stock.Caller(encoder.listen) as caller:
        assert encoder.ready["up"] is True
        for _ in range(2):  # one slot: the first was freed
            lease = gateway.export(2**62 + 5, 3000)
            assert caller.encode_lease(lease, shape=[3, 1000]) == {"accepted": True}
            assert encoder.next() == {
                "request_id": "encode-1",
                "room": lease.key,
                "shape": [3, 1000],
                "dtype": "uint8",
                "sha256": lease.sha256,
            }
        for payload in ({"inline": content.hex()}, {"shm": shm}):
            assert caller.encode(payload, shape=[3, 1000]) == {"accepted": True}
            assert encoder.next()["sha256"] == hashlib.sha256(content).hexdigest()
        assert not file.exists()
        missing = caller.encode({"shm": shm}, shape=[3, 1000])
        assert missing["code"] == "INTERNAL"
        assert f"No such file or directory: '{file}'" in missing["error"]
        outside = caller.encode({"shm": {"name": "../etc/passwd", "nbytes": 1}}, shape=[1])
        assert outside["code"] == "INVALID_ARGUMENT"
        assert "Invalid TensorData.shm name" in outside["error"]


@pytest.mark.parametrize(("lane", "transport"), [("remote", "nixl"), ("inline", "grpc"), ("shm", "file")])
def test_the_stock_encoder_takes_what_our_gateway_sends(command: Path, lane: str, transport: str) -> None:
    before = sorted(Path("/dev/shm").glob("smg-*"))
    with Encoder() as encoder:
        result = run(
            command,
            *("send", "--json", DATA / "grace_hopper.jpg", DATA / "astronaut.png", "--to", encoder.listen),
            *("--engine", "nixl", "--assume-pull", "--nixl-lib", stock.nixl_lib(), "--lane", lane),
            prefix=OVER_TCP,
        )
        assert result.code == 0, result.out + result.err
        for row in result.rows():
            assert (row["lane"], row["transport"]) == (lane, transport)
            received = encoder.next()
            assert {name: received[name] for name in ("shape", "dtype", "sha256")} == {
                name: row[name] for name in ("shape", "dtype", "sha256")
            }
    assert sorted(Path("/dev/shm").glob("smg-*")) == before


def test_it_fetches_from_tensorferry_export(command: Path, tmp_path: Path) -> None:
    options: list[str | Path] = ["--nixl-lib", stock.nixl_lib()]
    with command_exporter(command, *options, engine="nixl", prefix=OVER_TCP) as gateway, Puller() as worker:
        for key, nbytes in enumerate(stock.SIZES):
            source = make_file(tmp_path / "source", nbytes, seed=key)
            answer = gateway.ask(f"{key} {source}")
            lease = stock.Lease.of(bytes.fromhex(answer["descriptor"]), answer["nbytes"])
            assert worker.pull(lease, room=key).get("sha256") == sha256(source)
            assert gateway.next() == {"event": "released", "key": key}


def test_it_takes_our_own_descriptors_too(command: Path, tmp_path: Path) -> None:
    source = make_file(tmp_path / "source", 100_000)
    with command_exporter(command) as gateway, Encoder() as encoder, stock.Caller(encoder.listen) as caller:
        answer = gateway.ask(f"5 {source}")
        remote = {name: answer[name] for name in ("transport", "descriptor", "nbytes")}
        assert caller.encode({"remote": remote}, shape=[100_000], room=5) == {"accepted": True}
        assert encoder.next()["sha256"] == sha256(source)


@pytest.mark.parametrize("nbytes", stock.SIZES)
def test_sizes_from_the_stock_exporter(nbytes: int) -> None:
    with stock.Exporter(slots=1, slot_bytes=32 * stock.MIB) as gateway, Puller() as worker:
        for key in (1, 2):
            lease = gateway.export(key, nbytes)
            answer = worker.pull(lease)
            assert answer.get("sha256") == lease.sha256, answer


def test_a_second_gateway_of_the_same_name_is_reached() -> None:
    """Where the original fails for good."""
    with stock.Exporter() as first, stock.Exporter() as second, Puller() as worker:
        for key in (1, 2):
            for gateway in (first, second):
                lease = gateway.export(key)
                answer = worker.pull(lease)
                assert answer.get("sha256") == lease.sha256, answer


def test_a_gateway_that_was_restarted_is_reached() -> None:
    """Where the original fails for good."""
    with Encoder() as encoder, ExitStack() as stack:
        caller = stack.enter_context(stock.Caller(encoder.listen))
        port = None
        for key in (1, 2, 3):
            with stock.Exporter(port=port) as gateway:
                port = gateway.port
                for more in (0, 10):
                    lease = gateway.export(key + more)
                    assert caller.encode_lease(lease) == {"accepted": True}
                    assert encoder.next()["sha256"] == lease.sha256


def outcome(answer: Mapping[str, Any]) -> tuple[str, str]:
    kind, _, text = str(answer["error"]).partition(": ")
    return kind, text


def test_errors_have_the_classes_and_words_of_the_original() -> None:
    """Each is put to both; the one slot of the gateway is free again after ours has refused."""
    small = {"SMG_RDMA_SLOT_BYTES": "2000"}
    built_in = {"InputError": "ValueError", "OperationError": "RuntimeError", "TimedOutError": "RuntimeError"}
    with stock.Exporter(slots=1, ttl=600) as gateway, stock.Exporter(slots=9) as roomy, ExitStack() as stack:
        ours, theirs = stack.enter_context(Puller(small)), stack.enter_context(stock.Puller(small))
        # Addresses of a slot of their own, so that the original, which frees none, has something to refuse.
        for change, options, words in (
            ({}, {"room": 99}, "remote descriptor room mismatch"),
            ({}, {"transport": "ucx"}, "unsupported remote tensor transport: 'ucx'"),
            ({"nbytes": 1985}, {"shape": [1985]}, "exceeds landing slot"),
            ({}, {"shape": [7]}, "remote pixel size mismatch"),
            ({"stamp": 12345}, {}, "slot generation mismatch"),
        ):
            lease = gateway.export(1)
            mine = lease.at(**change)
            other = roomy.export(1).at(**change)
            kind, text = outcome(ours.pull(mine, **options))
            their_kind, their_text = outcome(theirs.pull(other, **options))
            assert words in text
            assert words in their_text
            assert built_in[kind] == their_kind
            if "transport" in options or "stamp" in change:
                # Of the first nothing can be read, not even whom to tell; the second may be another worker's by now.
                assert ours.pull(lease)["sha256"] == lease.sha256
        gateway.export(2)


def test_an_unknown_dtype_is_no_value_error() -> None:
    with stock.Exporter(slots=1) as gateway, Encoder() as encoder, stock.Caller(encoder.listen) as caller:
        for _ in range(2):
            answer = caller.encode_lease(gateway.export(1), dtype="florp")
            assert answer["code"] == "INTERNAL"
            assert "florp" in answer["error"]
        answer = caller.encode_lease(gateway.export(2), room=3)
        assert answer["code"] == "INVALID_ARGUMENT"
        assert "remote descriptor room mismatch" in answer["error"]


def test_an_unreachable_gateway_delays_no_other() -> None:
    with stock.Exporter() as gateway, Puller() as worker:
        lease = gateway.export(1)
        unreachable = worker.start(lease.at(port=stock.free_port()))
        assert worker.pull(lease)["sha256"] == lease.sha256
        kind, text = outcome(worker.result(unreachable))
        assert kind == "OperationError"
        assert "NIXL remote metadata not ready" in text
        for host in (b"localhost", b""):
            kind, text = outcome(worker.pull(lease.at(host=host)))
            assert kind == "OperationError"
            assert "NIXL remote metadata not ready" in text


def test_a_gateway_that_hangs_costs_the_read_timeout() -> None:
    with stock.Exporter() as gateway, Puller({"SMG_RDMA_READ_TIMEOUT_S": "1"}) as worker:
        assert worker.pull(gateway.export(1))["sha256"]
        lease = gateway.export(2)
        stop(gateway.process)
        try:
            answer = worker.pull(lease)
        finally:
            gateway.process.send_signal(signal.SIGCONT)
        assert "NIXL READ timed out" in answer["error"]
        assert 1 <= answer["seconds"] < 4


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"SMG_MM_PIXEL_RDMA": "0"}, "SMG_MM_PIXEL_RDMA is not on"),
        ({"SMG_RDMA_LANDING_SLOTS": "0"}, "0 landing slots"),
        ({"SMG_RDMA_SLOT_BYTES": "32M"}, "32M"),
        ({"TENSORFERRY_NIXL_LIB": "/nowhere"}, "/nowhere"),
    ],
)
def test_a_lane_that_is_off_says_so_at_each_pull(env: Mapping[str, str], why: str) -> None:
    lease = stock.Lease(1, 10, 4096, 1, 18515, b"127.0.0.1")
    with Puller(env) as worker:
        assert worker.ready["up"] is False
        kind, text = outcome(worker.pull(lease))
        assert kind == "OperationError"
        assert "stock: landing pool unavailable" in text
        assert why in text


RECEIVER = """
import hashlib, sys
from types import SimpleNamespace
import tensorferry
with tensorferry.Puller(landing_bytes=8 << 20, nixl=True) as puller:
    receiver = tensorferry.Receiver(puller)
    print("ready", flush=True)
    for line in sys.stdin:
        descriptor, nbytes, shape = line.split()
        remote = SimpleNamespace(transport="nixl", descriptor=bytes.fromhex(descriptor), nbytes=int(nbytes))
        try:
            tensor = receiver.receive(SimpleNamespace(dtype="uint8", shape=[int(shape)], remote=remote), timeout=10)
            print(tensor.transport, tensor.lane, hashlib.sha256(tensor).hexdigest(), flush=True)
        except tensorferry.Error as error:
            print(error.reason, flush=True)
"""


def test_the_receiver_finds_nixl_where_it_is_installed_and_frees_what_it_refuses() -> None:
    class Script(stock.Peer):
        def __init__(self) -> None:
            super().__init__([stock.PYTHON, "-c", RECEIVER], {"PYTHONPATH": str(SITE)})

    with stock.Exporter(slots=1) as gateway, Script() as worker:
        assert worker.read() == "ready"
        for key in (1, 2):  # one slot: it was freed
            for shape, told in ((7, "size_mismatch"), (1000, None)):
                lease = gateway.export(key)
                worker.write(f"{lease.descriptor.hex()} {lease.nbytes} {shape}")
                assert worker.read() == (told or f"nixl remote {lease.sha256}")
        gateway.export(3)


@pytest.mark.parametrize("value", ["1", "true", " YES ", "On"])
def test_spellings_of_on(value: str) -> None:
    assert smg.rdma_pixel_lane_enabled({"SMG_MM_PIXEL_RDMA": value})


@pytest.mark.parametrize("value", ["", "0", "false", "enabled", "2"])
def test_spellings_of_off(value: str) -> None:
    assert not smg.rdma_pixel_lane_enabled({"SMG_MM_PIXEL_RDMA": value})
    assert not smg.rdma_pixel_lane_enabled({})


@pytest.fixture
def file() -> Iterator[Path]:
    it = shm_file(b"0123456789")
    yield it
    it.unlink(missing_ok=True)


def handle(name: str, nbytes: int = 10, offset: int = 0) -> SimpleNamespace:
    return SimpleNamespace(name=name, nbytes=nbytes, offset=offset, owner_id="")


def test_a_file_is_read_once(file: Path) -> None:
    with pytest.raises(ValueError, match="byte length mismatch"):
        smg.tensor_payload_bytes_from_shm(handle(file.name, 11))
    with pytest.raises(ValueError, match="byte length mismatch"):
        smg.tensor_payload_bytes_from_shm(handle(file.name, 1 << 62))
    assert file.exists(), "what was not read stays"
    assert smg.tensor_payload_bytes_from_shm(handle("//" + file.name, 4, 3)) == b"3456"
    assert not file.exists()
    with pytest.raises(FileNotFoundError, match="No such file") as raised:
        smg.tensor_payload_bytes_from_shm(handle(file.name))
    assert isinstance(raised.value, RuntimeError)
    assert isinstance(raised.value, Error)
    assert not isinstance(raised.value, ValueError)
    assert raised.value.reason == "lease_ended"


def test_a_file_stays_where_that_is_wanted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smg, "UNLINK_MM_SHM_AFTER_READ", False)
    for _ in range(2):
        assert smg.tensor_payload_bytes_from_shm(handle(file.name)) == b"0123456789"
    script = "from tensorferry import smg; print(smg.UNLINK_MM_SHM_AFTER_READ)"
    for value, expected in (("No", "False"), ("0", "False"), ("1", "True"), ("", "True")):
        env = {**os.environ, "TOKENSPEED_UNLINK_MM_SHM_AFTER_READ": value}
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


@pytest.mark.parametrize("name", ["", "/", ".", "..", "../x", "a/b", "smg-tokenspeed-1-2-0\0x"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid TensorData.shm name"):
        smg.validated_shm_name(name)
    with pytest.raises(ValueError, match=r"Invalid TensorData.shm name"):
        smg.tensor_payload_bytes_from_shm(handle(name))
    assert smg.validated_shm_name("//abc") == "abc"


def test_what_is_no_file_of_a_gateway_is_neither_read_nor_removed(file: Path) -> None:
    stem = file.name[:-1]
    link, folder, pipe = (file.with_name(stem + str(i)) for i in (1, 2, 3))
    stranger = Path("/dev/shm") / f"stranger-{os.getpid()}"
    try:
        link.symlink_to(file)
        folder.mkdir()
        os.mkfifo(pipe)
        stranger.write_bytes(b"0123456789")
        for path, words in ((link, "symlink"), (folder, "not a regular file"), (pipe, "not a regular file")):
            with pytest.raises(ValueError, match=f"TensorData.shm is .*{words.split()[-1]}"):
                smg.tensor_payload_bytes_from_shm(handle(path.name))
        with pytest.raises(ValueError, match=r"Invalid TensorData.shm name"):
            smg.tensor_payload_bytes_from_shm(handle(stranger.name))
        assert all(path.exists() for path in (link, folder, pipe, stranger, file))
    finally:
        for path in (link, pipe, stranger):
            path.unlink(missing_ok=True)
        folder.rmdir()


def test_payloads_of_messages(file: Path) -> None:
    def message(payload: str | None, **fields: Any) -> Any:
        return SimpleNamespace(WhichOneof=lambda _: payload, **fields)

    assert smg.tensor_payload_bytes(message("inline", inline=b"abc")) == b"abc"
    assert smg.tensor_payload_bytes(message("shm", shm=handle(file.name))) == b"0123456789"
    with pytest.raises(ValueError, match=r"TensorData.remote payload is not implemented"):
        smg.tensor_payload_bytes(message("remote", remote=None))
    with pytest.raises(ValueError, match="payload"):
        smg.tensor_payload_bytes(message(None))


def test_the_identity_of_dev_shm() -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert smg.shm_namespace_id() == f"{boot_id}:{Path('/dev/shm').stat().st_dev}"


def test_the_guide_names_imports_that_there_are(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/stock_puller.md: SMG's in the environment of its servicer, ours here; and what is logged."""
    guide = (DATA.parents[1] / "docs" / "stock_puller.md").read_text()
    rows = re.findall(r"^\| `(from smg_\S+ import .*)` \| `(from tensorferry\S* import .*)` \|$", guide, re.MULTILINE)
    assert len(rows) == 2
    for theirs, ours in rows:
        subprocess.run([stock.PYTHON, "-c", theirs], check=True, env=stock.environment({}))
        exec(ours, {})
    with Puller() as worker:
        assert worker.ready["up"] is True
    line = guide.partition("```text\n")[2].partition("\n```")[0]
    monkeypatch.setenv("SMG_MM_PIXEL_RDMA", "1")
    monkeypatch.setenv("SMG_RDMA_LANDING_SLOTS", "0")
    with caplog.at_level("ERROR", "tensorferry.smg"):
        smg.RdmaPixelPuller(agent_name="a", log_prefix="worker")
    assert "cannot fetch pixels, takes them in the message only" in caplog.text
    # In the code that says it, by its own placeholders.
    said = re.sub(r"%[sd]|\d+|…", "_", line)
    assert said in re.sub(r"%[sd]", "_", Path(smg.__file__).read_text())
