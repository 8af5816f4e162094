"""What a Python worker serves beside its own service, so that gateways know what it takes.

    transport = tensorferry.grpc.add_transport_servicer(server, tensorferry.describe_worker(puller, max_message_bytes))
    ...
    async def Encode(self, request, context):
        try:
            tensor = await receiver.receive_async(data, timeout=tensorferry.grpc.pull_budget(context))
        except tensorferry.Error as error:
            context.set_trailing_metadata(transport.metadata(error=error))
            await context.abort(tensorferry.grpc.status_code(error), str(error))
        context.set_trailing_metadata(transport.metadata(received=[tensor]))

Without it a worker counts as one that knows nothing of Tensorferry, and gets bytes in the message. It needs the package
grpcio, but no protobuf: its few messages are encoded here.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from tensorferry._capabilities import Capabilities
from tensorferry._errors import Error, OperationError
from tensorferry._protobuf import Reader, Writer
from tensorferry._view import View

if TYPE_CHECKING:
    import grpc.aio

METHOD = "/tensorferry.v1.Transport/GetCapabilities"
INSTANCE_KEY = "tensorferry-instance-bin"
RECEIVED_KEY = "tensorferry-received-bin"
ERROR_KEY = "tensorferry-error-bin"

Metadata = tuple[tuple[str, bytes], ...]

_DRAINING = "this worker is draining: use another"
# gRPC refuses answers with more than 8 KiB of metadata, and the text travels twice.
_MAX_TEXT_BYTES = 1024


class TransportServicer:
    """Answers GetCapabilities. Every call from any thread."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._answer = capabilities.encode()
        self._draining = False

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def drain(self) -> None:
        """From now on gateways are told to use another worker. Call it first when shutting down."""
        self._draining = True

    def metadata(self, *, received: Sequence[View] = (), error: Error | None = None) -> Metadata:
        """Trailing metadata for the answer to a request: who answers, what arrived, or why it did not."""
        out = [(INSTANCE_KEY, self._capabilities.instance_id)]
        out += [(RECEIVED_KEY, _received(view)) for view in received]
        if error is not None:
            out.append((ERROR_KEY, _error(error)))
        return tuple(out)

    def handler(self, asynchronous: bool) -> grpc.GenericRpcHandler:
        service, _, method = METHOD[1:].partition("/")
        answer = self._answer_async if asynchronous else self._answer_sync
        # Bytes go in and out as they are.
        return grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(answer)})

    def _answer_sync(self, _request: bytes, context: grpc.ServicerContext) -> bytes:
        if self._draining:
            context.abort(grpc.StatusCode.UNAVAILABLE, _DRAINING)
        context.set_trailing_metadata(self.metadata())
        return self._answer

    async def _answer_async(self, _request: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        if self._draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _DRAINING)
        context.set_trailing_metadata(self.metadata())
        return self._answer


def add_transport_servicer(server: "grpc.Server | grpc.aio.Server", capabilities: Capabilities) -> TransportServicer:
    """Adds GetCapabilities to a server of either kind, before it starts."""
    servicer = TransportServicer(capabilities)
    server.add_generic_rpc_handlers((servicer.handler(inspect.iscoroutinefunction(server.start)),))
    return servicer


def get_capabilities(channel: grpc.Channel, timeout: float = 5.0) -> Capabilities | None:
    """What the worker behind a channel takes; None for one that knows nothing of Tensorferry.

    For gateways. An RpcError says nothing about the worker: ask again.
    """
    call: Any = channel.unary_unary(METHOD)
    try:
        return Capabilities.decode(call(b"", timeout=timeout))
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise


def pull_failure(error: grpc.RpcError) -> Error | None:
    """What a worker said of a tensor that it could not fetch: it has computed nothing, so sending again is safe.

    None for every other failure of a request.
    """
    trailing: Iterable[Any] = (error.trailing_metadata() if isinstance(error, grpc.Call) else None) or ()
    raw = next((value for key, value in trailing if key == ERROR_KEY), None)
    if not isinstance(raw, bytes):
        return None
    reason, message, retryable = "", "", False
    for number, value in Reader(memoryview(raw)):
        if number == 3 and isinstance(value, int):
            retryable = bool(value)
        elif number in (1, 2) and not isinstance(value, int):
            text = str(value, "utf-8", "replace")
            reason, message = (text, message) if number == 1 else (reason, text)
    return OperationError(message, reason, retryable)


def pull_budget(context: Any, limit: float = 60.0) -> float:
    """How many seconds of a request may go into fetching its tensors.

    Half of what remains, so that a gateway that is told of a failed pull has as long again to send the bytes in the
    message; at most ``limit``.
    """
    remaining = context.time_remaining()
    return limit if remaining is None else max(0.0, min(remaining / 2, limit))


def status_code(error: Error) -> grpc.StatusCode:
    """What SMG's workers answer with: bad input INVALID_ARGUMENT, a tensor that could not be fetched INTERNAL."""
    if error.reason == "cancelled":
        return grpc.StatusCode.CANCELLED
    if error.reason == "shut_down":
        return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.INVALID_ARGUMENT if isinstance(error, ValueError) else grpc.StatusCode.INTERNAL


def _received(view: View) -> bytes:
    message = Writer()
    message.text(1, view.lane)
    message.text(2, view.transport)
    message.number(3, view.nbytes)
    return message.finish()


def _error(error: Error) -> bytes:
    message = Writer()
    message.text(1, error.reason)
    message.text(2, str(error).encode()[:_MAX_TEXT_BYTES].decode(errors="ignore"))
    message.number(3, int(error.retryable))
    return message.finish()
