"""Sessions: a live run, trace files or saved runs, from capture to diagnosis."""
