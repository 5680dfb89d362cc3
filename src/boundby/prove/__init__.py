"""Proofs: fixes switched on the live program, measured, checked numerically, written as a patch."""

import sys

sys.modules[__name__].__class__ = sys.modules["boundby"].CallablePackage
