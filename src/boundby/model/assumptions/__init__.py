"""Every assumed or fitted number that a diagnosis depends on, with its range and source.

`docs/assumptions.md` is generated from these records. Numbers of `boundby plan` are in
plan/assumptions.py, datasheet figures in hardware/chips.toml.
"""
