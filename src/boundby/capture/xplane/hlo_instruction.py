"""The attributes of an instruction, besides its shapes, on which its cost depends."""

from __future__ import annotations

import re
from typing import Any, TypedDict

import msgspec

from boundby.capture.xplane import hlo_schema as schema
from boundby.capture.xplane.wire import Field, fields, packed, signed, text
from boundby.model import ConvolutionDimensions, Window

_GEMM = "gemm_backend_config"
_ATTENTION = "cudnn_fmha_backend_config"
_CAUSAL = "CAUSAL"
_EXACT = ("HIGH", "HIGHEST")
# Attributes of an attention of TransformerEngine, as MLIR text. Its tensors are
# [batch, rows, heads, width]; masks 2 to 5 are causal.
_ATTENTION_TEXT = re.compile(rb"\bqk_head_dim = ")
_CAUSAL_TEXT = re.compile(rb"\bmask_type = [2-5]\b")


class Attributes(TypedDict, total=False):
    """The fields of an `HloInstruction` that were read so far."""

    parameter: int
    element: int
    contracting: tuple[int, ...]
    batch: tuple[int, ...]
    exact: bool
    window: tuple[Window, ...]
    convolution: ConvolutionDimensions
    target: str
    causal: bool
    trip_count: int


def read_attributes(data: bytes, parts: list[Field]) -> Attributes:
    found = Attributes()
    for part in parts:
        match part.number:
            case schema.PARAMETER if not part.end:
                found["parameter"] = part.value
            case schema.ELEMENT if not part.end:
                found["element"] = part.value
            case schema.TARGET:
                found["target"] = text(data, part)
            case schema.DOT if part.end:
                found["contracting"] = tuple(_numbers(data, part).get(1, []))
            case schema.PRECISION if part.end:
                if any(_numbers(data, part).get(1, [])):
                    found["exact"] = True
            case schema.WINDOW if part.end:
                found["window"] = _window(data, part)
            case schema.CONVOLUTION if part.end:
                found["convolution"] = _convolution(data, part)
            case schema.CONFIG if part.end:
                _configure(found, data[part.value : part.end])
    return found


def _numbers(data: bytes, message: Field) -> dict[int, list[int]]:
    """All number fields of a message; repeated ones in order."""
    found: dict[int, list[int]] = {}
    for part in fields(data, message.value, message.end):
        found.setdefault(part.number, []).extend(packed(data, part))
    return found


def _window(data: bytes, message: Field) -> tuple[Window, ...]:
    dimensions = []
    for part in fields(data, message.value, message.end):
        if part.number != 1 or not part.end:
            continue
        one = {p.number: signed(p.value) for p in fields(data, part.value, part.end) if not p.end}
        dimensions.append(
            Window(
                size=one.get(1, 1),
                stride=one.get(2, 1),
                padding_low=one.get(3, 0),
                dilation=one.get(5, 1),
                base_dilation=one.get(6, 1),
            )
        )
    return tuple(dimensions)


def _convolution(data: bytes, message: Field) -> ConvolutionDimensions:
    numbers = _numbers(data, message)

    def one(number: int) -> int:
        return numbers.get(number, [0])[0]

    def several(number: int) -> tuple[int, ...]:
        return tuple(numbers.get(number, []))

    return ConvolutionDimensions(
        input_spatial=several(11),
        kernel_input=one(3),
        output_batch=one(9),
        output_feature=one(10),
        output_spatial=several(12),
    )


def _configure(found: Attributes, raw: bytes) -> None:
    """The backend's notes: dimensions of library calls, trip counts of loops."""
    if raw[:1] != b"{":
        return
    if _ATTENTION_TEXT.search(raw):
        found["batch"], found["contracting"] = (0, 2), (3,)
        found["causal"] = _CAUSAL_TEXT.search(raw) is not None
        return
    try:
        config: Any = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    product = _inside(config, _GEMM, "dot_dimension_numbers")
    scores = _inside(config, _ATTENTION, "bmm1_dot_dimension_numbers")
    if (contracted := _list(product or scores, "lhs_contracting_dimensions")) is not None:
        found["contracting"] = contracted
    if (batch := _list(scores, "lhs_batch_dimensions")) is not None:
        found["batch"] = batch
    precision = _inside(config, _GEMM, "precision_config", "operand_precision")
    if isinstance(precision, list) and any(one in _EXACT for one in precision):
        found["exact"] = True
    count = _whole(_inside(config, "known_trip_count", "n"))
    if count is not None:
        found["trip_count"] = count
    if _inside(config, _ATTENTION, "mask_type") == _CAUSAL:
        found["causal"] = True


def _inside(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(value: Any, name: str) -> tuple[int, ...] | None:
    found = _inside(value, name)
    if not isinstance(found, list):
        return None
    return tuple(number for number in map(_whole, found) if number is not None)


def _whole(value: Any) -> int | None:
    """A number in JSON: protobuf writes 64-bit numbers as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    return value if type(value) is int and 0 <= value < 1 << 62 else None
