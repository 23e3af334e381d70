"""Walks texts byte by byte through a structural tag's or a tool plan's grammar, by masks."""

import json

from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.grammar.structural_tag import structural_tag_lark
from constraintd.mask.packed import empty, ids
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH

ENGINE = LlguidanceEngine(
    load_vocabulary(VocabularyFormat.TOKEN_TABLE, BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])
)


def tag(format_, **options):
    """A compiled structural tag of the newer form."""
    return lark(structural_tag_lark(json.dumps({"type": "structural_tag", "format": format_}), **options))


def lark(text):
    return ENGINE.compile(parse_grammar(GrammarKind.LARK, [text.encode()], max_bytes=1 << 22))


def accepts(grammar, text):
    """True if every byte (or token id, in a list with texts) has its bit set, and EOG at the end."""
    matcher = grammar.start()
    for part in [text] if isinstance(text, str) else text:
        for token in [part] if isinstance(part, int) else part.encode():
            words = empty(WIDTH)
            matcher.fill_mask(words)
            if token not in ids(words).tolist():
                return False
            matcher.consume(token)
    return matcher.is_accepting()
