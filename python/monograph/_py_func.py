"""Functions that nodes call: tf.py_func, tf.numpy_function, tf.py_function.

TensorFlow makes the nodes and keeps the functions, by token. A kernel calls `_call`, on a thread of
the runtime; the values are copied, as the function may keep its arrays.
"""

import traceback
from typing import Any, List, Tuple

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import constant_op, dtypes
from tensorflow.python.ops import script_ops

from monograph import _native
from monograph._arrays import BFLOAT16, STRING, convert, to_numpy

# The codes that TensorFlow gives to what a function raises; others are UNKNOWN.
_CODES = ((StopIteration, 11), (MemoryError, 8), (NotImplementedError, 12), ((ValueError, TypeError), 3))
_UNKNOWN = 2


def _call(token: str, eager: bool, inputs: List[_native.Tensor], types: List[int]) -> Tuple[int, Any]:
    """Code 0 and the values, or a code and what went wrong."""
    try:
        arguments = [to_numpy(tensor) for tensor in inputs]
        inputs.clear()
        if eager:
            with context.eager_mode():
                tensors = [constant_op.constant(argument) for argument in arguments]
                results = script_ops._py_funcs(token, _CPU, tensors)
                values = [_array_of(result) for result in _as_list(results)]
        else:
            values = _as_list(script_ops._py_funcs(token, None, arguments))
        return 0, _checked(token, values, types)
    except Exception as error:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), _UNKNOWN)
        text = f"{type(error).__name__}: {error}\n" + "".join(traceback.format_exception(error))
        return code, text


_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def _as_list(results: Any) -> List[Any]:
    if results is None or (isinstance(results, np.ndarray) and results.ndim == 0 and results.item() is None):
        return []
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _array_of(tensor: Any) -> Any:
    return tensor.numpy() if hasattr(tensor, "numpy") else tensor


def _checked(token: str, values: List[Any], types: List[int]) -> List[Any]:
    if len(values) != len(types):
        raise ValueError(f"{token} returns {len(values)} values, but its node has {len(types)} outputs")
    checked = []
    for i, (value, number) in enumerate(zip(values, types)):
        array = np.asarray(value)
        if number == STRING and array.dtype.kind in "SUO":
            checked.append(convert(token, np.asarray(value, dtype=object), STRING))
            continue
        wanted = dtypes.as_dtype(number)
        if number == STRING or array.dtype != wanted.as_numpy_dtype:
            raise TypeError(f"value {i} that {token} returns is {array.dtype}, but its node's output is {wanted.name}")
        array = np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
        checked.append(array.view(np.uint16) if number == BFLOAT16 else array)
    return checked


_native.set_py_func_handler(_call)
