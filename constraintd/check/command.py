"""The commands `check` and `compile`: reading, asking, telling."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from constraintd.check.backend import Backend, Compiled, InProcess, Refused, Walk
from constraintd.check.case import BadCase, Case, Part, make_grammar, read_cases
from constraintd.check.spelling import Speller
from constraintd.check.vocabulary_file import open_vocabulary
from constraintd.config import Limits
from constraintd.grammar.sandbox import HelperSandbox, SandboxUnavailable
from constraintd.v1 import grammar_pb2, session_pb2
from constraintd.vocabulary.vocabulary import Vocabulary

_SHOWN_TOKENS = 12


def run_check(options: argparse.Namespace) -> int:
    """`constraintd check`; gives the exit status."""
    return _run(options, _check_cases if options.cases else _check_texts)


def run_compile(options: argparse.Namespace) -> int:
    """`constraintd compile`; gives the exit status."""
    return _run(options, _show_report)


def _run(options: argparse.Namespace, what: Any) -> int:
    try:
        vocabulary = open_vocabulary(options.vocabulary, eog_ids=options.eog or (), width=options.width)
        return asyncio.run(_with_backend(options, vocabulary, what))
    except (OSError, BadCase, SandboxUnavailable) as error:
        print(f"constraintd: {error}", file=sys.stderr)
    except Exception as error:
        if not hasattr(error, "reason"):  # a typed error of ours or of the client has one; anything else is a bug
            raise
        print(f"constraintd: {error}", file=sys.stderr)
    return 2


async def _with_backend(options: argparse.Namespace, vocabulary: Vocabulary, what: Any) -> int:
    async with _backend(options, vocabulary) as backend:
        status: int = await what(options, vocabulary, backend)
        return status


@asynccontextmanager
async def _backend(options: argparse.Namespace, vocabulary: Vocabulary) -> AsyncIterator[Backend]:
    if options.address:
        from constraintd.check.live import Live

        async with Live.open(options.address, vocabulary) as live:
            yield live
        return
    sandbox = HelperSandbox()
    sandbox.start()
    try:
        async with InProcess.open(vocabulary, sandbox, Limits()) as here:
            yield here
    finally:
        sandbox.close()


def json_options(options: argparse.Namespace) -> grammar_pb2.JsonOptions:
    """The JSON options of the command line."""
    return grammar_pb2.JsonOptions(
        policy=grammar_pb2.SchemaPolicy.Value(f"SCHEMA_POLICY_{options.policy.upper()}"),
        whitespace=grammar_pb2.JsonWhitespace.Value(f"JSON_WHITESPACE_{options.whitespace.upper()}"),
        formats_are_annotations=options.formats_are_annotations,
        property_order=grammar_pb2.PropertyOrder.Value(f"PROPERTY_ORDER_{options.property_order.upper()}"),
    )


# --- one grammar, some texts ---


def _grammar(options: argparse.Namespace) -> grammar_pb2.Grammar:
    if not options.kind or (not options.grammar and options.kind != "json_object"):
        raise BadCase("name --kind and --grammar FILE (or --cases FILE)")
    source = "" if options.kind == "json_object" else options.grammar.read_text(encoding="utf-8")
    if options.kind in ("regex", "lark", "gbnf"):
        source = source.removesuffix("\n") if options.kind == "regex" else source
    return make_grammar(options.kind, source, start=options.start, options=json_options(options))


async def _check_texts(options: argparse.Namespace, vocabulary: Vocabulary, backend: Backend) -> int:
    grammar = _grammar(options)
    try:
        await backend.compile(grammar)
    except Refused as refused:
        print(f"refused: {_told(refused)}")
        return 1
    speller = Speller(vocabulary)
    wrong = 0
    for text in options.text or ():
        tokens = speller.tokens([text])
        if isinstance(tokens, str):
            print(f"can't be spelled: {text!r}: {tokens}")
            wrong += 1
            continue
        walk = await backend.walk(session_pb2.Constraint(grammar=grammar), tokens)
        if walk.accepted:
            print(f"accepted: {text!r}")
            continue
        wrong += 1
        before = vocabulary.text_of(tokens[: walk.taken])
        rest = vocabulary.text_of(tokens[walk.taken :])
        print(f"not accepted: {text!r}\n  after  {before.decode(errors='replace')!r}\n  at     {_shown(rest)}")
        print(f"  why    {walk.why}")
        if walk.expected:
            print(f"  legal  {_sample(walk.expected, vocabulary)}")
    return 1 if wrong else 0


def _shown(rest: bytes) -> str:
    return repr(rest[:40].decode(errors="replace")) if rest else "the end"


def _sample(expected: Sequence[int], vocabulary: Vocabulary) -> str:
    """Short tokens first: they say most about what may come."""
    pieces = sorted({vocabulary.bytes_of(token) for token in expected} - {b""}, key=lambda piece: (len(piece), piece))
    named = [repr(piece.decode(errors="replace")) for piece in pieces]
    named += [vocabulary.special[token] for token in expected if token in vocabulary.special]
    more = " ..." if len(named) > _SHOWN_TOKENS else ""
    return " ".join(named[:_SHOWN_TOKENS]) + more


def _told(refused: Refused) -> str:
    place = f" at {refused.location}" if refused.location else ""
    return f"{refused.reason}{place}: {refused.message}"


async def _show_report(options: argparse.Namespace, _: Vocabulary, backend: Backend) -> int:
    try:
        compiled = await backend.compile(_grammar(options))
    except Refused as refused:
        print(f"refused: {_told(refused)}")
        return 1
    print(f"compiled in {compiled.compile_ms:.1f} ms")
    width = max((len(entry.pointer) for entry in compiled.report), default=0)
    for entry in compiled.report:
        print(f"  {entry.verdict.value:12} {entry.pointer:{width}}  {entry.detail}".rstrip())
    return 0


# --- a file of cases ---


async def _check_cases(options: argparse.Namespace, vocabulary: Vocabulary, backend: Backend) -> int:
    lines = options.cases.read_text(encoding="utf-8").split("\n")  # JSON strings may hold other line ends
    cases = list(read_cases(lines, json_options(options)))
    speller = Speller(vocabulary)
    wrong = unspelt = 0
    for done, case in enumerate(cases):
        _progress(done, len(cases), case.id)
        row, as_stated = await _check_case(case, speller, backend)
        unspelt += row["passing"].count(None) + row["failing"].count(None)
        wrong += not as_stated
        print(json.dumps(row, ensure_ascii=False), flush=True)
    _progress(len(cases), len(cases), "")
    print(f"{len(cases) - wrong} of {len(cases)} as stated, {unspelt} texts can't be spelled", file=sys.stderr)
    return 1 if wrong else 0


def _progress(done: int, total: int, what: str) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r\x1b[K{done}/{total} {what[:60]}", end=end, file=sys.stderr, flush=True)


async def _check_case(case: Case, speller: Speller, backend: Backend) -> tuple[dict[str, Any], bool]:
    """The line to print, and whether the case came out as it states."""
    row: dict[str, Any] = {
        "id": case.id,
        "compiled": False,
        "error": None,
        "report": [],
        "passing": [],
        "failing": [],
        "compile_ms": None,
        "mask_us_p50": None,
        "mask_us_max": None,
    }
    try:
        compiled = await backend.compile(case.grammar)
        verdicts = [await _verdict(case, text, True, speller, backend, row["report"]) for text in case.passing]
        against = [await _verdict(case, text, False, speller, backend, row["report"]) for text in case.failing]
    except Refused as refused:
        line, _, column = refused.location.partition(":")
        numbered = line.isdigit() and column.isdigit()
        row["error"] = {
            "reason": refused.reason,
            "message": refused.message,
            "line": int(line) if numbered else None,
            "column": int(column) if numbered else None,
        }
        return row, case.expect_refusal
    masks = [us for _, walk in (*verdicts, *against) for us in walk.mask_us]
    row |= {
        "compiled": True,
        "report": [*_report(compiled), *row["report"]],
        "passing": [verdict for verdict, _ in verdicts],
        "failing": [verdict for verdict, _ in against],
        "compile_ms": round(compiled.compile_ms, 3),
        "mask_us_p50": round(statistics.median(masks), 1) if masks else None,
        "mask_us_max": round(max(masks), 1) if masks else None,
    }
    right = all(verdict is not False for verdict in row["passing"]) and not any(row["failing"])
    return row, right and not case.expect_refusal


def _report(compiled: Compiled) -> list[dict[str, str]]:
    return [
        {"pointer": e.pointer, "keyword": e.keyword, "verdict": e.verdict.value, "detail": e.detail}
        for e in compiled.report
    ]


async def _verdict(
    case: Case,
    text: Sequence[Part],
    passing: bool,
    speller: Speller,
    backend: Backend,
    report: list[dict[str, Any]],
) -> tuple[bool | None, Walk]:
    """Whether the text is accepted however it is cut into tokens; None if the vocabulary can't spell it."""
    tokens = speller.tokens(text)
    if isinstance(tokens, str):
        report.append({"text": _text(text), "reason": tokens})
        return None, Walk(False, 0, tokens)
    walk = await backend.walk(case.constraint, tokens)
    by_bytes = speller.single_bytes(text)
    if by_bytes is not None and by_bytes != tokens:
        other = await backend.walk(case.constraint, by_bytes)
        walk.mask_us += other.mask_us
        if other.accepted != walk.accepted:
            report.append(
                {
                    "text": _text(text),
                    "reason": f"as the tokenizer cuts it: {walk.accepted} ({walk.why} after {walk.taken} tokens); "
                    f"byte by byte: {other.accepted} ({other.why} after {other.taken} tokens)",
                }
            )
            return not passing, walk
    return walk.accepted, walk


def _text(text: Sequence[Part]) -> str:
    return "".join(part if isinstance(part, str) else f"<[{part}]>" for part in text)
