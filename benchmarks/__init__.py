"""Benchmarks: what things cost, in one form. `python -m benchmarks --list` names them."""
