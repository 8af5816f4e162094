"""Moves tensors between an LLM gateway and its inference workers beside gRPC instead of inside it.

A worker:

    puller = tensorferry.Puller(allow=["10.0.0.0/24"])
    receiver = tensorferry.Receiver(puller)
    tensor = await receiver.receive_async(item.encoder_input, timeout=5)
    array = torch.from_dlpack(tensor)          # or tensor.numpy(), memoryview(tensor)

A gateway:

    exporter = tensorferry.Exporter(listen="10.0.0.5:18515", local_socket="/run/gateway/tensorferry.sock")
    with exporter.export(array) as lease:      # until the RPC has ended
        lease.fill(request.mm_inputs.items[0].encoder_input)

``tensorferry.grpc`` tells gateways what a worker takes; ``tensorferry.smg`` stands in for SMG's own worker classes.
"""

from tensorferry import _core
from tensorferry._capabilities import Capabilities, describe_worker
from tensorferry._errors import Error, InputError, OperationError, PullCancelledError, TimedOutError
from tensorferry._exporter import Exporter, ExporterStats, Lease, Staged
from tensorferry._handle import Descriptor, Handle, Way
from tensorferry._message import TensorData
from tensorferry._puller import Cancellation, Puller, PullerStats
from tensorferry._receiver import Receiver
from tensorferry._settings import Settings
from tensorferry._view import Tensor, View

__version__: str = _core.version

__all__ = [
    "Cancellation",
    "Capabilities",
    "Descriptor",
    "Error",
    "Exporter",
    "ExporterStats",
    "Handle",
    "InputError",
    "Lease",
    "OperationError",
    "PullCancelledError",
    "Puller",
    "PullerStats",
    "Receiver",
    "Settings",
    "Staged",
    "Tensor",
    "TensorData",
    "TimedOutError",
    "View",
    "Way",
    "__version__",
    "describe_worker",
]
