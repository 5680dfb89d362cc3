"""Live capture of JAX scripts: calls of compiled functions, clean steps, a profile."""
