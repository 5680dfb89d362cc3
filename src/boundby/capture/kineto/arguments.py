"""The recorded arguments of an operator, from the trace's JSON to the model's types."""

from __future__ import annotations

from typing import Any

import msgspec

from boundby.capture.kineto.names import clean
from boundby.model import Argument, OpCall, Tensor

# Name, then the raw JSON of shapes, types, strides and values: equal bytes, equal calls.
CallKey = tuple[str, bytes, bytes, bytes, bytes]

# The profiler prints C++ type names.
_DTYPES = {
    "double": "float64",
    "float": "float32",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "long": "int64",
    "long int": "int64",
    "long long": "int64",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "char": "int8",
    "unsigned char": "uint8",
    "unsigned short": "uint16",
    "uint16_t": "uint16",
    "unsigned int": "uint32",
    "uint32_t": "uint32",
    "unsigned long": "uint64",
    "uint64_t": "uint64",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
_FLOAT8 = "c10::Float8_"
_TENSOR_LIST = "TensorList"

# Collectives, and files that other tools write, have torch's scalar type names instead.
MESSAGE_TYPES = {
    "Double": "float64",
    "Float": "float32",
    "BFloat16": "bfloat16",
    "Half": "float16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "Float8_e4m3fn": "float8",
    "Float8_e5m2": "float8",
}

# torch writes lists; other tools write tuples.
_BRACKETS = (("[", "]"), ("(", ")"))
_CONSTANTS: dict[str, Any] = {"": None, "None": None, "True": True, "False": False}


def parse(key: CallKey) -> OpCall:
    """One operator call; what was not recorded, or not understood, is None."""
    name, *raw = key
    shapes, types, strides, values = (_array(text) for text in raw)
    args = tuple(
        _argument(*(_at(column, index) for column in (shapes, types, strides, values)))
        for index in range(max(len(shapes), len(values)))
    )
    return OpCall(name=clean(name), args=args)


def lacks_dtype(call: OpCall) -> bool:
    """Whether it has a list of tensors, whose dtype the profiler does not record."""
    lists = (given for given in call.args if isinstance(given, tuple))
    return any(isinstance(one, Tensor) and not one.dtype for given in lists for one in given)


def with_list_dtype(call: OpCall, element: str) -> OpCall:
    """The call with this dtype for the tensors of its lists."""

    def known(given: Argument) -> Argument:
        if isinstance(given, tuple):
            return tuple(known(one) for one in given)
        if isinstance(given, Tensor) and not given.dtype:
            return msgspec.structs.replace(given, dtype=element)
        return given

    return msgspec.structs.replace(call, args=tuple(map(known, call.args)))


def dtype(type_name: object) -> str | None:
    """The model's name of a C++ element type; None if it has none."""
    if not isinstance(type_name, str):
        return None
    if type_name.startswith(_FLOAT8):
        return "float8"
    return _DTYPES.get(type_name) or MESSAGE_TYPES.get(type_name)


def _array(text: bytes) -> list[Any]:
    try:
        found = msgspec.json.decode(text) if text else []
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _argument(shape: Any, type_name: Any, strides: Any, value: Any) -> Argument:
    if type_name == _TENSOR_LIST:
        return _tensor_list(shape, strides)
    element = dtype(type_name)
    if element is not None and (extents := _extents(shape)) is not None:
        return Tensor(shape=extents, dtype=element, strides=_strides(strides, extents))
    return _value(value)


def _tensor_list(shapes: Any, strides: Any) -> Argument:
    """Tensors without a dtype: the profiler does not record it inside lists."""
    if not isinstance(shapes, list) or not shapes:
        return None
    lists = strides if isinstance(strides, list) else []
    return tuple(
        Tensor(shape=extents, dtype="", strides=_strides(_at(lists, index), extents))
        for index, shape in enumerate(shapes)
        if (extents := _extents(shape)) is not None
    )


def _extents(shape: Any) -> tuple[int, ...] | None:
    if isinstance(shape, list) and all(type(extent) is int for extent in shape):
        return tuple(shape)
    return None


def _strides(strides: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """One stride per dimension; a damaged file may have another number."""
    found = _extents(strides)
    return found if found is not None and len(found) == len(shape) else None


def _value(text: Any) -> Argument:
    """A plain value from the text that Python printed for it; other text stays text."""
    if not isinstance(text, str):
        return None
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if (text[0], text[-1]) in _BRACKETS:
        items = text[1:-1].split(",") if text[1:-1].strip() else []
        return tuple(_value(item.strip()) for item in items)
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return clean(text)
