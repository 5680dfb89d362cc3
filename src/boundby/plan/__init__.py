"""The cost of a step on hardware that is not available: chips, meshes, collectives, models."""

import sys

sys.modules[__name__].__class__ = sys.modules["boundby"].CallablePackage
