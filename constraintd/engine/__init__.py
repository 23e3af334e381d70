"""Engines: what decides which tokens may come next. Each stands behind the Matcher protocol."""
