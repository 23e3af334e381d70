"""The GPT-2 byte alphabet: one printable character for every byte.

The 188 bytes that are printable in Latin-1 (`!`..`~`, U+00A1..U+00AC, U+00AE..U+00FF) stand for
themselves; the other 68, in ascending order, are U+0100..U+0143. Source: `bytes_to_unicode` of GPT-2.
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(sorted(set(range(256)) - set(_PRINTABLE)))


class _ToBytes(dict[int, int]):
    """For str.translate: alphabet character -> its byte as a code point; anything else -> past Latin-1."""

    def __missing__(self, key: int) -> int:
        return 0x100


_TO_BYTES = _ToBytes({byte: byte for byte in _PRINTABLE} | {0x100 + index: byte for index, byte in enumerate(_OTHERS)})


def bytes_of_byte_level(token: str) -> bytes:
    """The bytes that a token of a byte-level BPE vocabulary spells.

    A token with any character outside of the alphabet is its own UTF-8, whole, as the `tokenizers`
    package decodes it. Raises UnicodeEncodeError for such a token with a lone surrogate.
    """
    try:
        # Two C-level passes a token; a loop over characters took three times as long.
        return token.translate(_TO_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode("utf-8")
