"""A vocabulary of all bytes and some words, and a grammar of each engine over it."""

from constraintd.engine.deferred import LazyGrammar, LazyOptions
from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.engine.pushdown import PushdownEngine
from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.mask.packed import empty, ids
from constraintd.vocabulary.token_table import TokenEntry, TokenKind, from_table

WORDS = ['{"', '": "', '", "', "foo", 'foo"', 'foo",', "é", "call", "<t", "ool>", "<tool>", 'x<tool>{"']
TOKEN = {word: 256 + number for number, word in enumerate(WORDS)}
CALL, EOG = 256 + len(WORDS), 257 + len(WORDS)
WIDTH = 300
VOCABULARY = from_table(
    [
        *[TokenEntry(value, TokenKind.TEXT, bytes([value])) for value in range(256)],
        *[TokenEntry(token, TokenKind.TEXT, word.encode()) for word, token in TOKEN.items()],
        TokenEntry(CALL, TokenKind.SPECIAL, b"<|call|>"),
        TokenEntry(EOG, TokenKind.SPECIAL, b"</s>"),
    ],
    eog_ids=[EOG],
    logits_width=WIDTH,
)
ENGINE = LlguidanceEngine(VOCABULARY)
PUSHDOWN = PushdownEngine(VOCABULARY)
JSON_GBNF = r"""
root ::= value
value ::= object | array | string | number
object ::= "{" (pair (", " pair)*)? "}"
pair ::= string ": " value
array ::= "[" (value (", " value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\n])* "\""
number ::= "-"? [0-9]+
"""


def compiled(kind, text):
    return ENGINE.compile(parse_grammar(kind, [text.encode()], max_bytes=10_000))


def regex(pattern):
    return compiled(GrammarKind.REGEX, pattern)


def lark(text):
    return compiled(GrammarKind.LARK, text)


def json_schema(text):
    return compiled(GrammarKind.JSON_SCHEMA, text)


def json_object():
    return ENGINE.compile(parse_grammar(GrammarKind.JSON_OBJECT, [], max_bytes=10_000))


def gbnf(text=JSON_GBNF):
    return PUSHDOWN.compile("a grammar of a test", text)


def word(text, **options):
    return Trigger(TriggerKind.WORD, text=text, **options)


def pattern(text, **options):
    return Trigger(TriggerKind.PATTERN, text=text, **options)


def lazy(inner, *triggers, **options):
    return LazyGrammar(inner, triggers, VOCABULARY, LazyOptions(**options))


def mask(matcher):
    words = empty(WIDTH)
    matcher.fill_mask(words)
    return set(ids(words).tolist())


def spell(text):
    """Ids: a word of the vocabulary as its token, every other byte as its own."""
    return [TOKEN[text]] if text in TOKEN else list(text.encode())
