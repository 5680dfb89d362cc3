"""What every saved type is made of."""

from __future__ import annotations

import msgspec

SCHEMA = 1
# 2: `notes`, each with a code, in place of `warnings`.
DIAGNOSIS_SCHEMA = 2


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A small, immutable, named tuple of facts that reads and writes itself as JSON."""
