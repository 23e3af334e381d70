"""A file mode, as settings spell it."""

from __future__ import annotations


def mode_of(text: str) -> int:
    """A file mode from its octal digits, such as "0660". Raises ValueError."""
    mode = int(text, 8)
    if not 0 <= mode <= 0o777:
        raise ValueError(f"{text} is no file mode")
    return mode


def check_mode(text: str) -> str | None:
    """What is wrong with it, for a setting."""
    try:
        mode_of(text)
    except ValueError:
        return "expected three octal digits, such as 0660"
    return None
