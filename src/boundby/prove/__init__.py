"""Proofs: fixes applied to an unmodified program in fresh processes, measured and compared."""
