"""Arrays to tensors and back. Memory is shared wherever that is safe: see Session.run."""

from typing import Any, Dict, List, Sequence, Union

import numpy as np

from monograph import _native

# DType numbers, TensorFlow's.
STRING, BFLOAT16, RESOURCE = 7, 14, 20
_NUMPY_TYPES: Dict[int, np.dtype] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.int32),
    4: np.dtype(np.uint8),
    5: np.dtype(np.int16),
    6: np.dtype(np.int8),
    8: np.dtype(np.complex64),
    9: np.dtype(np.int64),
    10: np.dtype(np.bool_),
    17: np.dtype(np.uint16),
    18: np.dtype(np.complex128),
    19: np.dtype(np.float16),
    22: np.dtype(np.uint32),
    23: np.dtype(np.uint64),
}
# Structures of one integer, which TensorFlow's `as_numpy_dtype` of these types is. Fetched are plain
# integers, as from TensorFlow's sessions.
_QUANTIZED: Dict[int, np.dtype] = {
    11: np.dtype([("qint8", np.int8)]),
    12: np.dtype([("quint8", np.uint8)]),
    13: np.dtype([("qint32", np.int32)]),
    15: np.dtype([("qint16", np.int16)]),
    16: np.dtype([("quint16", np.uint16)]),
}


def _numpy_type(dtype: int) -> np.dtype:
    if dtype == BFLOAT16:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError("bfloat16 needs the package ml_dtypes, which gives NumPy that type") from None
        return np.dtype(ml_dtypes.bfloat16)
    if dtype in _QUANTIZED:
        return _QUANTIZED[dtype][0]
    if dtype not in _NUMPY_TYPES:
        raise TypeError(f"tensors of type {dtype} have no elements that NumPy knows")
    return _NUMPY_TYPES[dtype]


def _texts(name: str, values: np.ndarray) -> List[bytes]:
    texts = []
    for value in values.reshape(-1).tolist():
        if isinstance(value, str):
            value = value.encode()
        if not isinstance(value, bytes):
            raise TypeError(f"feed '{name}': a string tensor takes str and bytes, not {value!r}")
        texts.append(value)
    return texts


def empty(shape: Union[int, Sequence[int]], dtype: Any = np.float32) -> np.ndarray:
    """An array to be filled, as numpy.empty makes one, in memory that daemons of this machine can
    read: fed to a session with the lane `reference` that was there before, it is not copied from
    1 MiB on."""
    wanted = np.dtype(dtype)
    for number, known in _NUMPY_TYPES.items():
        if known == wanted:
            dims = (shape,) if isinstance(shape, int) else tuple(shape)
            return np.asarray(_native.empty_tensor(number, dims))
    raise TypeError(f"there are no tensors of {wanted}")


def convert(name: str, value: Any, dtype: int) -> Any:
    """An array, row by row, or a Tensor, of this type, with the value of a feed."""
    if dtype == STRING:
        array = np.asarray(value, dtype=object)
        return _native.string_tensor(_texts(name, array), array.shape)
    wanted = _numpy_type(dtype)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        value = np.from_dlpack(value)
    array = np.asarray(value)
    if dtype in _QUANTIZED and array.dtype == _QUANTIZED[dtype]:
        array = array.view(wanted)
    if array.dtype != wanted:
        # Numbers of Python are taken if they fit; arrays have to be of a kind that does.
        if not np.can_cast(array.dtype, wanted, "same_kind") and array.size > 0:
            raise TypeError(f"feed '{name}': {array.dtype} cannot be fed for a tensor of {wanted}")
        if wanted.kind in "iu" and array.size > 0:
            limits = np.iinfo(wanted)
            if array.min() < limits.min or array.max() > limits.max:
                raise ValueError(f"feed '{name}': {array!r} does not fit into {wanted}")
    array = np.require(array, wanted, ["C_CONTIGUOUS", "ALIGNED"])
    return array.view(np.uint16) if dtype == BFLOAT16 else array


def to_numpy(tensor: _native.Tensor) -> Any:
    """The value of a fetch: a scalar of NumPy's, bytes, or an array."""
    shape = tensor.shape
    if tensor.dtype == STRING:
        texts = tensor.strings()
        if not shape:
            return texts[0]
        array = np.empty(len(texts), dtype=object)
        array[:] = texts
        return array.reshape(shape)
    if tensor.dtype == RESOURCE:
        raise TypeError("a resource handle cannot be fetched")
    # A variable may hold the same memory: its value is copied. What lies in a daemon's memory stays
    # as it is, and can only be read.
    array = np.asarray(tensor) if tensor.exclusive or tensor.constant else np.array(tensor)
    if tensor.dtype == BFLOAT16:
        array = array.view(_numpy_type(BFLOAT16))
    return array if shape else array[()]
