"""What a step costs on hardware one does not have: chips, meshes, collectives, models on paper."""

import sys

sys.modules[__name__].__class__ = sys.modules["boundby"].CallablePackage
