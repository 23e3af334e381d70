"""Grammars: their kinds, their canonical form, and how they are compiled and kept."""
