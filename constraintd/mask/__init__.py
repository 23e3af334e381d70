"""Packed token masks."""
