"""Saved diagnoses, also of older versions."""

import msgspec

from boundby.model import UNKNOWN_PRECISION, Precision
from boundby.model.diagnosis import Diagnosis
from tests.diagnoses import full_diagnosis


def test_diagnosis_without_precision_is_loaded() -> None:
    told = msgspec.structs.replace(full_diagnosis(), precision=Precision(products="tf32"))
    saved = msgspec.json.encode(told)
    assert msgspec.json.decode(saved, type=Diagnosis).precision.products == "tf32"
    fields = msgspec.json.decode(saved)
    del fields["precision"]
    assert (
        msgspec.json.decode(msgspec.json.encode(fields), type=Diagnosis).precision
        == UNKNOWN_PRECISION
    )
