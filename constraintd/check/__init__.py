"""`constraintd check` and `constraintd compile`: what a grammar takes, asked of the service's own code."""
