"""GetCapabilities on servers of both kinds, and our command as the gateway before a worker in Python."""

import asyncio
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
from ferry import run
from ferry import worker as command_worker
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from smg import ENCODE, PROTO, StockWorker, encode, encode_request, message

import tensorferry
import tensorferry.grpc
from tensorferry import Capabilities, Error, Puller, Receiver

DATA = Path(__file__).parents[1] / "data"
MAX_MESSAGE_BYTES = 64 << 20


@cache
def transport_message(name: str) -> Any:
    with tempfile.NamedTemporaryFile() as out:
        proto = "tensorferry/v1/transport.proto"
        subprocess.run(["protoc", f"-I{PROTO}", f"--descriptor_set_out={out.name}", proto], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorferry.v1." + name))


FULL = Capabilities(
    version="1.2.3",
    instance_id=bytes(range(16)),
    lanes=("inline", "shm", "remote"),
    transports=("grpc", "local", "tcp"),
    landing_bytes=(1 << 64) - 1,
    max_inline_bytes=300,
    boot_id=bytes(range(16, 32)),
    shm_namespace="token:7",
    uid=0,
    descriptor_versions=(1, 300, 70000),
)


@pytest.mark.parametrize("capabilities", [FULL, Capabilities(lanes=(), transports=()), Capabilities(uid=1 << 31)])
def test_the_encoding_is_protobufs(capabilities: Capabilities) -> None:
    raw = capabilities.encode()
    theirs = transport_message("Capabilities").FromString(raw)
    assert theirs.version == capabilities.version
    assert theirs.instance_id == capabilities.instance_id
    assert tuple(theirs.lanes) == capabilities.lanes
    assert tuple(theirs.transports) == capabilities.transports
    assert theirs.landing_bytes == capabilities.landing_bytes
    assert theirs.max_inline_bytes == capabilities.max_inline_bytes
    assert theirs.shm.boot_id == capabilities.boot_id
    assert theirs.shm.namespace_token == capabilities.shm_namespace
    assert (theirs.uid if theirs.HasField("uid") else None) == capabilities.uid
    assert tuple(theirs.descriptor_versions) == capabilities.descriptor_versions
    assert theirs.SerializeToString(deterministic=True) == raw
    again = Capabilities.decode(raw + b"\xc2\x3e\x01x")  # and a field that is not known here
    # To say none is to say nothing.
    assert again == replace(capabilities, lanes=again.lanes, transports=again.transports)
    assert again.lanes == (capabilities.lanes or ("inline",))
    assert again.transports == (capabilities.transports or ("grpc",))
    for end in range(len(raw)):
        with suppress(tensorferry.InputError):
            Capabilities.decode(raw[:end])


def test_a_worker_describes_itself(worker: Puller) -> None:
    told = tensorferry.describe_worker(worker, 123)
    assert told.lanes == ("inline", "shm", "remote")
    assert told.transports == ("grpc", "local", "tcp")
    assert told.landing_bytes == worker.stats().landing_bytes
    assert (told.max_inline_bytes, told.descriptor_versions) == (123, (1,))
    assert len(told.instance_id) == len(told.boot_id) == 16
    assert told.instance_id != tensorferry.describe_worker(worker, 123).instance_id
    assert tensorferry.describe_worker(None, 5).lanes == ("inline",)
    with Puller(landing_bytes=0) as small:
        assert tensorferry.describe_worker(small, 5).transports == ("grpc", "local")


class Worker:
    """Encode as a worker author writes it, synchronously."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.transport: tensorferry.grpc.TransportServicer | None = None

    def add_to(self, server: Any, capabilities: Capabilities) -> None:
        self.transport = tensorferry.grpc.add_transport_servicer(server, capabilities)
        service, _, name = ENCODE[1:].partition("/")
        handler: Any = grpc.unary_unary_rpc_method_handler(
            self.encode,
            request_deserializer=message("tokenspeed.grpc.encoder.EncodeRequest").FromString,
            response_serializer=lambda m: m.SerializeToString(),
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))

    def encode(self, request: Any, context: Any) -> Any:
        assert self.transport is not None
        try:
            tensor = self._receiver.receive(
                request.mm_inputs.items[0].encoder_input,
                timeout=tensorferry.grpc.pull_budget(context),
                key=request.items[0].bootstrap_room,
            )
        except Error as error:
            context.set_trailing_metadata(self.transport.metadata(error=error))
            context.abort(tensorferry.grpc.status_code(error), str(error))
        context.set_trailing_metadata(self.transport.metadata(received=[tensor]))
        return message("tokenspeed.grpc.encoder.EncodeResponse")(accepted=True)


class AsyncWorker(Worker):
    async def encode(self, request: Any, context: Any) -> Any:
        assert self.transport is not None
        try:
            tensor = await self._receiver.receive_async(
                request.mm_inputs.items[0].encoder_input,
                timeout=tensorferry.grpc.pull_budget(context),
                key=request.items[0].bootstrap_room,
            )
        except Error as error:
            context.set_trailing_metadata(self.transport.metadata(error=error))
            await context.abort(tensorferry.grpc.status_code(error), str(error))
        context.set_trailing_metadata(self.transport.metadata(received=[tensor]))
        return message("tokenspeed.grpc.encoder.EncodeResponse")(accepted=True)


OPTIONS = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]


@contextmanager
def serve(worker: Worker, capabilities: Capabilities) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4), options=OPTIONS)
    worker.add_to(server, capabilities)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@contextmanager
def serve_async(worker: Worker, capabilities: Capabilities) -> Iterator[str]:
    ready: futures.Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = futures.Future()

    async def main() -> None:
        server = grpc.aio.server(options=OPTIONS)
        worker.add_to(server, capabilities)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        end = asyncio.Event()
        ready.set_result((port, asyncio.get_running_loop(), end))
        await end.wait()
        await server.stop(0)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    port, loop, end = ready.result(30)
    yield f"127.0.0.1:{port}"
    loop.call_soon_threadsafe(end.set)
    thread.join()


@pytest.fixture(params=[(Worker, serve), (AsyncWorker, serve_async)], ids=["grpc", "grpc.aio"])
def served(request: pytest.FixtureRequest, worker: Puller) -> Iterator[tuple[Worker, str]]:
    kind, serving = request.param
    it = kind(Receiver(worker))
    with serving(it, tensorferry.describe_worker(worker, MAX_MESSAGE_BYTES)) as address:
        yield it, address


def get_capabilities(address: str) -> tuple[Any, dict[str, Any]]:
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(
            tensorferry.grpc.METHOD,
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=transport_message("Capabilities").FromString,
        )
        answer, done = call.with_call(transport_message("GetCapabilitiesRequest")(), timeout=30)
        return answer, dict(done.trailing_metadata())


def test_capabilities_are_told(served: tuple[Worker, str], worker: Puller) -> None:
    it, address = served
    assert it.transport is not None
    answer, trailing = get_capabilities(address)
    assert answer.SerializeToString(deterministic=True) == it.transport.capabilities.encode()
    assert trailing["tensorferry-instance-bin"] == it.transport.capabilities.instance_id
    assert answer.landing_bytes == worker.stats().landing_bytes
    it.transport.drain()
    with pytest.raises(grpc.RpcError) as raised:
        get_capabilities(address)
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("lane", "transport"), [("inline", "grpc"), ("shm", "local"), ("remote", "tcp")])
def test_our_gateway_sends_to_it_by_every_lane(
    command: Path, served: tuple[Worker, str], lane: str, transport: str
) -> None:
    _, address = served
    result = run(command, "send", "--json", DATA / "grace_hopper.jpg", "--to", address, "--lane", lane)
    assert result.code == 0, result.out + result.err
    row = result.row()
    assert (row["lane"], row["transport"]) == (lane, transport)


def test_a_gateway_is_told_why_and_sends_the_bytes_again(command: Path, served: tuple[Worker, str]) -> None:
    """Its address is outside what the worker may dial."""
    it, address = served
    with Puller(landing_bytes=64 << 20, local=False, allow=["10.9.8.0/24"]) as puller:
        it._receiver = Receiver(puller)
        result = run(command, "send", "--json", DATA / "grace_hopper.jpg", "--to", address, "--lane", "remote")
        assert result.code == 1
        assert "not_allowed" in result.out + result.err
        result = run(command, "send", "--json", DATA / "grace_hopper.jpg", "--to", address)
        assert result.code == 0, result.out + result.err
        assert result.row()["lane"] == "inline"


def test_the_error_goes_beside_the_code() -> None:
    servicer = tensorferry.grpc.TransportServicer(FULL)
    error = tensorferry._core.error_of_reason("unreachable", "ü" * 2000)
    assert dict(servicer.metadata())["tensorferry-instance-bin"] == FULL.instance_id
    told = transport_message("TransportError").FromString(dict(servicer.metadata(error=error))["tensorferry-error-bin"])
    assert (told.reason, told.retryable, told.message) == ("unreachable", True, "ü" * 512)
    for reason, code in (
        ("key_mismatch", grpc.StatusCode.INVALID_ARGUMENT),
        ("unknown_dtype", grpc.StatusCode.INTERNAL),
        ("unreachable", grpc.StatusCode.INTERNAL),
        ("cancelled", grpc.StatusCode.CANCELLED),
        ("shut_down", grpc.StatusCode.UNAVAILABLE),
    ):
        assert tensorferry.grpc.status_code(tensorferry._core.error_of_reason(reason, "")) == code


def test_a_gateway_asks(command: Path, served: tuple[Worker, str]) -> None:
    it, address = served
    assert it.transport is not None
    with grpc.insecure_channel(address) as channel:
        assert tensorferry.grpc.get_capabilities(channel) == it.transport.capabilities
    with command_worker(command) as other, grpc.insecure_channel(other.listen) as channel:
        told = tensorferry.grpc.get_capabilities(channel)
        assert told is not None
        assert told.lanes == ("inline", "shm", "remote")
    with StockWorker(lambda _: None) as stock, grpc.insecure_channel(stock.listen) as channel:
        assert tensorferry.grpc.get_capabilities(channel) is None
    with grpc.insecure_channel("127.0.0.1:1") as channel, pytest.raises(grpc.RpcError):
        tensorferry.grpc.get_capabilities(channel)


def test_a_gateway_learns_why_a_pull_failed(served: tuple[Worker, str]) -> None:
    _, address = served
    request = encode_request([3])
    request.mm_inputs.items[0].encoder_input.remote.transport = "tensorferry"
    request.mm_inputs.items[0].encoder_input.remote.nbytes = 3
    with pytest.raises(grpc.RpcError) as raised:
        encode(address, request)
    failure = tensorferry.grpc.pull_failure(raised.value)
    assert failure is not None
    assert (failure.reason, failure.retryable) == ("too_short", False)
    with pytest.raises(grpc.RpcError) as raised:
        encode("127.0.0.1:1", request)
    assert tensorferry.grpc.pull_failure(raised.value) is None


class Context:
    def __init__(self, remaining: float | None) -> None:
        self._remaining = remaining

    def time_remaining(self) -> float | None:
        return self._remaining


@pytest.mark.parametrize(("remaining", "budget"), [(10, 5), (None, 60), (1000, 60), (-1, 0)])
def test_half_of_the_time_is_for_pulling(remaining: float | None, budget: float) -> None:
    assert tensorferry.grpc.pull_budget(Context(remaining)) == budget
