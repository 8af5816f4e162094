"""An asyncio worker: takes each tensor by the best lane that its gateway has.

worker.py 127.0.0.1:50051

TensorData may be of any package; here they are SMG's, from the package smg-grpc-proto.
"""

import asyncio
import signal
import sys
from typing import Any

import grpc
import grpc.aio
from smg_grpc_proto.generated import tokenspeed_encoder_pb2, tokenspeed_encoder_pb2_grpc

import tensorferry
import tensorferry.grpc

MAX_MESSAGE_BYTES = 256 << 20


class Encoder(tokenspeed_encoder_pb2_grpc.TokenSpeedEncoderServicer):
    def __init__(self, receiver: tensorferry.Receiver, transport: tensorferry.grpc.TransportServicer) -> None:
        self._receiver = receiver
        self._transport = transport

    async def Encode(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            with await self._receiver.receive_async(
                request.mm_inputs.items[0].encoder_input,
                timeout=tensorferry.grpc.pull_budget(context),
                key=request.items[0].bootstrap_room,
            ) as tensor:
                # Here it goes to the model: torch.from_dlpack(tensor), tensor.numpy(), memoryview(tensor).
                context.set_trailing_metadata(self._transport.metadata(received=[tensor]))
                print(tensor, flush=True)
        except tensorferry.Error as error:
            context.set_trailing_metadata(self._transport.metadata(error=error))
            await context.abort(tensorferry.grpc.status_code(error), str(error))
        return tokenspeed_encoder_pb2.EncodeResponse(accepted=True)


async def main(listen: str) -> None:
    # Memory for tensors from the network, and the gateways that may be asked for them.
    with tensorferry.Puller(allow=["127.0.0.0/8"], landing_bytes=64 << 20) as puller:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)])
        # Tells gateways what this worker takes; without it they put the bytes into the message.
        transport = tensorferry.grpc.add_transport_servicer(
            server, tensorferry.describe_worker(puller, MAX_MESSAGE_BYTES)
        )
        encoder = Encoder(tensorferry.Receiver(puller), transport)
        tokenspeed_encoder_pb2_grpc.add_TokenSpeedEncoderServicer_to_server(encoder, server)
        port = server.add_insecure_port(listen)
        await server.start()
        print("listening on port", port, flush=True)

        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        transport.drain()
        await server.stop(grace=5)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
