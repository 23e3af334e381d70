"""Grammars as texts that were made to hurt: regular expressions, Lark, choices, GBNF and structural tags."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.fault.hostile import Hostile, text_of

# --- regular expressions ---


def regexes() -> Iterator[Hostile]:
    """Catastrophic, huge, deep and malformed patterns."""
    for pattern in (
        *("(a+)+b", "(a*)*b", "(a|aa)+b", "(a|a?)+b", "(.*)*x", "(x+x+)+y", "(.*.*.*.*.*)*=", "((a+)*(b+)*)*c"),
        *("a{0,2000}b{0,2000}", "(a{0,2000}){0,2000}", "((a{0,2000}){0,2000}){0,2000}", "(a{0,60}){0,60}"),
        *('[^"]{0,100000}', "a{1,1000000}", "a{1000000000}", "a{99999999999999999999}", "(a|b){50000}"),
        *("(?i)(straße|ſ|K){500}", "\\p{L}{1,2000}", "[\\p{L}\\p{N}--\\p{Lu}]{100}", "\\w{1,500}@\\w{1,500}"),
        *(
            "(?=a)a",
            "(?<!a)b",
            "(a)\\1",
            "(?P<n>a)(?P=n)",
            "a**",
            "a{3,2}",
            "[z-a]",
            "\\",
            "(",
            ")",
            "[",
            "(?",
            "\\p{X}",
        ),
        *("(a?){100}a{100}", "(a?){2000}a{2000}", "(.?){500}x", "(a|b|ab)*c{1,400}", "(0|1(01*0)*1)*", "^$", "$a^b"),
    ):
        yield text_of("regex", f"regex {pattern}", pattern)
    for size in (6, 10, 14, 17, 20, 26):
        # A deterministic automaton of 2 to the power of size + 1 states; 17 gives 262,144.
        yield text_of("regex", f"an automaton of 2^{size + 1} states", f"(a|b)*a(a|b){{{size}}}")
        yield text_of("regex", f"an automaton of 2^{size + 1} states that any text is in", f"(.*a.{{{size}}}|[^a]*)x")
    for depth in (100, 1000, 5000, 200_000):
        yield text_of("regex", f"{depth} stars deep", "(" * depth + "a" + ")*" * depth)
        yield text_of("regex", f"{depth} groups deep", "(?:" * depth + "a|b" + ")" * depth)
        yield text_of("regex", f"{depth} optional parts, nested", "(a" * depth + ")?" * depth)
    yield text_of("regex", "a text of 1 MB", "a" * 1_000_000)
    yield text_of("regex", "10 MB of alternatives", "|".join(f"{i:0>36}" for i in range(260_000)))
    yield text_of("regex", "30,000 words", "(" + "|".join(f"w{i * 7919 % 30011}" for i in range(30_000)) + "){1,9}")
    yield text_of(
        "regex", "a class of 17,000 characters", "[" + "".join(chr(0x3400 + 2 * i) for i in range(17_000)) + "]*"
    )
    yield text_of("regex", "regex: invalid UTF-8", b"a\xff\xc0")
    yield text_of("regex", "regex: half a character", "é".encode()[:1])
    yield text_of("regex", "regex: NULs", "\x00" * 1000)
    yield text_of("regex", "regex: nothing", "")


# --- Lark ---


def larks() -> Iterator[Hostile]:
    """Left recursion, ambiguity, products, doubling, and malformed Lark."""
    yield from (
        text_of("lark", f"lark: {name}", text)
        for name, text in {
            "left recursion": 'start: start "a" | "a"',
            "left recursion by a nullable rule": 'start: e start "a" | "a"\ne: | "b"',
            "left recursion by two nullable rules": 'start: e f start | "a"\ne: ""\nf: e | "b"',
            "left recursion and nothing else": "start: start",
            "left recursion in a ring": "start: a\na: b\nb: c\nc: a",
            "nullable in a ring": 'start: a\na: b | ""\nb: a | ""',
            "ambiguity": 'start: start start | "a"',
            "ambiguity by three": 'start: start start start | "a" | ""',
            "nothing repeated": 'start: e*\ne: ""',
            "nothing repeated, nested": 'start: ((("")*)*)*',
            "right recursion": 'start: "a" start | ""',
            "undefined": "start: nothing",
            "no start": 'begin: "a"',
            "start twice": 'start: "a"\nstart: "b"',
            "a terminal of itself": "start: A\nA: A",
            "terminals in a ring": "start: A\nA: B\nB: A",
            "an empty terminal": "start: A*\nA: /a*/",
            "ignoring everything": 'start: "a"\n%ignore /.*/',
            "ignoring nothing": 'start: "a"\n%ignore /a*/',
            "everything but": "start: A\nA: /.*/ & ~/(a|b)*a(a|b){17}/",
            "intersections": "start: A\nA: /(a|b)*a(a|b){9}/ & /(a|b)*b(a|b){11}/ & /(a|b)*a(a|b){13}/",
            "complements of complements": "start: A\nA: " + "~(" * 200 + "/a+/" + ")" * 200,
            "products of 2000": 'start: a{0,2000}\na: b{0,2000}\nb: c{0,2000}\nc: "x"',
            "product of 2000 terminals": "start: A{0,2000} B{0,2000}\nA: /a{0,2000}/\nB: /a{0,2000}b/",
            "a billion times": 'start: "a"{1000000000}',
            "every token": "start: <[0-4294967295]>",
            "a token that is none": "start: <[999999999]>",
            "a special that is none": "start: <|nothing|>",
            "any tokens": "start: <[*]>{0,2000}",
            "a schema of itself": 'start: %json {"$ref":"#"}',
            "a schema of 1000 properties": "start: %json "
            + json.dumps({"type": "object", "properties": {f"p{i}": {} for i in range(1000)}}),
            "engine options": '%llguidance {"no_forcing": false, "allow_initial_skip": true}\nstart: "a"',
            "bad engine options": '%llguidance {"unheard_of": 1}\nstart: "a"',
            "an import": "%import common.WORD\nstart: WORD",
            "an attribute": 'start[max_tokens=0]: "a"',
            "a lazy terminal": "start: A\nA[lazy]: /(a|b)*?/",
            "a suffix": 'start[suffix="x"]: /.*/',
            "a stop": "start[stop=/(a+)+/]: /.*/",
            "rubbish": 'start: "a" | | & ~ { } [',
            "an unclosed text": 'start: "a',
            "a NUL": 'start: "\x00"',
            "nothing": "",
        }.items()
    )
    yield text_of("lark", "lark: invalid UTF-8", b'start: "\xff"')
    for count in (100, 3000, 60_000):
        chain = "\n".join(f"r{i}: r{i + 1}" for i in range(count))
        yield text_of("lark", f"lark: a chain of {count} rules", f'start: r0\n{chain}\nr{count}: "a"')
        heads = " | ".join(f'"t{i}" r{i}' for i in range(count))
        bodies = "\n".join(f'r{i}: "x" | start' for i in range(count))
        yield text_of("lark", f"lark: {count} rules", f"start: {heads}\n{bodies}")
        depth = "(" * count + '"a"' + ")*" * count
        yield text_of("lark", f"lark: {count} groups deep", f"start: {depth}")
        nullable = "\n".join(f'n{i}: n{i + 1} n{i + 1} | ""' for i in range(count))
        yield text_of("lark", f"lark: {count} nullable rules", f'start: n0\n{nullable}\nn{count}: "a" | ""')
    for count in (10, 30, 300):
        doubling = "\n".join(f"d{i}: d{i + 1} d{i + 1}" for i in range(count))
        yield text_of("lark", f"lark: doubling {count} times", f'start: d0\n{doubling}\nd{count}: "a"')
        terminals = "\n".join(f"D{i}: D{i + 1} D{i + 1}" for i in range(count))
        yield text_of("lark", f"lark: terminals doubling {count} times", f'start: D0\n{terminals}\nD{count}: "a"')


# --- choices ---


def choices() -> Iterator[Hostile]:
    """Many texts, long texts, texts that begin alike."""
    sets: dict[str, list[bytes]] = {
        "10 MB of texts": [f"{i:0>39}".encode() for i in range(260_000)],
        "100,000 short texts": [str(i).encode() for i in range(100_000)],
        "prefixes of one text": [b"a" * i for i in range(1, 1400)],
        "suffixes of one text": [b"ab" * 700 + b"c"[: i % 2] + b"b" * i for i in range(700)],
        "one text of 10 MB": [b"ab" * 5_000_000],
        "one text of 1 MB": [b"ab" * 500_000],
        "an empty text": [b""],
        "empty texts": [b""] * 10_000,
        "nothing": [],
        "invalid UTF-8": [b"good", b"\xff"],
        "NULs": [b"\x00" * i for i in range(1, 500)],
        "quotes and backslashes": [b'"\\' * i for i in range(1, 500)],
        "line ends": [b"\n" * i for i in range(1, 200)],
        "every character": [chr(i).encode() for i in range(1, 0xD800)],
        "astral characters": [chr(0x10000 + 17 * i).encode() for i in range(5000)],
    }
    for name, texts in sets.items():
        yield Hostile(f"choice: {name}", "choice", tuple(texts))


# --- GBNF ---


def gbnfs() -> Iterator[Hostile]:
    """The same in llama.cpp's language."""
    texts: dict[str, str | bytes] = {
        "left recursion": 'root ::= root "a" | "a"',
        "left recursion by a nullable rule": 'root ::= e root "a"\ne ::= "b"?',
        "left recursion by repetition": 'root ::= ("b"* root)* "a"',
        "left recursion in a ring": "root ::= a\na ::= b\nb ::= a",
        "nothing repeated": 'root ::= ("")*',
        "nothing repeated, nested": 'root ::= ((("")*)*)* "a"',
        "ambiguity": 'root ::= "a" root root | "a"',
        "ambiguity without end": 'root ::= ("a"*)* ("a"*)* ("a"*)*',
        "products of 2000": 'root ::= a{0,2000}\na ::= b{0,2000}\nb ::= "x"{0,2000}',
        "a million times": 'root ::= "a"{1000000}',
        "min over max": 'root ::= "a"{5,3}',
        "undefined": "root ::= nothing",
        "no root": 'start ::= "a"',
        "invalid UTF-8": b'root ::= "\xff"',
        "a reversed range": "root ::= [z-a]",
        "an unclosed text": 'root ::= "a',
        "a token that is none": "root ::= <[99999999]>",
        "an automaton of 2^18 states": 'root ::= [ab]* "a"' + " [ab]" * 17,
        "10 MB of alternatives": "root ::= " + " | ".join(f'"{i:0>33}"' for i in range(260_000)),
        "nothing": "",
    }
    for name, text in texts.items():
        yield text_of("gbnf", f"gbnf: {name}", text)
    for count in (100, 3000, 60_000):
        chain = "\n".join(f"r{i} ::= r{i + 1}" for i in range(count))
        yield text_of("gbnf", f"gbnf: a chain of {count} rules", f'root ::= r0\n{chain}\nr{count} ::= "a"')
        yield text_of("gbnf", f"gbnf: {count} groups deep", "root ::= " + "(" * count + '"a"' + ")*" * count)
        doubling = "\n".join(f"d{i} ::= d{i + 1} d{i + 1}" for i in range(count))
        yield text_of("gbnf", f"gbnf: doubling {count} times", f'root ::= d0\n{doubling}\nd{count} ::= "a"')


# --- structural tags ---


def structural_tags() -> Iterator[Hostile]:
    """Tags without number, within each other, and with hostile grammars inside."""

    def tag(begin: str, content: object, end: str) -> dict[str, object]:
        return {"type": "tag", "begin": begin, "content": content, "end": end}

    def triggered(*tags: object) -> dict[str, object]:
        return {"type": "triggered_tags", "triggers": ["<"], "tags": list(tags), "at_least_one": True}

    def hostile(name: str, body: object) -> Hostile:
        document = {"type": "structural_tag", "format": body}
        return text_of("structural_tag", f"tags: {name}", json.dumps(document, separators=(",", ":")))

    anything: object = {"type": "any_text"}
    for count in (20, 400):
        yield hostile(f"{count} tags", triggered(*(tag(f"<t{i}>", anything, f"</t{i}>") for i in range(count))))
    for depth in (20, 400):
        inner = anything
        for i in range(depth):
            inner = tag(f"<{i}>", inner, f"</{i}>")
        yield hostile(f"{depth} tags deep", inner)
        inner = anything
        for _ in range(depth):
            inner = {"type": "or", "elements": [inner, {"type": "const_string", "value": "x"}]}
        yield hostile(f"{depth} choices deep", inner)
    bodies: dict[str, object] = {
        "a hostile regex": {"type": "regex", "pattern": "(a|b)*a(a|b){17}"},
        "a hostile grammar": {"type": "grammar", "grammar": 'start: start start | "a" | ""'},
        "a schema of itself": {"type": "json_schema", "json_schema": {"$ref": "#"}},
        "a schema of 1000 properties": {
            "type": "json_schema",
            "json_schema": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(1000)}},
        },
        "an unknown type": {"type": "unheard_of"},
    }
    for name, body in bodies.items():
        yield hostile(name, tag("<a>", body, "</a>"))
        yield hostile(f"{name}, triggered", triggered(tag("<a>", body, "</a>")))
    yield hostile("nothing", {})
    yield hostile("an empty trigger", triggered() | {"triggers": [""]})
    yield text_of("structural_tag", "tags: invalid UTF-8", b'{"format":"\xff"}')
    yield text_of("structural_tag", "tags: a million brackets", "[" * 1_000_000)
