"""Registering a vocabulary, and compiling grammars for it."""

from __future__ import annotations

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import directive, fields, same, true
from clients.conformance.harness.talk import BYTE_TOKENS, Talk, base64_text


@case()
def a_vocabulary_is_registered_as_often_as_one_likes(talk: Talk) -> None:
    """A token table with holes and special tokens gets an id by its content, the same one again."""
    talk.begin()
    again = talk.ok("register", **BYTE_TOKENS)
    wanted = {"token_count": 263, "logits_width": 300, "eog_ids": [256, 258], "has_encoder": False}
    fields(again, {"vocabulary_id": talk.vocabulary_id, **wanted}, "the vocabulary")


@case()
def a_token_table_comes_back(talk: Talk) -> None:
    """GetVocabulary gives every token's bytes, whatever they are, and the spelling of special ones."""
    talk.begin()
    table = talk.ok("token_table", vocabulary_id=talk.vocabulary_id, spell=[72, 0xFF, 257, 261, 262, 260])
    same(table["special"], {"256": "</s>", "257": "<tool>", "258": "<|end|>"}, "the special tokens")
    same(table["tokens"], [token or "" for token in BYTE_TOKENS["tokens"]], "the tokens")
    same(table["text"], (b"H\xffaba<tool>").hex(), "the text of some tokens")


@case()
def a_vocabulary_whose_end_lies_past_the_logits_is_refused(talk: Talk) -> None:
    """An end-of-generation id past the logits' width is INVALID_VOCABULARY at registration."""
    talk.begin()
    wanted = {"reason": "INVALID_VOCABULARY", "code": "INVALID_ARGUMENT"}
    talk.refused(wanted, "register", tokens=["61", "62"], special={"2": "</s>"}, eog_ids=[2], logits_width=2)


@case()
def a_grammar_is_known_by_its_content(talk: Talk) -> None:
    """Two spellings of one schema are one grammar; its id opens sessions; the report tells of each keyword."""
    talk.begin()
    one, other = (
        talk.ok("compile", vocabulary_id=talk.vocabulary_id, grammar={"jsonSchema": base64_text(text)})
        for text in ('{"type": "array", "title": "numbers"}', '{"type":"array","title":"numbers"}')
    )
    same(other["grammar_id"], one["grammar_id"], "the id of the other spelling")
    same(sorted(one["report"]), [["/title", "title", "ANNOTATION"], ["/type", "type", "ENFORCED"]], "the report")
    choice = {"choice": {"texts": [base64_text("x"), base64_text("y")]}}
    grammar_id = talk.ok("compile", vocabulary_id=talk.vocabulary_id, grammar=choice)["grammar_id"]
    true(len(grammar_id) == 64, f"the grammar's id is {grammar_id}, expected 64 hex digits")
    directive(talk.open("s", {"grammarId": grammar_id}), allows=[ord("x"), ord("y")])
