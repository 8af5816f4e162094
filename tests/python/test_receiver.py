"""The receiver with whatever has the fields of a TensorData."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from smg import PROTO

import tensorferry
from tensorferry import Error, Exporter, Puller, Receiver, Tensor, TensorData

PACKAGES = {"tokenspeed": "tokenspeed.grpc.scheduler", "vllm": "vllm.grpc.engine"}


@cache
def message_class(layout: str) -> Any:
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(
            [
                *("protoc", f"-I{PROTO}", "--include_imports", f"--descriptor_set_out={out.name}"),
                *("smg/tokenspeed_scheduler.proto", "smg/vllm_engine.proto"),
            ],
            check=True,
        )
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(PACKAGES[layout] + ".TensorData"))


def as_protobuf(layout: str, **fields: Any) -> Any:
    data = message_class(layout)(dtype=fields.pop("dtype"), shape=fields.pop("shape"))
    for name, value in fields.items():
        if isinstance(value, SimpleNamespace):
            for field, content in vars(value).items():
                setattr(getattr(data, name), field, content)
        else:
            setattr(data, name, value)
    return data


FORMS: dict[str, Callable[..., Any]] = {
    "tokenspeed": lambda **fields: as_protobuf("tokenspeed", **fields),
    "vllm": lambda **fields: as_protobuf("vllm", **fields),
    "tokenspeed's bytes": lambda **fields: TensorData.parse(
        as_protobuf("tokenspeed", **fields).SerializeToString(), "tokenspeed"
    ),
    "vllm's bytes": lambda **fields: TensorData.parse(as_protobuf("vllm", **fields).SerializeToString(), "vllm"),
    "namespace": lambda **fields: SimpleNamespace(**fields),
    "namespace with None": lambda **fields: SimpleNamespace(**{"inline": None, "shm": None, "remote": None, **fields}),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return FORMS[request.param]


def remote(lease: tensorferry.Lease, **ways: bool) -> SimpleNamespace:
    return SimpleNamespace(
        **{name: getattr(lease.handle(**ways), name) for name in ("transport", "descriptor", "nbytes")}
    )


def received(receiver: Receiver, data: Any, how: str, **options: Any) -> Tensor:
    """By each of the calls there are."""
    if how == "receive":
        return receiver.receive(data, **options)
    if how == "receive_async":
        return asyncio.run(receiver.receive_async(data, **options))
    options.pop("key", None)
    if how == "receive_all":
        (result,) = receiver.receive_all([data], **options)
    else:
        (result,) = asyncio.run(receiver.receive_all_async([data], **options))
    if isinstance(result, Error):
        raise result
    return result


HOW = ["receive", "receive_async", "receive_all", "receive_all_async"]


@pytest.mark.parametrize("how", HOW)
def test_every_lane_of_every_form(
    gateway: Exporter, worker: Puller, form: Callable[..., Any], how: str, tmp_path: Path
) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    shape = {"dtype": "float32", "shape": [2, 3, 4]}
    receiver = Receiver(worker)
    with gateway.export(array, key=5) as lease:
        for data, lane, transport in (
            (form(**shape, inline=array.tobytes()), "inline", "grpc"),
            (form(**shape, remote=remote(lease)), "shm", "local"),
            (form(**shape, remote=remote(lease, shm=False)), "remote", "tcp"),
        ):
            tensor = received(receiver, data, how, timeout=30, key=5)
            assert (tensor.lane, tensor.transport, tensor.dtype) == (lane, transport, "float32")
            assert (tensor.numpy() == array).all()
    del tmp_path


@pytest.mark.parametrize("how", HOW)
def test_files_of_stock_gateways(form: Callable[..., Any], how: str) -> None:
    content = os.urandom(3000)
    path = Path("/dev/shm") / f"smg-tokenspeed-{os.getpid()}-{time.time_ns()}-0"
    shape = {"dtype": "uint8", "shape": [3, 1000]}
    try:
        path.write_bytes(content)
        path.chmod(0o600)
        data = form(**shape, shm=SimpleNamespace(name=path.name, offset=0, nbytes=3000))
        with Puller(landing_bytes=1 << 20, prefault=False) as plain:
            with pytest.raises(Error, match="shm_files") as raised:
                received(Receiver(plain), data, how)
            assert raised.value.reason == "lane_off"
        with Puller(landing_bytes=1 << 20, prefault=False, shm_files=True) as worker:
            tensor = received(Receiver(worker), data, how, key=7)
            assert (tensor.lane, tensor.transport) == ("shm", "file")
            assert bytes(tensor) == content
            assert not path.exists()
            with pytest.raises(Error) as raised:
                received(Receiver(worker), data, how)
            assert raised.value.reason == "lease_ended"
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("how", HOW)
def test_what_the_message_tells_is_checked_first(
    gateway: Exporter, worker: Puller, form: Callable[..., Any], how: str
) -> None:
    receiver = Receiver(worker)
    with gateway.export(bytes(12), key=5) as lease:
        handle = remote(lease)
        for fields, reason in (
            ({"dtype": "float32", "shape": [4], "remote": handle}, "size_mismatch"),
            ({"dtype": "float32", "shape": [4], "inline": bytes(12)}, "size_mismatch"),
            ({"dtype": "complex64", "shape": [3], "remote": handle}, "unknown_dtype"),
            ({"dtype": "uint8", "shape": [1 << 31, 1 << 31, 16], "remote": handle}, "bad_shape"),
            ({"dtype": "uint8", "shape": [12]}, "no_payload"),
        ):
            with pytest.raises(Error) as raised:
                received(receiver, form(**fields), how)
            assert raised.value.reason == reason
        good = form(dtype="uint8", shape=[12], remote=handle)
        with pytest.raises(Error) as raised:
            received(Receiver(), good, how)
        assert raised.value.reason == "lane_off"
        if how in ("receive", "receive_async"):
            with pytest.raises(tensorferry.InputError) as raised:
                received(receiver, good, how, key=6)
            assert raised.value.reason == "key_mismatch"
        # Nothing was fetched, so nothing has ended.
        assert bytes(received(receiver, good, how)) == bytes(12)


def test_results_of_many_keep_their_order(gateway: Exporter, worker: Puller) -> None:
    leases = [gateway.export(bytes([i])) for i in range(6)]
    datas: list[Any] = [SimpleNamespace(dtype="uint8", shape=[1], remote=remote(lease)) for lease in leases]
    datas[1] = SimpleNamespace(dtype="uint8", shape=[1], inline=b"\x01")
    datas[2] = SimpleNamespace(dtype="uint8", shape=[2], inline=b"\x02")
    datas[4].shape = [-1]
    leases[5].close()
    receiver = Receiver(worker)
    for results in (receiver.receive_all(datas), asyncio.run(receiver.receive_all_async(datas))):
        told = [r.reason if isinstance(r, Error) else bytes(r) for r in results]
        assert told == [b"\0", b"\x01", "size_mismatch", b"\x03", "bad_shape", "lease_ended"]
    assert receiver.receive_all([]) == []


def test_each_of_many_has_a_key_of_its_own(gateway: Exporter, worker: Puller) -> None:
    leases = [gateway.export(bytes([i]), key=i) for i in range(3)]
    datas: list[Any] = [SimpleNamespace(dtype="uint8", shape=[1], remote=remote(lease)) for lease in leases]
    datas.insert(0, SimpleNamespace(dtype="uint8", shape=[1], inline=b"x"))  # has none
    receiver = Receiver(worker)
    keys = [9, 0, 9, None]
    for results in (receiver.receive_all(datas, keys=keys), asyncio.run(receiver.receive_all_async(datas, keys=keys))):
        told = [r.reason if isinstance(r, Error) else bytes(r) for r in results]
        assert told == [b"x", b"\0", "key_mismatch", b"\x02"]
    with pytest.raises(tensorferry.InputError, match="1 keys for 4"):
        receiver.receive_all(datas, keys=[1])


def test_inline_bytes_are_not_copied_and_stay() -> None:
    content = bytearray(b"abcd")
    tensor = Receiver().receive(SimpleNamespace(dtype="uint8", shape=[4], inline=content))
    assert tensor.readonly
    content[0] = ord("x")
    assert bytes(tensor) == b"xbcd"
    with pytest.raises(BufferError):
        content.append(0)
    del tensor
    content.append(0)


def test_messages_that_know_no_payload_but_bytes() -> None:
    data = SimpleNamespace(dtype="uint8", shape=[4], data=b"abcd")
    assert bytes(Receiver().receive(data)) == b"abcd"


@pytest.mark.parametrize("layout", PACKAGES)
def test_bytes_that_are_no_message_are_refused(layout: str) -> None:
    data = as_protobuf(
        layout, dtype="uint8", shape=[70000, 3], remote=SimpleNamespace(transport="nixl", nbytes=1 << 63)
    )
    good = data.SerializeToString()
    parsed = TensorData.parse(good, layout)  # type: ignore[arg-type]
    assert (parsed.dtype, parsed.shape) == ("uint8", [70000, 3])
    assert parsed.remote is not None
    assert parsed.remote.nbytes == 1 << 63
    for end in range(1, len(good)):
        try:
            TensorData.parse(good[:end], layout)  # type: ignore[arg-type]
        except tensorferry.InputError as error:
            assert error.reason == "bad_input"  # noqa: PT017
    for bad in (b"\x80", b"\x0f\x00", b"\xff" * 11, b"\x02\x05a", b"\x00\x00"):
        with pytest.raises(tensorferry.InputError) as raised:
            TensorData.parse(bad, layout)  # type: ignore[arg-type]
        assert raised.value.reason == "bad_input"
    with pytest.raises(tensorferry.InputError, match="tokenspeed, vllm"):
        TensorData.parse(good, "sglang")  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", PACKAGES)
def test_fields_are_merged_as_protobuf_does(layout: str) -> None:
    one = as_protobuf(layout, dtype="uint8", shape=[1], remote=SimpleNamespace(transport="nixl"))
    two = as_protobuf(layout, dtype="int64", shape=[2], remote=SimpleNamespace(nbytes=5))
    three = as_protobuf(layout, dtype="", shape=[], inline=b"xyz")
    for parts in ([one, two], [one, three], [three, one, two], [one, three, two]):
        raw = b"".join(part.SerializeToString() for part in parts)
        theirs, ours = message_class(layout).FromString(raw), TensorData.parse(raw, layout)  # type: ignore[arg-type]
        assert (ours.dtype, ours.shape) == (theirs.dtype, list(theirs.shape))
        payload = theirs.WhichOneof("payload")
        assert [name for name in ("inline", "shm", "remote") if getattr(ours, name) is not None] == [payload]
        if payload == "remote":
            assert ours.remote is not None
            assert (ours.remote.transport, ours.remote.nbytes) == (theirs.remote.transport, theirs.remote.nbytes)


def test_no_message_type_is_registered() -> None:
    script = (
        "import sys, tensorferry, tensorferry.grpc\n"
        "assert not [name for name in sys.modules if name.startswith('google')]\n"
        "from google.protobuf import descriptor_pool\n"
        "pool = descriptor_pool.Default()\n"
        "for name in ('tensorferry.v1.Capabilities', 'smg.grpc.common.ShmHandle'):\n"
        "    try: pool.FindMessageTypeByName(name)\n"
        "    except KeyError: continue\n"
        "    raise SystemExit(name)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
