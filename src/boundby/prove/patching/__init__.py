"""Fixes written into the user's source: `patch.py` has one writer per fix.

It imports libcst: import it only where a patch is written.
"""
