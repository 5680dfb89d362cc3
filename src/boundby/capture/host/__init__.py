"""What the operating system tells of a running script: CPU time, page faults, sampled lines."""
