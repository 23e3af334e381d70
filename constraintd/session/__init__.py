"""Sessions: one generation each, from its first token to its finish."""
