"""SMG's gateways and workers as far as tests need them: their messages, and what stock ends do with files."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent import futures
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = Path(__file__).parent.parent / "proto"
ENCODE = "/tokenspeed.grpc.encoder.TokenSpeedEncoder/Encode"


def _compile(*files: str) -> descriptor_pb2.FileDescriptorSet:
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(
            ["protoc", f"-I{PROTO}", "--include_imports", f"--descriptor_set_out={out.name}", *files], check=True
        )
        return descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())


@cache
def descriptor_set() -> descriptor_pb2.FileDescriptorSet:
    """Of proto/smg."""
    return _compile("smg/tokenspeed_encoder.proto", "smg/vllm_engine.proto")


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in [*descriptor_set().file, *_compile("tensorferry/v1/transport.proto").file]:
        pool.Add(file)
    return pool


def message(name: str) -> Any:
    """The class of a message by its full name."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def encode_request(shape: list[int], dtype: str = "uint8", room: int = 42) -> Any:
    """Of one item; its encoder_input still lacks a payload."""
    request = message("tokenspeed.grpc.encoder.EncodeRequest")(request_id="encode-test")
    request.items.add(bootstrap_room=room)
    item = request.mm_inputs.items.add(modality=1)
    item.placeholders.add(length=1)
    item.encoder_input.shape.extend(shape)
    item.encoder_input.dtype = dtype
    return request


def encode(address: str, request: Any, timeout: float = 30) -> None:
    """What a stock gateway calls; raises grpc.RpcError."""
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(ENCODE, request_serializer=lambda m: m.SerializeToString())
        call(request, timeout=timeout)


def error_of(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    assert isinstance(error, grpc.Call)
    return error.code(), error.details() or ""


# Of each engine: its package and service.
ENGINES = {"vllm": "vllm.grpc.engine.VllmEngine", "tokenspeed": "tokenspeed.grpc.scheduler.TokenSpeedScheduler"}


class EngineClient:
    """Asks a worker what a gateway asks an engine of this kind."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])

    def __enter__(self) -> "EngineClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def message(self, name: str, **fields: Any) -> Any:
        return message(f"{ENGINES[self.kind].rpartition('.')[0]}.{name}")(**fields)

    def ask(self, method: str, **fields: Any) -> Any:
        """Any method but Generate; raises grpc.RpcError."""
        call: Any = self._channel.unary_unary(
            f"/{ENGINES[self.kind]}/{method}",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=type(self.message(f"{method}Response")).FromString,
        )
        return call(self.message(f"{method}Request", **fields), timeout=60)

    def request(self, request_id: str, **fields: Any) -> Any:
        """For Generate; without pictures so far."""
        request = self.message("GenerateRequest", request_id=request_id, **fields)
        request.tokenized.input_ids.extend([1, 2, 3])
        return request

    def add_item(self, request: Any) -> tuple[Any, Any]:
        """A picture: its main tensor, and the map of its side tensors."""
        if self.kind == "tokenspeed":
            item = request.mm_inputs.items.add(modality=1)
            return item.encoder_input, item.model_specific_tensors
        item = request.extra_mm_inputs.add() if request.HasField("mm_inputs") else request.mm_inputs
        item.modality = 1
        return item.pixel_values, item.model_specific_tensors

    def generate(self, request: Any, timeout: float | None = None) -> Any:
        """The call: yields answers, and can be cancelled."""
        call: Any = self._channel.unary_stream(
            f"/{ENGINES[self.kind]}/Generate",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=type(self.message("GenerateResponse")).FromString,
        )
        return call(request, timeout=timeout)

    def encode(self, request: Any) -> Any:
        """The call, of a worker that is an encoder as well."""
        call: Any = self._channel.unary_unary(ENCODE, request_serializer=lambda m: m.SerializeToString())
        return call.future(request)


def fill(tensor: Any, data: bytes, *, shm: str = "", dtype: str = "uint8") -> None:
    """With bytes of one dimension: in the message, or in the file of that name, which is there."""
    tensor.shape.append(len(data))
    tensor.dtype = dtype
    if shm:
        tensor.shm.name, tensor.shm.nbytes = shm, len(data)
    else:
        tensor.inline = data


def fill_remote(tensor: Any, exported: dict[str, Any]) -> None:
    """With what `tensorferry export` answered."""
    tensor.shape.append(exported["nbytes"])
    tensor.dtype = "uint8"
    tensor.remote.transport = exported["transport"]
    tensor.remote.descriptor = bytes.fromhex(exported["descriptor"])
    tensor.remote.nbytes = exported["nbytes"]


class StockWorker:
    """Encode without our service beside it. `handle` gets each tensor; what it raises fails the RPC.

    With `uid` its port belongs to that user, as if the worker ran as one; that needs root.
    It also answers GetServerInfo as the scheduler "tokenspeed" or "vllm", and says that it sees this namespace.
    With `capabilities` it says these, as a Tensorferry of another version may, and is no stock worker.
    """

    def __init__(
        self,
        handle: Callable[[Any], None],
        uid: int | None = None,
        scheduler: str = "",
        namespace: str = "",
        capabilities: Any = None,
    ) -> None:
        self._handle = handle
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        service, _, name = ENCODE[1:].partition("/")
        self._serve(service, name, self._encode, "tokenspeed.grpc.encoder.EncodeRequest")
        if scheduler == "tokenspeed":
            info = message("tokenspeed.grpc.scheduler.GetServerInfoResponse")()
            info.scheduler_info["shm_namespace_id"] = namespace
            self._serve_info("tokenspeed.grpc.scheduler", "TokenSpeedScheduler", info)
        if scheduler == "vllm":
            info = message("vllm.grpc.engine.GetServerInfoResponse")(shm_namespace_id=namespace)
            self._serve_info("vllm.grpc.engine", "VllmEngine", info)
        if capabilities is not None:
            request = "tensorferry.v1.GetCapabilitiesRequest"
            self._serve("tensorferry.v1.Transport", "GetCapabilities", lambda *_: capabilities, request)
        own = os.geteuid()
        os.seteuid(own if uid is None else uid)
        try:
            self.listen = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        finally:
            os.seteuid(own)

    def _serve(self, service: str, name: str, answer: Callable[..., Any], request: str) -> None:
        method: Any = grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=message(request).FromString,
            response_serializer=lambda m: m.SerializeToString(),
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))

    def _serve_info(self, package: str, service: str, info: Any) -> None:
        self._serve(f"{package}.{service}", "GetServerInfo", lambda *_: info, f"{package}.GetServerInfoRequest")

    def _encode(self, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            self._handle(request.mm_inputs.items[0].encoder_input)
        except Exception as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))
        return message("tokenspeed.grpc.encoder.EncodeResponse")(accepted=True)

    def __enter__(self) -> "StockWorker":
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Breaks off every request, as a worker that dies does."""
        self._server.stop(None)


class Hold:
    """A handler of StockWorker that keeps every request until it is let go."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._arrived = threading.Semaphore(0)
        self._let_go = threading.Event()

    def __call__(self, tensor: Any) -> None:
        self.seen.append(tensor)
        self._arrived.release()
        self._let_go.wait(60)

    def wait(self) -> Any:
        """The next tensor that has come."""
        assert self._arrived.acquire(timeout=60)
        return self.seen[-1]

    def let_go(self) -> None:
        self._let_go.set()


def shm_namespace(directory: Path = Path("/dev/shm")) -> str:
    """How SMG's ends call a /dev/shm."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}:{directory.stat().st_dev}"


def read_as_stock(tensor: Any, directory: Path = Path("/dev/shm")) -> bytes:
    """SMG's reader: opens by name, reads once, removes."""
    name = tensor.shm.name.lstrip("/")
    fd = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        data = os.pread(fd, tensor.shm.nbytes, tensor.shm.offset)
    finally:
        os.close(fd)
        (directory / name).unlink(missing_ok=True)
    assert len(data) == tensor.shm.nbytes
    return data
