"""Stands in for torch in the stock peers' processes: the few calls that SMG's worker makes, over numpy.

The real one is gigabytes of CUDA, and would refuse to pin memory on a machine without a GPU. What is tested is the
transport around it. bfloat16 is held as uint16.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class dtype:  # noqa: N801
    def __init__(self, name: str, held_as: str, is_float: bool) -> None:
        self.name = name
        self.held_as = np.dtype(held_as)
        self.is_float = is_float
        self.itemsize = self.held_as.itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"


float32 = dtype("float32", "<f4", True)
float16 = dtype("float16", "<f2", True)
bfloat16 = dtype("bfloat16", "<u2", True)
uint8 = dtype("uint8", "u1", False)
uint16 = dtype("uint16", "<u2", False)
uint32 = dtype("uint32", "<u4", False)
int64 = dtype("int64", "<i8", False)

_BY_ARRAY = {d.held_as: d for d in (float32, float16, uint8, uint16, uint32, int64)}


class Tensor:
    def __init__(self, array: Array, of: dtype) -> None:
        self._array = array
        self.dtype = of
        self.shape = array.shape

    def numpy(self) -> Array:
        return self._array

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def is_floating_point(self) -> bool:
        return self.dtype.is_float

    def element_size(self) -> int:
        return self.dtype.itemsize

    def view(self, of: dtype) -> "Tensor":
        return Tensor(self._array.view(of.held_as), of)

    def reshape(self, *shape: int) -> "Tensor":
        return Tensor(self._array.reshape(*shape), self.dtype)

    def clone(self) -> "Tensor":
        return Tensor(self._array.copy(), self.dtype)


def empty(size: int | tuple[int, ...], *, dtype: dtype = float32, pin_memory: bool = False) -> Tensor:
    del pin_memory
    return Tensor(np.empty(size, dtype.held_as), dtype)


def from_numpy(array: Array) -> Tensor:
    return Tensor(array, _BY_ARRAY[array.dtype])


def is_floating_point(tensor: Tensor) -> bool:
    return tensor.is_floating_point()
