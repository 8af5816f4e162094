"""Calls Encode of a TokenSpeed encoder with SMG's own messages: what each line names."""

import os
import sys
from typing import Any

import grpc
from peers.drivers.lines import asked, say
from smg_grpc_proto.generated import common_pb2, tokenspeed_encoder_pb2, tokenspeed_encoder_pb2_grpc
from smg_grpc_proto.generated import tokenspeed_scheduler_pb2 as scheduler


def tensor(what: dict[str, Any]) -> Any:
    ((kind, payload),) = what["payload"].items()
    if kind == "inline":
        filled: dict[str, Any] = {"inline": bytes.fromhex(payload)}
    elif kind == "shm":
        filled = {"shm": common_pb2.ShmHandle(**payload)}
    else:
        descriptor = bytes.fromhex(payload.pop("descriptor"))
        filled = {"remote": common_pb2.RemoteTensorHandle(descriptor=descriptor, **payload)}
    return scheduler.TensorData(shape=what["shape"], dtype=what["dtype"], **filled)


def request(what: dict[str, Any]) -> Any:
    item = scheduler.MultimodalItem(
        modality=common_pb2.IMAGE,
        encoder_input=tensor(what),
        placeholders=[scheduler.PlaceholderRange(offset=0, length=4)],
    )
    return tokenspeed_encoder_pb2.EncodeRequest(
        request_id=what["request_id"],
        mm_inputs=scheduler.MultimodalInputs(items=[item]),
        items=[tokenspeed_encoder_pb2.EncodeItemAssignment(bootstrap_room=what["room"])],
    )


channel = grpc.insecure_channel(sys.argv[1], options=[("grpc.max_send_message_length", -1)])
encoder = tokenspeed_encoder_pb2_grpc.TokenSpeedEncoderStub(channel)
say(event="ready")
for line in asked():
    try:
        say(accepted=encoder.Encode(request(line), timeout=line["timeout"]).accepted)
    except grpc.RpcError as error:
        say(code=error.code().name, error=error.details())
os._exit(0)
