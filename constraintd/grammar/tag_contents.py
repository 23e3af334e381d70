"""What stands inside structural tags and tool calls, schemas and regexes, made ready for the engine.

The same preparation as of a grammar that is such a schema or regex alone: a schema's keywords mean the same in a tag,
and a regex is of Python's dialect in both places. Only the names of an object keep the schema's order here.
"""

from __future__ import annotations

import json

from llguidance._lib import regex_to_lark

from constraintd.errors import InvalidGrammar
from constraintd.grammar.json_schema.prepare import prepare_schema
from constraintd.grammar.json_schema.report import SchemaOptions
from constraintd.grammar.regex_meaning import check_python_pattern
from constraintd.grammar.structural_tag_format import Json


def schema_for_engine(schema: Json, options: SchemaOptions) -> str:
    """The schema, ready for `%json`, the engine's options in front.

    Raises InvalidGrammar, its message the problem alone and its location a JSON pointer into the schema; LimitExceeded.
    """
    try:
        return prepare_schema(json.dumps(schema, ensure_ascii=False), options).engine_json
    except InvalidGrammar as error:
        problem = error.message.removeprefix("grammar.json_schema: ")
        raise InvalidGrammar(problem, **{"location": "", **error.metadata}) from None


def regex_for_engine(regex: str) -> str:
    """A regex of Python's dialect, ready to stand between slashes in Lark. Raises InvalidGrammar."""
    source: str = regex_to_lark(check_python_pattern(regex), use_ascii="")
    return source


def placed(error: InvalidGrammar, pointer: str) -> InvalidGrammar:
    """An error about the contents at a JSON pointer as one about the structural tag that holds them.

    A location that is a pointer is one from there on; one that is a column stands in the message already.
    """
    inside = error.metadata.get("location", "")
    place = pointer + inside if inside.startswith("/") else pointer
    message = f"grammar.structural_tag: {pointer or '/'}: {error.message}"
    return InvalidGrammar(message, **{**error.metadata, "location": place or "/"})
