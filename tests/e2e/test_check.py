"""`constraintd check` and `constraintd compile` as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.daemon_process import BYTE_TABLE, EOG, HOLE, TOOL

CASES = [
    {"id": "regex", "kind": "regex", "grammar": "a[bc]+", "passing": ["ab", "abcb"], "failing": ["a", "abx"]},
    {
        "id": "gbnf",
        "kind": "gbnf",
        "grammar": 'other ::= "x" <tool>',
        "start": "other",
        "passing": [{"parts": ["x", {"token": TOOL}]}],
        "failing": ["x<tool>", "x"],
    },
    {
        "id": "lazy",
        "kind": "gbnf",
        "grammar": 'root ::= "<call>" [0-9]+ ";"',
        "triggers": [{"type": "word", "value": "<call>"}],
        "passing": ["nothing", "text <call>12;"],
        "failing": ["text <call>x", "text <call>12"],
    },
    {"id": "schema", "kind": "json_schema", "grammar": {"type": "boolean"}, "passing": ["true"], "failing": ["1"]},
    {"id": "choice", "kind": "choice", "grammar": ["yes", "no"], "passing": ["no"], "failing": ["maybe"]},
    {"id": "bad", "kind": "lark", "grammar": 'start: a\na: "x" missing', "expect": "refuse"},
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "bytes.table"
    path.write_bytes(BYTE_TABLE)
    return path


def run(*arguments):
    command = [sys.executable, "-m", "constraintd.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def run_cases(table, tmp_path, cases, *more):
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases), encoding="utf-8")
    done = run("check", "--vocabulary", table, "--eog", EOG, "--cases", path, *more)
    return done, {row["id"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("where", ["here", "at a daemon"])
def test_every_kind_of_case_comes_out_as_stated(table, tmp_path, daemon, where):
    done, rows = run_cases(table, tmp_path, CASES, *(("--address", daemon) if where == "at a daemon" else ()))
    assert done.returncode == 0, done.stderr
    assert "6 of 6 as stated" in done.stderr
    for case in CASES[:-1]:
        row = rows[case["id"]]
        assert row["compiled"]
        assert row["passing"] == [True] * len(case["passing"])
        assert row["failing"] == [False] * len(case["failing"])
        assert row["mask_us_max"] > 0
    assert rows["bad"]["compiled"] is False
    assert (rows["bad"]["error"]["reason"], rows["bad"]["error"]["line"], rows["bad"]["error"]["column"]) == (
        "INVALID_GRAMMAR",
        2,
        4,
    )


def test_a_case_that_comes_out_otherwise_makes_the_exit_status_one(table, tmp_path):
    cases = [{"id": "wrong", "kind": "regex", "grammar": "a", "passing": ["b"], "failing": []}]
    done, rows = run_cases(table, tmp_path, cases)
    assert (done.returncode, rows["wrong"]["passing"]) == (1, [False])
    taken = [{"id": "taken", "kind": "regex", "grammar": "a", "passing": [], "failing": [], "expect": "refuse"}]
    assert run_cases(table, tmp_path, taken)[0].returncode == 1


def test_a_text_that_the_vocabulary_can_not_spell_is_null_with_a_reason(tmp_path):
    path = tmp_path / "small.table"
    path.write_bytes(BYTE_TABLE.replace(b"\x00\x01\x00\x00\x00z", b"\x02\x00\x00\x00\x00", 1))
    cases = [{"id": "z", "kind": "regex", "grammar": "[a-z]+", "passing": ["az", "a"], "failing": []}]
    done, rows = run_cases(path, tmp_path, cases)
    assert (done.returncode, rows["z"]["passing"]) == (0, [None, True])
    assert "0x7a" in rows["z"]["report"][0]["reason"]
    assert HOLE  # the table's own hole is no byte


def test_texts_are_told_where_and_why_not(table, tmp_path):
    grammar = tmp_path / "date.txt"
    grammar.write_text("[0-9]{4}-[0-9]{2}\n")
    done = run("check", "--vocabulary", table, "--eog", EOG, "--kind", "regex", "--grammar", grammar,
               "--text", "2026-11", "--text", "2026-1x", "--text", "2026")  # fmt: skip
    assert done.returncode == 1
    assert "accepted: '2026-11'" in done.stdout
    assert "after  '2026-1'" in done.stdout
    assert "at     'x'" in done.stdout
    assert "legal  '-'" in done.stdout


def test_compile_shows_what_is_enforced(table, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "array", "items": {"type": "integer"}, "uniqueItems": true}')
    arguments = ("compile", "--vocabulary", table, "--eog", EOG, "--kind", "json_schema", "--grammar", schema)
    strict = run(*arguments)
    assert strict.returncode == 1
    assert "/uniqueItems" in strict.stdout
    approximate = run(*arguments, "--policy", "approximate")
    assert approximate.returncode == 0
    assert "approximated /uniqueItems" in approximate.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "regex"], "name --kind and --grammar"),
        (["--cases", "/nowhere"], "No such file"),
    ],
)
def test_what_can_not_be_done_is_said_in_one_line(table, arguments, message):
    done = run("check", "--vocabulary", table, "--eog", EOG, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_vocabulary_without_an_end_is_said_in_one_line(table):
    done = run("check", "--vocabulary", table, "--kind", "json_object", "--text", "{}")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "no end-of-generation id is known" in done.stderr


def test_a_line_that_is_no_case_is_named(table, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": 1, "kind": "regex", "grammar": "a"}\n{"id": 2}\n')
    done = run("check", "--vocabulary", table, "--eog", EOG, "--cases", path)
    assert done.returncode == 2
    assert "line 2" in done.stderr
