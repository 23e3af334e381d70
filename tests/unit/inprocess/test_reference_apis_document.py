"""docs/reference-apis.md keeps its word: no sentence is missing, every test that it names exists, its example runs."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TEXT = (HERE.parents[2] / "docs" / "reference-apis.md").read_text(encoding="utf-8")
SECTIONS = {
    match["name"]: (int(match["count"]), match["body"])
    for match in re.finditer(
        r"^## (?P<name>\w+): (?P<count>\d+) sentences$(?P<body>.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL
    )
}
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def names_of_tests(file):
    """The names of the tests in a file beside this one."""
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_it_has_the_five_documents():
    assert {name: count for name, (count, _) in SECTIONS.items()} == {
        "ConstrainedSampler": 13,
        "generate_constrained": 8,
        "GrammarSampler": 16,
        "AllowListConstraint": 15,
        "SamplerState": 34,
    }


@pytest.mark.parametrize("name", SECTIONS)
def test_every_sentence_of_a_document_has_its_row_in_order(name):
    count, body = SECTIONS[name]
    assert [int(row[0]) for row in ROW.findall(body)] == list(range(1, count + 1))


@pytest.mark.parametrize("name", SECTIONS)
def test_every_row_names_a_test_and_nothing_else_beside_it(name):
    for number, _, _, tests in ROW.findall(SECTIONS[name][1]):
        assert NAMED.findall(tests), number
        assert not NAMED.sub("", tests).strip(), number


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED.findall(TEXT)}))
def test_every_test_that_it_names_exists(file):
    assert {test for named, test in NAMED.findall(TEXT) if named == file} <= names_of_tests(file)


def test_its_example_runs():
    [example] = re.findall(r"^```python\n(.+?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    exec(compile(example, "docs/reference-apis.md", "exec"), {"__name__": "example"})
