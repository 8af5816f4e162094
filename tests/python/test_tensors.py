"""Tensors out and in: buffers, DLPack, NumPy, and when their memory is given back."""

import asyncio
import ctypes
import gc
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorferry
from tensorferry import Exporter, InputError, Puller, Receiver, Tensor

DTYPES = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "uint8": np.uint8,
    "int64": np.int64,
    "uint32": np.uint32,
}
SHAPES: list[tuple[int, ...]] = [(3, 5, 7), (4,), (), (0,), (2, 0, 3)]


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape).astype(DTYPES[dtype])


def pulled(gateway: Exporter, worker: Puller, array: Any, *, shm: bool) -> Tensor:
    """The gateway's object is gone: what is left is the worker's view."""
    with gateway.export(array) as lease:
        return worker.pull(lease.handle(shm=shm)).tensor(lease.dtype, lease.shape)


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


class Stranger:
    """Another library's tensor: DLPack alone, of before its versions."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device, self.copies = array, device, 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: None = None) -> object:
        assert stream is None
        return self.array.__dlpack__()


class Modern(Stranger):
    def __dlpack__(self, stream: None = None, max_version: tuple[int, int] | None = None) -> object:
        assert stream is None
        return self.array.__dlpack__(max_version=max_version)


@pytest.mark.parametrize("shm", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape_there_and_back(
    gateway: Exporter, worker: Puller, dtype: str, shape: tuple[int, ...], shm: bool
) -> None:
    array = sample(dtype, shape)
    with gateway.export(array) as lease:
        assert (lease.dtype, lease.shape) == (dtype, shape)
        assert lease.view().numpy().tobytes() == array.tobytes()
    tensor = pulled(gateway, worker, array, shm=shm)
    assert (tensor.dtype, tensor.shape, tensor.nbytes) == (dtype, shape, array.nbytes)
    got = tensor.numpy()
    assert (got.dtype, got.shape) == (array.dtype, shape)
    assert got.tobytes() == array.tobytes()
    assert got.flags.writeable is not shm
    memory = memoryview(tensor)
    assert (memory.shape, memory.itemsize, memory.readonly) == (shape, array.itemsize, shm)
    assert memory.tobytes() == array.tobytes()
    assert memory.format == {"bfloat16": "H", "int64": "q"}.get(dtype, array.dtype.char)


@pytest.mark.parametrize("shm", [True, False])
def test_all_interfaces_see_the_same_aligned_memory(gateway: Exporter, worker: Puller, shm: bool) -> None:
    tensor = pulled(gateway, worker, sample("float32", (3, 5)), shm=shm)
    arrays = [tensor.numpy(), np.from_dlpack(tensor), np.asarray(memoryview(tensor))]
    assert len({address(array) for array in arrays}) == 1
    assert address(arrays[0]) % 64 == 0
    assert all(array.flags.writeable is not shm for array in arrays)
    if not shm:
        arrays[0][1, 1] = 99
        assert arrays[1][1, 1] == 99


def capsule_name(capsule: object) -> bytes:
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name: bytes = get_name(capsule)
    return name


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def content(capsule: object) -> Versioned:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Versioned.from_address(get(capsule, b"dltensor_versioned"))


@pytest.mark.parametrize("shm", [True, False])
def test_dlpack_tells_its_version_and_what_may_be_written(gateway: Exporter, worker: Puller, shm: bool) -> None:
    tensor = pulled(gateway, worker, sample("bfloat16", (3, 5)), shm=shm)
    assert tensor.__dlpack_device__() == (1, 0)
    capsule = tensor.__dlpack__(max_version=(1, 0))
    assert capsule_name(capsule) == b"dltensor_versioned"
    told = content(capsule)
    assert (told.major, told.minor, told.flags) == (1, 0, 1 if shm else 0)
    assert (told.device_type, told.device_id, told.ndim) == (1, 0, 2)
    assert (told.code, told.bits, told.lanes) == (4, 16, 1)
    assert (told.shape[:2], told.strides[:2], told.byte_offset) == ([3, 5], [5, 1], 0)
    assert told.data == address(np.asarray(memoryview(tensor)))
    for newer in ((1, 7), (2, 0)):
        assert content(tensor.__dlpack__(max_version=newer)).major == 1

    copy = tensor.__dlpack__(max_version=(1, 0), copy=True)
    assert content(copy).flags == 2
    assert content(copy).data != told.data
    assert ctypes.string_at(content(copy).data, 30) == bytes(tensor)

    if shm:
        with pytest.raises(BufferError, match="read-only"):
            tensor.__dlpack__()
    else:
        assert capsule_name(tensor.__dlpack__()) == b"dltensor"
        assert capsule_name(tensor.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert capsule_name(tensor.__dlpack__(copy=True)) == b"dltensor"
    with pytest.raises(BufferError, match="stream"):
        tensor.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="device"):
        tensor.__dlpack__(dl_device=(2, 0))
    assert tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0)) is not None


# Its absence is no failure, not even a test that was left out.
if importlib.util.find_spec("torch") is not None:

    def test_torch_sees_the_same_memory(gateway: Exporter, worker: Puller) -> None:
        import torch

        tensor = pulled(gateway, worker, sample("bfloat16", (3, 5)), shm=False)
        got = torch.from_dlpack(tensor)
        assert got.dtype == torch.bfloat16
        assert got.data_ptr() == address(np.asarray(memoryview(tensor)))
        with gateway.export(got) as lease:
            assert (lease.dtype, lease.shape) == ("bfloat16", (3, 5))
            assert bytes(lease.view()) == bytes(tensor)


@pytest.mark.parametrize("wrap", [lambda array: array, Stranger, Modern], ids=["buffer", "dlpack", "dlpack 1"])
def test_a_pull_fills_what_has_an_interface(gateway: Exporter, worker: Puller, wrap: Callable[[Any], Any]) -> None:
    array = sample("float32", (4, 5))
    with gateway.export(array) as lease:
        into = np.zeros_like(array)
        references = sys.getrefcount(into)
        assert worker.pull_into(lease.handle(shm=False), wrap(into)) == "tcp"
        assert (into == array).all()
        into[:] = 0
        assert asyncio.run(worker.pull_into_async(lease.handle(), wrap(into))) == "local"
        assert (into == array).all()
        assert sys.getrefcount(into) == references
        with pytest.raises(InputError, match="contiguous"):
            worker.pull_into(lease.handle(), wrap(np.zeros((5, 4), np.float32).T))
        into.flags.writeable = False
        with pytest.raises((InputError, BufferError, ValueError), match=r"read-?only"):
            worker.pull_into(lease.handle(), wrap(into))
        with pytest.raises(TypeError, match="__dlpack__"):
            worker.pull_into(lease.handle(), 42)


PYBUF_STRIDES, PYBUF_C, PYBUF_F, PYBUF_ANY = 0x18, 0x38, 0x58, 0x98


class Buffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def ask(tensor: Tensor, flags: int) -> tuple[list[int] | None, list[int] | None, bytes | None]:
    """What a consumer in C is told."""
    buffer = Buffer()
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes, release.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int], [ctypes.c_void_p]
    get(tensor, ctypes.byref(buffer), flags)
    told = (
        buffer.shape[: buffer.ndim] if buffer.shape else None,
        buffer.strides[: buffer.ndim] if buffer.strides else None,
        buffer.format,
    )
    release(ctypes.byref(buffer))
    return told


def test_consumers_in_c_are_told_what_they_ask_for(gateway: Exporter, worker: Puller) -> None:
    simple, writable, form, nd = 0, 1, 4, 8
    tensor = pulled(gateway, worker, sample("float32", (3, 5)), shm=True)
    assert ask(tensor, simple) == (None, None, None)
    assert ask(tensor, form) == (None, None, b"f")
    assert ask(tensor, nd) == ([3, 5], None, None)
    for flags in (PYBUF_STRIDES, PYBUF_C, PYBUF_ANY):
        assert ask(tensor, flags) == ([3, 5], [20, 4], None)
    with pytest.raises(BufferError, match="column-major"):
        ask(tensor, PYBUF_F)
    with pytest.raises(BufferError, match="read-only"):
        ask(tensor, writable)
    for shape in ((7,), (1, 7), (7, 1), (), (3, 0)):
        both = pulled(gateway, worker, sample("float32", shape), shm=False)
        assert ask(both, PYBUF_F | writable)[:2] == ask(both, PYBUF_C)[:2]
    tensor.release()  # nothing was left behind


def test_without_ml_dtypes_numpy_says_what_to_do(
    gateway: Exporter, worker: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = pulled(gateway, worker, sample("bfloat16", (2,)), shm=True)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="install ml_dtypes"):
        tensor.numpy()


HOLDERS: dict[str, Callable[[Tensor], object]] = {
    "view": lambda tensor: tensor,
    "memoryview": memoryview,
    "numpy": lambda tensor: tensor.numpy(),
    "slice": lambda tensor: tensor.numpy()[1:],
    "dlpack": np.from_dlpack,
    "capsule": lambda tensor: tensor.__dlpack__(max_version=(1, 0)),
    "tensor of it": lambda tensor: tensor.tensor("uint8", (tensor.nbytes,)),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("shm", [True, False])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "another thread"])
def test_memory_is_given_back_when_the_last_holder_dies(
    gateway: Exporter, worker: Puller, holder: str, shm: bool, elsewhere: bool
) -> None:
    def used() -> int:
        return gateway.stats().used_bytes if shm else worker.stats().landing_used_bytes

    held = [HOLDERS[holder](pulled(gateway, worker, sample("float32", (100, 10)), shm=shm))]
    gc.collect()
    assert used() >= 4000
    if elsewhere:
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
    else:
        held.clear()
    gc.collect()
    for _ in range(1000):
        if used() == 0:
            break
        threading.Event().wait(0.01)  # the gateway looks at its boards now and then
    assert used() == 0


def deleter(capsule: object) -> tuple[int, int]:
    """Of a capsule that is taken here, as a consumer in C does: the function, and what to call it with."""
    told = content(capsule)
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    rename(capsule, USED)
    function = ctypes.cast(told.deleter, ctypes.c_void_p).value
    assert function is not None
    return function, ctypes.addressof(told)


USED = b"used_dltensor_versioned"


@pytest.mark.parametrize("lane", ["inline", "shm", "remote"])
def test_a_thread_that_python_does_not_know_may_give_it_back(gateway: Exporter, worker: Puller, lane: str) -> None:
    message = bytearray(b"abc")
    if lane == "inline":
        tensor = Receiver().receive(SimpleNamespace(dtype="uint8", shape=[3], inline=message))
    else:
        tensor = pulled(gateway, worker, message, shm=lane == "shm")
    capsule = tensor.__dlpack__(max_version=(1, 0))
    function, argument = deleter(capsule)
    del tensor, capsule
    if lane == "inline":
        with pytest.raises(BufferError):
            message.append(0)
    else:
        assert gateway.stats().used_bytes if lane == "shm" else worker.stats().landing_used_bytes
    libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
    started = libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(function), ctypes.c_void_p(argument))
    assert started == 0
    assert libc.pthread_join(thread, None) == 0
    message.append(0)
    assert worker.stats().landing_used_bytes == 0
    for _ in range(1000):
        if gateway.stats().used_bytes == 0:
            break
        threading.Event().wait(0.01)  # the gateway looks at its boards now and then
    assert gateway.stats().used_bytes == 0


def test_release_gives_back_at_once_unless_it_is_in_use(gateway: Exporter, worker: Puller) -> None:
    tensor = pulled(gateway, worker, sample("float32", (10,)), shm=False)
    array = tensor.numpy()
    with pytest.raises(BufferError, match="in use"):
        tensor.release()
    taken = np.from_dlpack(tensor)
    del array
    with tensor as same:
        assert same is tensor
    assert "released" in repr(tensor)
    assert worker.stats().landing_used_bytes > 0, "what was taken by DLPack stays"
    assert taken[9] == 9
    del taken
    assert worker.stats().landing_used_bytes == 0
    tensor.release()
    for use in (tensor.numpy, lambda: memoryview(tensor), lambda: tensor.__dlpack__(max_version=(1, 0))):
        with pytest.raises(BufferError, match="was released"):
            use()


AT_EXIT = """
import sys, threading, asyncio, tensorferry
gateway = tensorferry.Exporter(arena_bytes=8 << 20, listen="127.0.0.1:0", local_socket=sys.argv[1])
worker = tensorferry.Puller(landing_bytes=2 << 20)
lease = gateway.export(bytes(2 << 20))
views = [worker.pull(lease.handle(shm=shm)) for shm in (True, False)]
arrays = [memoryview(view) for view in views]
capsules = [view.__dlpack__(max_version=(1, 0)) for view in views]
threading.Thread(target=lambda: worker.pull(lease.handle(shm=False), timeout=600), daemon=True).start()
worker._core.pull_async(lease.handle(shm=False).parts(), 600, None, None, lambda view, error: print(error.reason))
while worker.stats().waiting_for_landing < 2: pass
sys.modules["kept"] = (gateway, worker, lease, views, arrays, capsules)
print("ready")
"""


def test_a_process_that_holds_everything_ends_in_peace(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", AT_EXIT, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ready", "shut_down"]
    assert "nanobind" not in done.stderr


@pytest.mark.parametrize("wrap", [Stranger, Modern])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dlpack_comes_in(gateway: Exporter, wrap: type[Stranger], shape: tuple[int, ...]) -> None:
    array = sample("float32", shape)
    references = sys.getrefcount(array)
    with gateway.export(wrap(array)) as lease:
        assert (lease.dtype, lease.shape) == ("float32", shape)
        assert bytes(lease.view()) == array.tobytes()
    assert sys.getrefcount(array) == references


def test_a_view_goes_on_to_another_worker(gateway: Exporter, worker: Puller) -> None:
    tensor = pulled(gateway, worker, sample("bfloat16", (3, 4)), shm=True)
    with gateway.export(tensor) as lease:
        assert (lease.dtype, lease.shape) == ("bfloat16", (3, 4))
        assert bytes(lease.view()) == bytes(tensor)


@pytest.mark.parametrize("wrap", [lambda array: array, Stranger, Modern], ids=["buffer", "dlpack", "dlpack 1"])
@pytest.mark.parametrize(
    "cut",
    [
        lambda array: array.T,
        lambda array: array[::2],
        lambda array: array[:, ::-1],
        lambda array: array[:, 1:3],
        lambda array: np.lib.stride_tricks.as_strided(array, (4, 6), (0, 4)),
    ],
    ids=["transposed", "every second", "reversed", "columns", "repeated"],
)
def test_what_is_not_contiguous_is_refused_unless_it_may_be_copied(
    gateway: Exporter, wrap: Callable[[Any], Any], cut: Callable[[Any], Any]
) -> None:
    array = cut(sample("float32", (4, 6, 5)))
    with pytest.raises(InputError, match="copy=True"):
        gateway.export(wrap(array))
    with gateway.export(wrap(array), copy=True) as lease:
        assert lease.shape == array.shape
        assert bytes(lease.view()) == array.tobytes()


def test_dimensions_of_one_have_no_stride_that_counts(gateway: Exporter) -> None:
    array = sample("float32", (4, 6))[:, None, :]
    with gateway.export(array) as lease:
        assert bytes(lease.view()) == array.tobytes()
    with gateway.export(sample("float32", (6, 6))[2:3, :]) as lease:
        assert lease.shape == (1, 6)


def test_what_cannot_be_a_tensor_is_refused(gateway: Exporter) -> None:
    with pytest.raises(TypeError, match="__dlpack__"):
        gateway.export(42)
    with pytest.raises(TypeError, match="__dlpack__"):
        gateway.export([1, 2])
    with pytest.raises(InputError, match="device"):
        gateway.export(Stranger(sample("uint8", (2,)), device=(2, 0)))
    with pytest.raises(InputError, match="big-endian"):
        gateway.export(np.arange(3, dtype=">f4"))
    assert gateway.stats().writing == gateway.stats().published == 0


def test_other_element_types_are_bytes_without_a_name(gateway: Exporter) -> None:
    array = np.arange(6, dtype=np.complex64)
    with gateway.export(array) as lease:
        assert (lease.dtype, lease.nbytes) == ("", 48)
        assert bytes(lease.view()) == array.tobytes()


def test_a_tensor_must_fit_its_bytes(gateway: Exporter, worker: Puller) -> None:
    with gateway.export(bytes(12)) as lease:
        view = worker.pull(lease.handle())
        for dtype, shape, reason in (
            ("float32", (4,), "size_mismatch"),
            ("float32", (-3,), "bad_shape"),
            ("float32", (1 << 32,), "bad_shape"),
            ("int64", (1 << 31, 1 << 31, 4), "bad_shape"),
            ("complex64", (3,), "unknown_dtype"),
        ):
            with pytest.raises(tensorferry.Error) as raised:
                view.tensor(dtype, shape)
            assert raised.value.reason == reason
        assert view.tensor("float32", [3]).shape == (3,)
        assert len(view) == 12
        with pytest.raises(TypeError):
            len(pulled(gateway, worker, sample("float32", ()), shm=True))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shm", [True, False])
def test_more_than_two_gib(tmp_path: Any, shm: bool) -> None:
    shape = (2, (1 << 30) + 4096)
    nbytes = shape[0] * shape[1]
    with (
        tensorferry.Exporter(
            arena_bytes=nbytes + (64 << 20),
            listen="127.0.0.1:0",
            local_socket=str(tmp_path / "s"),
            max_claim_percent=100,
        ) as gateway,
        Puller(landing_bytes=nbytes + (64 << 20), prefault=False) as worker,
    ):
        # Either way of them; both together would need a large machine.
        staged = None if shm else gateway.stage(shape, "uint8")
        array = np.empty(shape, np.uint8) if staged is None else staged.numpy()
        array[:] = 1
        array[1, -1] = 7
        array[1, 0] = 5
        with gateway.export(array) if staged is None else staged.publish() as lease:
            assert (lease.dtype, lease.shape, lease.nbytes) == ("uint8", shape, nbytes)
            tensor = worker.pull(lease.handle(shm=shm), timeout=300).tensor("uint8", shape)
            got = np.from_dlpack(tensor)
            assert got.shape == shape
            assert (int(got[1, -1]), int(got[1, 0]), int(got[0, -1])) == (7, 5, 1)
            assert memoryview(tensor).nbytes == nbytes
        del got, tensor, array
