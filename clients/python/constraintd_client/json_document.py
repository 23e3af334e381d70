"""Texts and JSON documents as the bytes that go to the daemon."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def utf8(text: str | bytes) -> bytes:
    """The text's bytes; bytes stay as they are, for the daemon to judge."""
    return text.encode() if isinstance(text, str) else text


def document_bytes(document: str | bytes | bool | Mapping[str, Any] | Sequence[Any]) -> bytes:
    """A JSON document's text as it is, or written from a value, members in their order.

    Raises TypeError or ValueError if a value can't be written as JSON.
    """
    if not isinstance(document, str | bytes):
        document = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return utf8(document)
