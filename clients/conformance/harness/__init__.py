"""Runs the conformance cases: adapters on one side, real daemons and runners on the other."""
