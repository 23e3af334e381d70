"""The steps around the model in a `tokenizer.json`: normalizer, pre-tokenizer, decoder, post-processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from constraintd.errors import UnsupportedTokenizer
from constraintd.vocabulary.json_source import array_at, object_at, string_at

_CHILDREN = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
    "post_processor": "processors",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step, out of whatever Sequence it stands in."""

    kind: str
    fields: Mapping[str, object]
    where: str
    """JSON pointer to the step, for errors."""

    def replacement(self) -> tuple[str, str]:
        """(old, new) of a decoder's Replace or Metaspace.

        Raises UnsupportedTokenizer for a Replace by regular expression, VocabularyError for wrong types.
        """
        if self.kind == "Metaspace":
            return (string_at(self.fields.get("replacement"), f"{self.where}/replacement"), " ")
        pattern = object_at(self.fields.get("pattern"), f"{self.where}/pattern")
        if "String" not in pattern:
            raise UnsupportedTokenizer(
                "a decoder's Replace by regular expression is not supported",
                location=f"{self.where}/pattern",
                remedy="register a table of token bytes",
            )
        return (
            string_at(pattern["String"], f"{self.where}/pattern/String"),
            string_at(self.fields.get("content"), f"{self.where}/content"),
        )

    def replaces_spaces(self) -> bool:
        """Whether this is a Replace of the single space by something else."""
        pattern = self.fields.get("pattern")
        return (
            self.kind == "Replace"
            and isinstance(pattern, dict)
            and pattern.get("String") == " "
            and bool(self.fields.get("content"))
        )

    def inverse_replacement(self) -> tuple[str, str]:
        """(mark, " ") of a normalizer's or pre-tokenizer's step that turns spaces into a mark."""
        if self.kind == "Metaspace":
            return self.replacement()
        return (string_at(self.fields.get("content"), f"{self.where}/content"), " ")


def steps_of(root: Mapping[str, object], part: str, file: str) -> list[Step]:
    """The steps of `part` (a key of the file's root) in order, Sequences opened; none for null.

    Raises VocabularyError for wrong types.
    """
    steps: list[Step] = []
    # A stack and not recursion: how deep Sequences nest is up to whoever sent the file.
    pending: list[tuple[object, str]] = [(root.get(part), f"{file}#/{part}")]
    while pending:
        value, where = pending.pop()
        if value is None:
            continue
        fields = object_at(value, where)
        kind = string_at(fields.get("type"), f"{where}/type")
        if kind == "Sequence":
            key = _CHILDREN[part]
            children = array_at(fields.get(key), f"{where}/{key}")
            pending += [(child, f"{where}/{key}/{i}") for i, child in reversed(list(enumerate(children)))]
        else:
            steps.append(Step(kind, fields, where))
    return steps


def template_bos(root: Mapping[str, object], file: str) -> str | None:
    """The special token that a TemplateProcessing puts before a text, or None. Raises as `steps_of`."""
    for step in steps_of(root, "post_processor", file):
        if step.kind != "TemplateProcessing":
            continue
        template = array_at(step.fields.get("single"), f"{step.where}/single")
        if not template:
            continue
        first = object_at(template[0], f"{step.where}/single/0")
        if "SpecialToken" in first:
            token = object_at(first["SpecialToken"], f"{step.where}/single/0/SpecialToken")
            return string_at(token.get("id"), f"{step.where}/single/0/SpecialToken/id")
    return None
