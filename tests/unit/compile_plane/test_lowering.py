"""Reading and lowering a grammar is the child's work: the daemon takes what that comes to, and only from before the
engine saw the grammar."""

import json
import os

import pytest

from constraintd.config import Limits
from constraintd.engine import llguidance_
from constraintd.errors import ConstraintdError, InvalidGrammar, LimitExceeded, TooLarge
from constraintd.grammar.compiler import GrammarCompiler
from constraintd.grammar.json_schema.report import KeywordReport, Policy, SchemaOptions, Verdict
from constraintd.grammar.lark_source import LarkSource, to_lark
from constraintd.grammar.sandbox import GrammarRefused, NoSandbox
from constraintd.grammar.sandbox_protocol import CompileLimits, Passed, product_bytes, verdict_bytes, verdict_of
from constraintd.grammar.source import GrammarKind, GrammarSource, parse_grammar

MB = 1 << 20
SCHEMA = b'{"type":"object","properties":{"a":{"type":"integer","title":"A"},"b":{"type":"string"}},"required":["a"]}'


def schema(text=SCHEMA, options=SchemaOptions()):  # noqa: B008 - a value
    return parse_grammar(GrammarKind.JSON_SCHEMA, [text], max_bytes=MB, options=options)


def long_schema(**more):
    """Over 64 KiB, with white space that its canonical form doesn't have."""
    return json.dumps({"enum": [f"value {i:06}" for i in range(6000)], **more}, indent=1).encode()


@pytest.fixture
def compiler(registry, sandbox):
    compiler = GrammarCompiler(registry, sandbox, Limits())
    yield compiler
    compiler.close()


async def test_a_child_s_product_is_what_the_daemon_would_have_made_itself(sandbox, vocabulary):
    passed = await sandbox.try_grammar(vocabulary, schema(), CompileLimits())
    assert LarkSource.from_bytes(passed.product) == to_lark(schema(), lambda _: None)


async def test_the_daemon_itself_lowers_nothing(compiler, vocabulary, monkeypatch):
    monkeypatch.setattr(llguidance_, "to_lark", None)  # calling it here would raise; the child is a process of its own
    grammar = (await compiler.compile(vocabulary.fingerprint, schema())).grammar
    titles = [entry for entry in grammar.report if entry.verdict is Verdict.ANNOTATION]
    assert titles == [KeywordReport("/properties/a/title", "title", Verdict.ANNOTATION)]


async def test_a_report_travels_whole(sandbox, vocabulary):
    text = b'{"type":"string","format":"no such","description":"two\\nlines \\u2028 \\ud800"}'
    options = SchemaOptions(policy=Policy.APPROXIMATE)
    passed = await sandbox.try_grammar(vocabulary, schema(text, options), CompileLimits())
    assert LarkSource.from_bytes(passed.product).report == to_lark(schema(text, options), lambda _: None).report


@pytest.mark.parametrize(
    "data", [b"\x01", b"\x05\0\0\0four", b"\0\0\0\0[1,2,3,4]", b'\0\0\0\0["/a","a","unheard of",""]', b"\1\0\0\0\xff"]
)
def test_bytes_that_no_source_comes_to_are_a_value_error(data):
    with pytest.raises(ValueError):
        LarkSource.from_bytes(data)


async def test_a_product_that_can_t_be_used_is_an_error_of_that_call(registry, vocabulary):
    class Lying(NoSandbox):
        async def try_grammar(self, vocabulary, grammar, limits):
            return Passed(0.0, 0.0, 0, 0, product=b"nonsense")

    compiler = GrammarCompiler(registry, Lying(), Limits())
    with pytest.raises(ConstraintdError, match="lowered"):
        await compiler.compile(vocabulary.fingerprint, schema())
    compiler.close()


def test_product_and_verdict_are_told_apart_and_a_verdict_names_no_product():
    passed = Passed(0.5, 0.25, 3, 4)
    assert verdict_of(product_bytes(b"[the product]") + verdict_bytes(passed)) == Passed(
        0.5, 0.25, 3, 4, b"[the product]"
    )
    assert verdict_of(verdict_bytes(passed)) == passed
    forged = verdict_bytes(passed).replace(b"}", b', "product": "mine"}')
    with pytest.raises(ValueError):
        verdict_of(forged)
    with pytest.raises(ValueError):
        verdict_of(b"=\xff\xff")


async def test_a_child_that_dies_behind_its_product_has_said_nothing(breaking, vocabulary):
    for order, limit in [("tell signal SIGSEGV", "stack_bytes"), ("tell hang", "seconds"), ("tell exit", "engine")]:
        grammar = parse_grammar(GrammarKind.REGEX, [order.encode()], max_bytes=MB)
        with pytest.raises(GrammarRefused) as caught:
            await breaking.try_grammar(vocabulary, grammar, CompileLimits(seconds=1.0))
        assert caught.value.refused.metadata["limit"] == limit
    fine = parse_grammar(GrammarKind.REGEX, [b"tell fine"], max_bytes=MB)
    assert (await breaking.try_grammar(vocabulary, fine, CompileLimits())).product == b"a product"


async def test_a_long_schema_is_read_in_a_child_and_is_the_same_grammar(compiler, sandbox):
    text = long_schema()
    began = sandbox.statistics().starts
    grammar = await compiler.read(GrammarSource(GrammarKind.JSON_SCHEMA, [text]))
    assert sandbox.statistics().starts == began + 1  # nothing had needed the helper before
    assert grammar == parse_grammar(GrammarKind.JSON_SCHEMA, [text], max_bytes=MB)


async def test_a_short_one_needs_no_child(compiler, sandbox):
    assert await compiler.read(GrammarSource(GrammarKind.JSON_SCHEMA, [SCHEMA])) == schema()
    assert sandbox.statistics().starts == 0


async def test_what_is_wrong_with_a_long_text_is_said_as_ever(registry, sandbox):
    compiler = GrammarCompiler(registry, sandbox, Limits(max_grammar_bytes=MB))
    text = long_schema()
    cases = [
        (text[:-2], InvalidGrammar, "location"),
        (text + b"\xff", ConstraintdError, "field"),
        (text.replace(b'"enum"', b'"enum": [], "enum"'), InvalidGrammar, "location"),
        (b"[" * 100_000 + b"]" * 100_000, InvalidGrammar, None),
        (bytes(MB + 1), TooLarge, "limit"),
    ]
    for broken, kind, names in cases:
        with pytest.raises(kind) as told:
            await compiler.read(GrammarSource(GrammarKind.JSON_SCHEMA, [broken]))
        with pytest.raises(kind) as ever:
            parse_grammar(GrammarKind.JSON_SCHEMA, [broken], max_bytes=MB)
        assert (told.value.message, told.value.metadata) == (ever.value.message, ever.value.metadata)
        assert names is None or names in told.value.metadata
    compiler.close()


async def test_reading_takes_no_more_memory_than_compiling_may(registry, sandbox):
    compiler = GrammarCompiler(registry, sandbox, Limits(compile_memory_bytes=8 << 20))
    with pytest.raises(LimitExceeded) as caught:
        await compiler.read(GrammarSource(GrammarKind.JSON_SCHEMA, [b'{"enum":[' + b"[],[[]]," * 100_000 + b"0]}"]))
    assert caught.value.metadata["limit"] == "memory_bytes"
    compiler.close()
    os.kill(sandbox.statistics().pid, 0)  # the helper is well
