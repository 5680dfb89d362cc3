"""Running a script in this process: patches, windows of steps, child processes, its ending."""
