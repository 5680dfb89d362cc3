"""A live run or a set of traces, from capture to diagnosis."""
