"""Fixes written into the user's source: `patch.py` has one writer per fix.

It imports libcst: import it where a patch is to be written, not with the package.
"""
