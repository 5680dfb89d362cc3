"""One step as a model that can be changed and simulated, and what several faults share of it."""

import sys

sys.modules[__name__].__class__ = sys.modules["boundby"].CallablePackage
