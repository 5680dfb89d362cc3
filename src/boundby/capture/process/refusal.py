"""Why a script goes on although enough of its steps were measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from boundby.capture.live_run import LiveCapture

# It caught the exception that ends it; or its steps are calls on a thread that another waits for.
Refusal = Literal["caught the end", "serves in a thread"]
OnRefusal = Callable[["LiveCapture", Refusal], None]
