"""A step as a model that can be edited and simulated, and what several faults need to know about
it."""

import sys

sys.modules[__name__].__class__ = sys.modules["boundby"].CallablePackage
