"""Reading JSON from strangers: every way in which it can be broken becomes a VocabularyError."""

from __future__ import annotations

import json

from constraintd.errors import VocabularyError

_LFS_POINTER = b"version https://git-lfs"


def parse_json_object(data: bytes, file: str) -> dict[str, object]:
    """The JSON object (RFC 8259) in `data`, which must be UTF-8; `file` names it in errors.

    Raises VocabularyError with line and column: not UTF-8, not JSON, nested too deep, a number with
    too many digits, not an object; and one of its own for a Git LFS pointer in place of the file.
    """
    refuse_lfs_pointer(data, file)
    remedy = f"pass the bytes of the model's {file}, unchanged"
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise VocabularyError(
            f"not UTF-8 ({error.reason})", location=f"{file}, byte {error.start}", remedy=remedy
        ) from None
    except json.JSONDecodeError as error:
        where = f"{file}, line {error.lineno} column {error.colno}"
        raise VocabularyError(f"not JSON ({error.msg})", location=where, remedy=remedy) from None
    except (RecursionError, ValueError) as error:  # nested too deep; an integer of thousands of digits
        raise VocabularyError(f"not readable JSON ({error})", location=file, remedy=remedy) from None
    return object_at(value, file)


def refuse_lfs_pointer(data: bytes, file: str) -> None:
    """Raise VocabularyError if `data` is a Git LFS pointer: what a clone without LFS has for the file."""
    if data.startswith(_LFS_POINTER):
        raise VocabularyError(
            "this is a Git LFS pointer, not the file itself",
            location=file,
            remedy="run `git lfs pull` in the model's folder, or download the file",
        )


def object_at(value: object, where: str) -> dict[str, object]:
    """`value` as a JSON object, or VocabularyError at `where` (a JSON pointer)."""
    if not isinstance(value, dict):
        raise _wrong_type(value, "an object", where)
    return value


def array_at(value: object, where: str) -> list[object]:
    """`value` as a JSON array, or VocabularyError at `where` (a JSON pointer)."""
    if not isinstance(value, list):
        raise _wrong_type(value, "an array", where)
    return value


def string_at(value: object, where: str) -> str:
    """`value` as a string, or VocabularyError at `where` (a JSON pointer)."""
    if not isinstance(value, str):
        raise _wrong_type(value, "a string", where)
    return value


def integer_at(value: object, where: str) -> int:
    """`value` as an integer (neither a bool nor 2.0), or VocabularyError at `where` (a JSON pointer)."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong_type(value, "an integer", where)
    return value


def pointer(*keys: str | int) -> str:
    """The JSON pointer (RFC 6901) to `keys`, clipped where a key is absurdly long."""
    return "".join("/" + str(key)[:80].replace("~", "~0").replace("/", "~1") for key in keys)


def _wrong_type(value: object, expected: str, where: str) -> VocabularyError:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return VocabularyError(
        f"expected {expected}, found {kinds.get(type(value), 'a number')}",
        location=where,
        remedy="check that the file is complete and of the format that was named",
    )
