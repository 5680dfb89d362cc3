"""FLOPs and compulsory bytes of the instructions of XLA programs, from their shapes."""

from boundby.ops.hlo import costs  # noqa: F401  (registers the formulas)
