"""The dtypes allowed for float32 products."""

from __future__ import annotations

from boundby.model.record import Record


class Precision(Record, frozen=True, kw_only=True):
    """The dtype allowed for products of float32: "float32", "tf32", "bfloat16"; None if unknown.

    Allowed does not mean used: a library uses the shorter dtype only if its units are faster in it.
    """

    products: str | None = None
    convolutions: str | None = None
    recurrent: str | None = None


# For a trace, which does not record these settings.
UNKNOWN_PRECISION = Precision()
