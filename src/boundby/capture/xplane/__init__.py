"""Reading XLA profiles: from an `.xplane.pb` file to one Timeline per step."""

from boundby.capture.xplane.trace import XlaTrace, read

__all__ = ["XlaTrace", "read"]
