"""Tensors as torch's, without a copy at either end. Without torch it says so, and that is no failure."""

import importlib.util
import sys

import tensorferry

if importlib.util.find_spec("torch") is None:
    print("torch is not installed")
    sys.exit(0)

import torch

with (
    tensorferry.Exporter(arena_bytes=16 << 20, listen="127.0.0.1:0") as exporter,
    tensorferry.Puller(landing_bytes=16 << 20) as puller,
):
    with exporter.export(torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)) as lease:
        tensor = torch.from_dlpack(puller.pull(lease.handle()).tensor(lease.dtype, lease.shape))
    print(tensor.sum().item(), tuple(tensor.shape))
