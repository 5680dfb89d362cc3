"""One step as a model that can be changed and simulated, and what several faults share of it."""
