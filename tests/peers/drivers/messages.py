"""Prints SMG's own messages and services: a FileDescriptorSet in hexadecimal."""

from google.protobuf import descriptor_pb2
from smg_grpc_proto.generated import (
    common_pb2,
    tokenspeed_encoder_pb2,
    tokenspeed_scheduler_pb2,
    vllm_engine_pb2,
)

files = descriptor_pb2.FileDescriptorSet()
for module in (common_pb2, tokenspeed_scheduler_pb2, tokenspeed_encoder_pb2, vllm_engine_pb2):
    module.DESCRIPTOR.CopyToProto(files.file.add())
print(files.SerializeToString().hex())
