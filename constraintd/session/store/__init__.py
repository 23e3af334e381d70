"""Where sessions are kept: one contract (`store`), and what fulfils it."""
