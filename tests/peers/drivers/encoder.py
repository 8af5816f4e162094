"""SMG's own TokenSpeed encoder servicer, unmodified, on a free port, with an engine that does nothing.

With DROP_IN, our classes stand in for those that fetch its tensors: see drop_in.py.
Prints a line for each tensor that an Encode RPC brought.
"""

import asyncio
import enum
import hashlib
import os
import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import grpc
from peers.drivers import drop_in
from peers.drivers.lines import asked, say


class Modality(enum.Enum):
    IMAGE = 1
    VIDEO = 2
    AUDIO = 3


class Record(SimpleNamespace):
    def set_pad_value(self) -> None: ...


def stand_in(name: str, **members: Any) -> None:
    """The engine's package cannot be installed; its servicer needs these names."""
    module = ModuleType(name)
    module.__path__ = []
    module.__dict__.update(members)
    sys.modules[name] = module


for package in ("", ".runtime", ".runtime.multimodal", ".runtime.epd", ".runtime.utils", ".runtime.engine"):
    stand_in("tokenspeed" + package)
stand_in("tokenspeed.runtime.multimodal.inputs", Modality=Modality, MultimodalDataItem=Record, MultimodalInputs=Record)
stand_in("tokenspeed.runtime.multimodal.shm_transport", ShmTensorHandle=Record)
stand_in("tokenspeed.runtime.epd.encode_worker", EncodeRequest=Record)
stand_in("tokenspeed.runtime.utils.network", get_local_ip_by_remote=lambda: "127.0.0.1")
os.environ["EPD_PIXEL_SHM"] = "0"  # the tensor itself to the engine, not one more handle

drop_in.replace()

from smg_grpc_proto.generated import tokenspeed_encoder_pb2_grpc  # noqa: E402
from smg_grpc_servicer.tokenspeed.encoder_servicer import TokenSpeedEncoderServicer  # noqa: E402


async def serve() -> None:
    async def send(payload: bytes) -> None:
        request = pickle.loads(payload)
        for item in request.items:
            tensor = item.feature
            say(
                request_id=request.request_id,
                room=request.bootstrap_room,
                shape=list(tensor.shape),
                dtype=tensor.dtype.name,
                sha256=hashlib.sha256(tensor.numpy()).hexdigest(),
            )

    engine = SimpleNamespace(
        model_config=SimpleNamespace(dtype=None),
        auto_create_handle_loop=lambda: None,
        engine_core_client=SimpleNamespace(send_to_scheduler=SimpleNamespace(send=send)),
    )
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 256 << 20)])
    servicer = TokenSpeedEncoderServicer(engine, SimpleNamespace(disaggregation_bootstrap_port=os.getpid()), {})
    tokenspeed_encoder_pb2_grpc.add_TokenSpeedEncoderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    say(event="ready", listen=f"127.0.0.1:{port}", up=drop_in.is_up(servicer._rdma_pixel_puller))
    await asyncio.to_thread(lambda: list(asked()))
    os._exit(0)  # NIXL's threads may outlive what they use


asyncio.run(serve())
