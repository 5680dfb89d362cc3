"""A live PyTorch script: hooks, the profiler, and what only the process knows about its calls."""
