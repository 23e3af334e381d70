"""Vocabularies: the value itself, its loaders, and the registry that the daemon holds them in."""
