"""What a regular expression means to the one who wrote it, and the engine's pattern that means the same.

The engine's regexes are those of Rust's `regex-syntax`. Much of what Python writes means something else there, some of
it silently (seen in llguidance 1.9.1): `a*+` is `(?:a*)+` and not possessive, `(?R)` is a flag,
`[[:alpha:]]`, `[a-z&&[^aeiou]]` and `[a-z--b]` are set operations, `a**` compiles, `\\d`, `\\w`, `\\s`, `.` and
`(?i)` cover other characters, and `\\` at the end is taken. So a pattern is parsed by the rules of its own
dialect, refused by name and place where no regular expression means the same, and otherwise spelled anew in a small
part of the engine's syntax that leaves no doubt: literals, classes of explicit members, groups, alternation,
repetition.
"""

from __future__ import annotations

from constraintd.grammar.regex_builder import DEFAULT_MAX_REPEAT
from constraintd.grammar.regex_engine_text import Edge, engine_text
from constraintd.grammar.regex_python import parse_python


def check_python_pattern(pattern: str, *, max_repeat: int = DEFAULT_MAX_REPEAT) -> str:
    """The engine's pattern that fully matches exactly the texts that `re.fullmatch(pattern, text)` does.

    `max_repeat` bounds every count of `{n,m}`. Takes linear time and never recurses deeply.

    Raises InvalidGrammar, with the construct's name, its line:column (metadata `location`) and what to write
    instead, for what Python's `re` refuses and for what no regular expression of the engine's can say:
    look-around, backreferences, conditionals, atomic groups, possessive quantifiers, word boundaries, anchors
    away from the edges; for class set operations, which Python warns of; and for counts and depth over a limit.
    Source: CPython 3.11 `re/_parser.py`.
    """
    return engine_text(parse_python(pattern, max_repeat=max_repeat), Edge.OUTER, pattern=pattern)
