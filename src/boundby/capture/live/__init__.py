"""Running scripts and callables under watch."""
