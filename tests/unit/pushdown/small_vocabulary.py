"""A small vocabulary, every byte, some longer texts, some specials; and texts read with it by masks alone."""

from __future__ import annotations

from constraintd.engine.pushdown import PushdownEngine, PushdownMatcher
from constraintd.mask.packed import empty, ids
from constraintd.vocabulary.token_table import TokenEntry, TokenKind, from_table

# Ids 0 to 255 are the bytes. EOG with text is legal nowhere but at the end, NUL text nowhere at all.
EOG, TOOL, THINK, EOG_TEXT, HOLE, AB, NUL_TEXT, EURO_HEAD, TOOL_TEXT, PADDING = range(256, 266)
WIDTH = 270
VOCABULARY = from_table(
    [
        *[TokenEntry(value, TokenKind.TEXT, bytes([value])) for value in range(256)],
        TokenEntry(EOG, TokenKind.SPECIAL, b"</s>"),
        TokenEntry(TOOL, TokenKind.SPECIAL, b"<tool>"),
        TokenEntry(THINK, TokenKind.SPECIAL, b"<think>"),
        TokenEntry(EOG_TEXT, TokenKind.TEXT, b"<end>"),
        TokenEntry(HOLE, TokenKind.UNUSED, b""),
        TokenEntry(AB, TokenKind.TEXT, b"ab"),
        TokenEntry(NUL_TEXT, TokenKind.TEXT, b"\0a"),
        TokenEntry(EURO_HEAD, TokenKind.TEXT, b"a\xe2\x82"),
        TokenEntry(TOOL_TEXT, TokenKind.TEXT, b"<text>"),
    ],
    eog_ids=[EOG, EOG_TEXT],
    logits_width=WIDTH,
)
ENGINE = PushdownEngine(VOCABULARY)


class Reader:
    """Reads texts with one compiled grammar, by masks alone."""

    def __init__(self, source: str, root: str = "root") -> None:
        self.grammar = ENGINE.compile("ab" * 32, source, root=root)

    def after(self, *tokens: int | str) -> PushdownMatcher:
        """The matcher behind these tokens, a text standing for its bytes' tokens; each must have been legal."""
        matcher = self.grammar.start()
        for token in tokens:
            for each in token.encode() if isinstance(token, str) else [token]:
                assert each in legal(matcher), f"{token!r} is not legal"
                matcher.consume(each)
        return matcher

    def accepts(self, *tokens: int | str) -> bool:
        """Whether every token is legal, and the end behind them."""
        matcher = self.grammar.start()
        for token in tokens:
            for each in token.encode() if isinstance(token, str) else [token]:
                if each not in legal(matcher):
                    return False
                matcher.consume(each)
        assert ({EOG, EOG_TEXT} <= legal(matcher)) == matcher.is_accepting()
        return matcher.is_accepting()


def legal(matcher: PushdownMatcher) -> set[int]:
    """The ids whose bit is set."""
    words = empty(WIDTH)
    matcher.fill_mask(words)
    return set(ids(words).tolist())
