"""What both servers, daemon and runner, need around their service: settings, listeners, TLS, tokens, logs, CPU budget.

Knows nothing of grammars, sessions or models; beside the stubs it is all of this package that the runner imports.
"""
