"""What every saved type is made of."""

from __future__ import annotations

import msgspec

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A small, immutable, named tuple of facts that reads and writes itself as JSON."""
