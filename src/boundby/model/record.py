"""The base class of all saved types."""

from __future__ import annotations

import msgspec

SCHEMA = 1  # version of the format
# 2: `notes`, each with a code, in place of `warnings`.
DIAGNOSIS_SCHEMA = 2


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A frozen struct that is read and written as JSON."""
