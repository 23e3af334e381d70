"""XGrammar's own structural tag cases, walked byte by byte; their source is named in the data file."""

import json
from pathlib import Path

import pytest

from constraintd.grammar.structural_tag import structural_tag_lark
from tests.unit.structural_tag.walk import accepts, lark

CASES = json.loads(Path(__file__).with_name("structural_tags.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_structural_tag_takes_xgrammars_passing_texts_and_refuses_its_failing_ones(case):
    grammar = lark(structural_tag_lark(json.dumps(case["structural_tag"])))
    differs = case.get("differs", {}).get("accepted", [])
    assert [text for text in case["passing"] if not accepts(grammar, text)] == []
    assert [text for text in case["failing"] if accepts(grammar, text)] == differs
