"""Tensors as NumPy arrays, without a copy at either end."""

import tempfile

import numpy as np

import tensorferry

with (
    tempfile.TemporaryDirectory() as folder,
    tensorferry.Exporter(arena_bytes=16 << 20, local_socket=f"{folder}/gateway.sock") as exporter,
    tensorferry.Puller(landing_bytes=16 << 20) as puller,
):
    with exporter.export(np.arange(12, dtype=np.float32).reshape(3, 4)) as lease:
        tensor = puller.pull(lease.handle()).tensor(lease.dtype, lease.shape)
    # The lease has ended, but the view keeps its memory.
    array = tensor.numpy()
    assert not array.flags.writeable, "it is the gateway's own memory"
    print(array.sum(), tensor)
    mine = array.copy()
    del array, tensor  # now the gateway may use the memory again
    mine *= 2

    # bfloat16 needs the package ml_dtypes.
    staged = exporter.stage((2, 2), "bfloat16")
    staged.numpy()[:] = 1.5
    with staged.publish() as lease:
        print(puller.pull(lease.handle()).tensor("bfloat16", (2, 2)).numpy())
