"""A gateway: offers a tensor to a worker by shared memory or the network, and sends its bytes if neither will do."""

import sys
from typing import Any

import grpc
import numpy as np
from smg_grpc_proto.generated import common_pb2, tokenspeed_encoder_pb2, tokenspeed_encoder_pb2_grpc

import tensorferry
import tensorferry.grpc

ROOM = 77

socket = f"/tmp/tensorferry-example-{sys.argv[1].rpartition(':')[2]}.sock"
options: dict[str, Any] = {"arena_bytes": 64 << 20, "listen": "127.0.0.1:0", "local_socket": socket}
with grpc.insecure_channel(sys.argv[1]) as channel, tensorferry.Exporter(**options) as exporter:
    worker = tensorferry.grpc.get_capabilities(channel)
    staged = exporter.stage((3, 448, 448), "float32")
    staged.numpy()[:] = np.linspace(0, 1, 448, dtype=np.float32)  # written in place, where workers read it
    with staged.publish(key=ROOM) as lease:  # until the RPC has ended
        request = tokenspeed_encoder_pb2.EncodeRequest(request_id="example")
        request.items.add(bootstrap_room=ROOM)
        item = request.mm_inputs.items.add(modality=common_pb2.IMAGE)
        item.placeholders.add(length=1)
        lease.fill(item.encoder_input, inline=worker is None or lease.error is not None)
        encode = tokenspeed_encoder_pb2_grpc.TokenSpeedEncoderStub(channel).Encode
        try:
            response = encode(request, timeout=30)
        except grpc.RpcError as error:
            if tensorferry.grpc.pull_failure(error) is None:
                raise  # not about the tensor
            lease.fill(item.encoder_input, inline=True)
            response = encode(request, timeout=30)
        print("accepted" if response.accepted else "refused", lease.nbytes, "bytes")
