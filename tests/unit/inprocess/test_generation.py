"""generate_constrained: a scripted model, real engines, a completion or an error and nothing in between."""

from dataclasses import replace

import numpy as np
import pytest

from constraintd.engine.pushdown_limits import AutomatonLimits, PushdownLimits
from constraintd.inprocess import (
    BrokenSampler,
    ConstrainedGenerateError,
    ConstrainedSampler,
    GenerateConstraintError,
    GenerateRuntimeError,
    GenerationConfig,
    MatcherConstraint,
    NoTokenAllowed,
    generate_constrained,
)
from tests.unit.inprocess.toy import (
    AB,
    BOS,
    EOG,
    OPEN,
    PUSHDOWN,
    VOCABULARY,
    WIDTH,
    ByteEncoder,
    ScriptedModel,
    gbnf,
    greedy,
    json_object,
    regex,
    vocabulary,
)


def sampler(grammar, inner=greedy):
    return ConstrainedSampler(MatcherConstraint.of_grammar(grammar, VOCABULARY), inner)


FREE = MatcherConstraint.of_parts([], VOCABULARY)


def generate(model, constrained, *, prompt="Say: ", max_tokens=50, words=VOCABULARY, **options):
    return generate_constrained(model, words, prompt, GenerationConfig(max_tokens), constrained, **options)


def test_the_completion_is_what_the_model_wants_where_the_constraint_allows_it():
    assert generate(ScriptedModel(*b"hello"), sampler(regex("[a-z]+"))) == "hello"


@pytest.mark.parametrize("grammar", [regex("yes|no"), gbnf('root ::= "yes" | "no"')], ids=["llguidance", "pushdown"])
def test_a_model_that_wants_something_else_still_writes_a_text_of_the_grammar(grammar):
    assert generate(ScriptedModel(*b"nah, never"), sampler(grammar)) == "no"


def test_a_model_that_writes_no_json_writes_json():
    text = generate(ScriptedModel(OPEN, *b'a":tru3}, and so on'), sampler(json_object()), max_tokens=11)
    assert text == '{"a":true}'


def test_it_prefills_the_prompt_once_and_then_decodes_one_token_at_a_time():
    model = ScriptedModel(AB, ord("c"))
    assert generate(model, sampler(regex("abc")), prompt="Hi") == "abc"
    assert model.prefills == [[ord("H"), ord("i")]]
    assert model.decodes == [AB, ord("c")]


def test_an_eog_ends_the_completion_and_stands_only_in_the_sampler_s_history():
    constrained = sampler(regex("a+"))
    seen = []
    assert generate(ScriptedModel(*b"aa"), constrained, on_token=lambda *step: seen.append(step)) == "aa"
    assert constrained.generated == (*b"aa", EOG)
    assert seen == [(ord("a"), "a"), (ord("a"), "a")]


def test_it_samples_exactly_max_tokens_times():
    model = ScriptedModel(*b"aaaaaaaa")
    constrained = sampler(regex("a+"))
    assert generate(model, constrained, max_tokens=3) == "aaa"
    assert len(constrained.generated) == 3
    assert model.passes == 3


def test_a_dead_end_behind_the_last_token_that_was_asked_for_costs_nothing():
    class DeadBehindTwo:
        def allowed(self, generated):
            return [ord("a")] if len(generated) < 2 else []

    assert generate(ScriptedModel(), ConstrainedSampler(DeadBehindTwo(), greedy), max_tokens=2) == "aa"


def test_no_tokens_are_an_empty_completion_without_a_forward_pass():
    model = ScriptedModel(*b"a")
    assert generate(model, sampler(regex("a")), max_tokens=0) == ""
    assert model.passes == 0


def test_a_negative_number_of_tokens_is_refused():
    with pytest.raises(ValueError, match="max_tokens is -1"):
        GenerationConfig(-1)


def test_an_empty_prompt_begins_with_the_bos():
    words = vocabulary(bos_id=BOS, encoder=ByteEncoder())
    model = ScriptedModel(*b"a")
    assert generate(model, ConstrainedSampler(FREE, greedy), prompt="", words=words) == "a"
    assert model.prefills == [[BOS]]


def test_an_empty_prompt_without_a_bos_is_a_runtime_error_before_any_forward_pass():
    model = ScriptedModel()
    with pytest.raises(GenerateRuntimeError, match="no BOS id"):
        generate(model, sampler(regex("a")), prompt="")
    assert model.passes == 0


def test_streamed_pieces_are_whole_characters_and_together_the_completion():
    seen = []
    text = generate(
        ScriptedModel(*"aé😀!".encode()), sampler(regex("[^b]*")), on_token=lambda _, piece: seen.append(piece)
    )
    assert text == "aé😀!"
    assert seen == ["a", "", "é", "", "", "", "😀", "!"]


def test_a_character_that_max_tokens_cuts_is_a_replacement_character_in_the_completion():
    seen = []
    text = generate(
        ScriptedModel(*"aé".encode()), sampler(regex(".*")), max_tokens=2, on_token=lambda _, piece: seen.append(piece)
    )
    assert text == "a\ufffd"
    assert seen == ["a", ""]


def test_a_dead_end_is_a_constraint_error_and_the_partial_completion_is_gone():
    class DeadBehindTwo:
        def allowed(self, generated):
            return [ord("a")] if len(generated) < 2 else []

    seen = []
    constrained = ConstrainedSampler(DeadBehindTwo(), greedy)
    with pytest.raises(GenerateConstraintError, match="none of the row's 270 ids at position 2") as caught:
        generate(ScriptedModel(), constrained, on_token=lambda token, _: seen.append(token))
    assert isinstance(caught.value.__cause__, NoTokenAllowed)
    assert "aa" not in str(caught.value)
    assert seen == [ord("a"), ord("a")]
    assert constrained.generated == (ord("a"), ord("a"))


def test_an_engine_that_gives_up_is_a_constraint_error():
    limits = PushdownLimits(automaton=replace(AutomatonLimits(), stacks=400))
    deep = PUSHDOWN.compile("ab" * 32, 'root ::= v\nv ::= "[" v* "]"', limits=limits)
    with pytest.raises(GenerateConstraintError, match="nested"):
        generate(ScriptedModel(*b"[" * 1_000), sampler(deep), max_tokens=1_000)


class FailsAt(ScriptedModel):
    """A model whose forward pass fails at one position."""

    def __init__(self, position):
        super().__init__(*b"aaaa")
        self.position = position

    def _row(self):
        if self.passes - 1 == self.position:
            raise MemoryError("out of device memory")
        return super()._row()


@pytest.mark.parametrize("position", [0, 2])
def test_a_forward_pass_that_fails_is_a_runtime_error_with_its_cause(position):
    with pytest.raises(GenerateRuntimeError, match=f"at position {position}: out of device memory") as caught:
        generate(FailsAt(position), sampler(regex("a+")))
    assert isinstance(caught.value.__cause__, MemoryError)


def test_a_prompt_that_can_not_be_tokenised_is_a_runtime_error():
    with pytest.raises(GenerateRuntimeError, match="no token for that"):
        generate(ScriptedModel(), sampler(regex("a")), prompt="unreadable")
    with pytest.raises(GenerateRuntimeError, match="no text encoder"):
        generate(ScriptedModel(), sampler(regex("a")), words=vocabulary())


@pytest.mark.parametrize("shape", [(WIDTH - 1,), (WIDTH + 1,), (1, WIDTH)])
def test_a_row_that_does_not_fit_the_vocabulary_is_a_runtime_error(shape):
    class Wide:
        def prefill(self, tokens):
            return np.zeros(shape, np.float32)

    with pytest.raises(GenerateRuntimeError, match="the vocabulary says"):
        generate(Wide(), sampler(regex("a")))


def test_a_broken_inner_sampler_is_a_runtime_error():
    with pytest.raises(GenerateRuntimeError) as caught:
        generate(ScriptedModel(), sampler(regex("a"), lambda row: 5))
    assert isinstance(caught.value.__cause__, BrokenSampler)


def test_both_kinds_of_error_are_one_and_neither_is_the_other():
    assert issubclass(GenerateRuntimeError, ConstrainedGenerateError)
    assert issubclass(GenerateConstraintError, ConstrainedGenerateError)
    assert not issubclass(GenerateConstraintError, GenerateRuntimeError)
    assert not issubclass(GenerateRuntimeError, GenerateConstraintError)


def test_what_on_token_raises_goes_through():
    def fails(token, piece):
        raise BlockingIOError("the client is gone")

    with pytest.raises(BlockingIOError):
        generate(ScriptedModel(*b"a"), sampler(regex("a")), on_token=fails)


def test_a_sampler_that_was_used_goes_on_from_its_history_until_it_is_reset():
    constrained = sampler(regex("ab?"))
    assert generate(ScriptedModel(*b"a"), constrained) == "a"
    with pytest.raises(GenerateConstraintError):
        generate(ScriptedModel(*b"a"), constrained)
    constrained.reset()
    assert generate(ScriptedModel(*b"ab"), constrained) == "ab"


def test_without_a_constraint_it_is_the_model_s_own_text():
    assert generate(ScriptedModel(*b"anything, at all"), ConstrainedSampler(FREE, greedy)) == "anything, at all"
