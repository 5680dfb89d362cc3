"""What the operating system reports about a running script: CPU time, page faults, sampled
lines."""
