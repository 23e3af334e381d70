"""A preset's JSON object is read strictly, whatever the style; refusals name the parameter."""

import json

import pytest

from constraintd.errors import InvalidField, TooLarge
from constraintd.sampler.config import SamplerConfig, Temperature
from constraintd.sampler.presets import PresetStyle, config_of_preset

STYLES = list(PresetStyle)
ROOT = "sampler.preset.parameters"


def refusal(style, text):
    with pytest.raises(InvalidField) as caught:
        config_of_preset(style, text if isinstance(text, bytes) else text.encode(), seed=7)
    return caught.value


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"7", "must be a JSON object"),
        (b'"temperature"', "must be a JSON object"),
        (b"{", "is not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
        (b" ", "is not JSON"),
        (b"{} {}", "is not JSON"),
        (b'{"temperature": 1,}', "is not JSON"),
        (b"{'temperature': 1}", "is not JSON"),
        (b'\xef\xbb\xbf{"temperature": 1}', "is not JSON"),
        ('{"temperature": 1}'.encode("utf-16"), "is not UTF-8 at byte 0"),
        (b'{"temperature": 1, "temperature": 1}', "'temperature' stands twice in one object; keep one of them"),
        (b'{"logit_bias": {"1": 1, "1": 2}}', "'1' stands twice in one object"),
        (b'{"temperature": NaN}', "NaN is not JSON (RFC 8259); give a finite number"),
        (b'{"temperature": Infinity}', "Infinity is not JSON"),
        (b'{"temperature": -Infinity}', "-Infinity is not JSON"),
        (b'{"temperature": 1e999}', "1e999 is past the range of a float64"),
        (b'{"temperature": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"stop": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "nested too deeply"),
    ],
)
def test_what_is_no_strict_json_object_is_refused(style, text, words):
    error = refusal(style, text)
    assert error.metadata["field"] == ROOT
    assert words in error.message


@pytest.mark.parametrize("style", STYLES)
def test_64_kib_are_the_most_that_is_read(style):
    longest = b"{" + b" " * 65_534 + b"}"
    assert config_of_preset(style, longest, seed=7) == config_of_preset(style, b"{}", seed=7)
    with pytest.raises(TooLarge) as caught:
        config_of_preset(style, longest + b" ", seed=7)
    assert caught.value.metadata == {"field": ROOT, "limit": "65536", "actual": "65537"}


@pytest.mark.parametrize("style", STYLES)
def test_no_text_is_an_empty_object(style):
    assert config_of_preset(style, b"", seed=7) == config_of_preset(style, b"{}", seed=7)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("true", "a boolean"),
        ('"0.7"', "a string"),
        ("[0.7]", "a list"),
        ('{"value": 0.7}', "an object"),
    ],
)
def test_a_number_is_no_other_kind_of_value(style, value, kind):
    error = refusal(style, f'{{"temperature": {value}}}')
    assert error.metadata["field"] == f"{ROOT}.temperature"
    assert error.message == f"{ROOT}.temperature: must be a number, is {kind}"


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("true", "a boolean"),
        ('"5"', "a string"),
        ("0.5", "a number with a fraction"),
        ("[5]", "a list"),
    ],
)
def test_a_whole_number_is_no_other_kind_of_value(style, value, kind):
    name = {"OPENAI": "max_tokens", "HUGGING_FACE": "max_new_tokens", "LLAMA_CPP": "n_predict"}[style.value]
    error = refusal(style, f'{{"{name}": {value}}}')
    assert error.message == f"{ROOT}.{name}: must be a whole number, is {kind}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"max_tokens": 12.0}', 12),
        (b'{"max_tokens": 1e2}', 100),
        (b'{"max_tokens": 4294967295}', 4294967295),
        (b'{"max_tokens": 0}', 0),
    ],
)
def test_json_has_one_kind_of_number(text, expected):
    assert config_of_preset(PresetStyle.OPENAI, text, seed=7).max_tokens == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"max_tokens": -1}', f"{ROOT}.max_tokens: -1 must be at least 0 and at most 4294967295"),
        (b'{"max_tokens": 4294967296}', f"{ROOT}.max_tokens: 4294967296 must be at least 0 and at most 4294967295"),
        (b'{"max_tokens": 1e300}', f"{ROOT}.max_tokens: must be a whole number, is a number with a fraction"),
        (
            b'{"temperature": 1' + b"0" * 400 + b"}",
            f"{ROOT}.temperature: 1{'0' * 39}... is past the range of a float64; give a smaller number",
        ),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(text, message):
    assert refusal(PresetStyle.OPENAI, text).message == message


@pytest.mark.parametrize("style", STYLES)
def test_an_unknown_name_is_refused_with_close_ones(style):
    error = refusal(style, b'{"temprature": 1}')
    assert error.metadata["field"] == ROOT
    assert "'temprature' is no sampling parameter of" in error.message
    assert "did you mean temperature" in error.message


def test_an_unknown_name_like_no_other_is_refused_with_all_of_them():
    assert refusal(PresetStyle.OPENAI, b'{"zzz": 1}').message == (
        f"{ROOT}: 'zzz' is no sampling parameter of OpenAI's chat and completion requests; offered are "
        "frequency_penalty, logit_bias, max_completion_tokens, max_tokens, presence_penalty, seed, stop, temperature, "
        "top_p"
    )


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["x" * 60_000, "\x00\n", "\ud800", "ä" * 10_000])
def test_a_refusal_fits_into_a_header_whatever_the_name(style, name):
    message = refusal(style, json.dumps({name: 1}).encode()).message
    assert len(message.encode()) < 1000
    assert "\n" not in message


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["model", "messages", "prompt", "stream"])
def test_a_name_of_the_request_is_refused_as_such(style, name):
    error = refusal(style, f'{{"{name}": null}}')
    assert error.metadata["field"] == f"{ROOT}.{name}"
    assert "and is no sampling parameter; leave it out" in error.message


def test_a_grammar_is_refused_with_the_way_to_have_one():
    assert "compile it as a grammar" in refusal(PresetStyle.OPENAI, b'{"response_format": {}}').message
    assert "compile it as a grammar" in refusal(PresetStyle.LLAMA_CPP, b'{"json_schema": {}}').message


@pytest.mark.parametrize(
    ("style", "name"),
    [(PresetStyle.OPENAI, "stop"), (PresetStyle.HUGGING_FACE, "stop_strings"), (PresetStyle.LLAMA_CPP, "stop")],
)
@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ('[""]', "[0]", "an empty string would stop everywhere"),
        ('["a", 1]', "[1]", "must be a string, is a number"),
        ('["a", "\\ud800"]', "[1]", "half of a surrogate pair"),
        ("7", "", "list of strings, is a number"),
        ("{}", "", "list of strings, is an object"),
    ],
)
def test_stop_strings_are_texts(style, name, value, place, words):
    error = refusal(style, f'{{"{name}": {value}}}')
    assert error.metadata["field"] == f"{ROOT}.{name}{place}"
    assert words in error.message


@pytest.mark.parametrize("style", STYLES)
def test_the_seed_of_the_caller_is_used_where_the_parameters_have_none(style):
    assert config_of_preset(style, b"{}", seed=2**64 - 1).seed == 2**64 - 1


def test_a_preset_is_only_what_it_says():
    assert config_of_preset(PresetStyle.OPENAI, b'{"temperature": 0.7}', seed=7) == SamplerConfig(
        stages=(Temperature(0.7),), seed=7
    )
