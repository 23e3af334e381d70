"""The model, and the search that holds histories against it: what they explain, and what they don't."""

from tests.fault.explain import explain
from tests.fault.history import Answer, Call, Operation, Refusal
from tests.fault.model import Place, Text, applied

# Two turns: "abc", then "de".
TEXT = Text(
    tokens=(97, 98, 99, 100, 101),
    ends=(3, 5),
    directives={(0, 0): "A", (0, 1): "B", (0, 2): "C", (0, 3): "end", (1, 3): "D", (1, 4): "E", (1, 5): "END"},
    config="config",
)
NO_ANSWER = None


def history(*operations):
    """Operations one after the other: (call, outcome), or (call, outcome, sent, answered) for those that overlap."""
    made = []
    for index, (call, outcome, *times) in enumerate(operations):
        sent, answered = times or (10 * index, 10 * index + 5)
        made.append(Operation("s", "c", call, sent, answered if outcome else 0, outcome))
    return made


def said(position, directive, epoch=None, **fields):
    finished, config = directive in ("end", "END"), None if epoch is None else "config"
    return Answer(epoch=epoch, position=position, directive=directive, finished=finished, config=config, **fields)


def step(epoch, position, *tokens):
    return Call("step", epoch, position, tokens)


def resumed(position, directive, epoch, tokens, begins=(0,)):
    return said(position, directive, epoch, tokens=tokens, begins=begins)


OPEN = (Call("open"), said(0, "A", 1))
RESUME, GET, CLOSE = Call("resume"), Call("get"), Call("close")


def explained(*operations):
    return explain(history(*operations), TEXT) is None


# --- the model ---


def told(call, place):
    return applied(place, call, TEXT, fresh=77)[0]


def test_a_step_is_applied_and_told_the_next_directive():
    assert applied(Place(1), step(1, 0, 97), TEXT, 77) == (said(1, "B"), Place(1, (97,), last=0))


def test_a_repeat_is_told_the_same_and_changes_nothing():
    place = Place(1, (97, 98), last=1)
    assert applied(place, step(1, 1, 98), TEXT, 77) == (said(2, "C"), place)


def test_steps_from_the_wrong_place_are_refused():
    place = Place(1, (97, 98), last=1)
    assert told(step(2, 2, 99), place) == Refusal("STALE_EPOCH")
    assert told(step(1, 3, 100), place) == Refusal("POSITION_GAP", expected_position=2)
    assert told(step(1, 0, 97), place) == Refusal("STALE_POSITION", expected_position=2)
    assert told(step(1, 1, 5), place) == Refusal("POSITION_CONFLICT", logged_tokens=(98,))
    assert told(step(1, 3, 100), Place(1, (97, 98, 99), last=2)) == Refusal("SESSION_FINISHED")
    assert told(step(1, 0, 97), None) == Refusal("UNKNOWN_SESSION")


def test_a_takeover_brings_a_new_epoch_and_the_tokens():
    place = Place(1, (97,), last=0)
    assert applied(place, RESUME, TEXT, 77) == (resumed(1, "B", 77, (97,)), Place(77, (97,), last=0))


def test_a_new_turn_begins_behind_the_last_token():
    call = Call("turn", 1, 3, request_id="r")
    answer, place = applied(Place(1, (97, 98, 99), last=2), call, TEXT, 77)
    assert answer == said(3, "D", 77)
    assert (place.begins, place.epoch, place.last) == ((0, 3), 77, None)


def test_a_rollback_into_an_earlier_turn_undoes_the_later_one():
    call = Call("rollback", 1, 4, request_id="r", to_position=2)
    answer, place = applied(Place(1, (97, 98, 99, 100), begins=(0, 3), last=3), call, TEXT, 77)
    assert answer == said(2, "C", 77)
    assert (place.tokens, place.begins) == ((97, 98), (0,))


def test_the_repeat_of_a_change_is_told_the_first_answer_whatever_came_after():
    call = Call("rollback", 1, 2, request_id="r", to_position=0)
    first, place = applied(Place(1, (97, 98), last=1), call, TEXT, 77)
    _, place = applied(place, step(77, 0, 97), TEXT, 78)
    assert applied(place, call, TEXT, 79) == (first, place)


# --- histories ---


def test_an_undisturbed_history_is_explained():
    assert explained(OPEN, (step(1, 0, 97), said(1, "B")), (GET, Answer(tokens=(97,), finished=False)))


def test_a_step_without_an_answer_may_have_been_applied_or_not():
    lost = (step(1, 0, 97), NO_ANSWER)
    assert explained(OPEN, lost, (RESUME, resumed(0, "A", 2, ())))
    assert explained(OPEN, lost, (RESUME, resumed(1, "B", 2, (97,))))


def test_a_step_without_an_answer_may_be_applied_late():
    lost = (step(1, 0, 97), NO_ANSWER)
    empty, there = Answer(tokens=(), finished=False), Answer(tokens=(97,), finished=False)
    assert explained(OPEN, lost, (GET, empty), (GET, there))
    assert not explained(OPEN, lost, (GET, there), (GET, empty))


def test_an_accepted_token_that_is_gone_is_a_violation():
    assert not explained(OPEN, (step(1, 0, 97), said(1, "B")), (RESUME, resumed(0, "A", 2, ())))


def test_a_repeat_that_is_applied_again_is_a_violation():
    first = (step(1, 0, 97), said(1, "B"))
    assert explained(OPEN, first, first)
    assert not explained(OPEN, first, (step(1, 0, 97), said(2, "C")))
    assert not explained(OPEN, first, first, (GET, Answer(tokens=(97, 97), finished=False)))


def test_a_superseded_runner_that_is_heard_is_a_violation():
    taken = (RESUME, resumed(0, "A", 2, ()))
    assert explained(OPEN, taken, (step(1, 0, 97), Refusal("STALE_EPOCH")))
    assert not explained(OPEN, taken, (step(1, 0, 97), said(1, "B")))


def test_another_directive_than_the_undisturbed_ones_is_a_violation():
    assert not explained(OPEN, (step(1, 0, 97), said(1, "C")))


def test_a_takeover_that_nobody_was_told_of_explains_a_stale_epoch():
    refused = (step(1, 0, 97), Refusal("STALE_EPOCH"))
    assert explained(OPEN, (RESUME, NO_ANSWER), refused)
    assert not explained(OPEN, refused, (RESUME, NO_ANSWER))


def test_calls_that_overlap_may_take_effect_in_either_order():
    one = (step(1, 0, 97), said(1, "B"), 10, 30)
    other = (RESUME, resumed(0, "A", 2, ()), 15, 20)
    early = (RESUME, resumed(1, "B", 2, (97,)), 15, 20)
    assert explained(OPEN, one, early)
    assert not explained(OPEN, one, other)  # the step would have come after the takeover, with a stale epoch


def test_the_repeat_of_an_open_tells_an_epoch_that_nobody_knew():
    assert explained((Call("open"), NO_ANSWER), (Call("open"), said(0, "A", 9)), (step(9, 0, 97), said(1, "B")))


def test_the_repeat_of_a_change_tells_an_epoch_that_nobody_knew():
    call = Call("update", 1, 0, request_id="r")
    assert explained(OPEN, (call, NO_ANSWER), (call, said(0, "A", 9)), (step(9, 0, 97), said(1, "B")))
    assert not explained(OPEN, (call, NO_ANSWER), (call, said(0, "A", 9)), (step(1, 0, 97), said(1, "B")))


def test_a_session_that_is_gone_without_a_close_is_a_violation():
    gone = (RESUME, Refusal("UNKNOWN_SESSION"))
    assert explained(OPEN, (CLOSE, Answer(closed=True)), gone)
    assert explained(OPEN, (CLOSE, NO_ANSWER), gone)
    assert not explained(OPEN, gone)


def test_an_error_that_no_client_should_see_is_a_violation():
    assert not explained(OPEN, (step(1, 0, 97), Refusal("INTERNAL")))


def test_a_violation_says_how_far_the_history_is_explained():
    violation = explain(history(OPEN, (step(1, 0, 97), said(1, "B")), (step(1, 1, 98), said(2, "E"))), TEXT)
    assert (violation.explained, violation.of) == (2, 3)
    assert violation.place == Place(1, (97,), last=0)
    assert [operation.call.position for operation in violation.stuck_at] == [1]


def test_many_takeovers_without_an_answer_do_not_make_the_search_long():
    doubtful = [(RESUME, NO_ANSWER)] * 200
    refused = [(step(1, 0, 97), Refusal("STALE_EPOCH"))] * 20
    assert explained(OPEN, *doubtful, *refused)
    assert not explained(OPEN, *doubtful, *refused, (step(1, 0, 97), said(1, "B")))
