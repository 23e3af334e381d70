"""Structured generation as a service: the daemon, and the generated stubs under `constraintd.v1`."""

__version__ = "0.1.0"
