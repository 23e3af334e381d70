"""Cases of the penalties: a config, what happened in the session, a place, and what the reference does there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

from tests.vectors.cases.stages import SOLID
from tests.vectors.reference.penalties import PERMISSIVE, PROSE, STRUCTURAL, Penalties, Statistics

Case: TypeAlias = dict[str, Any]
Event: TypeAlias = dict[str, Any]

REGIONS = (PROSE, PERMISSIVE, STRUCTURAL)


def prompt(*tokens: int) -> Event:
    """Prompt tokens."""
    return {"prompt": list(tokens)}


def accept(*tokens: int, region: str = PROSE) -> list[Event]:
    """Accepted tokens, each with that region behind it."""
    return [{"accept": token, "region": region} for token in tokens]


NEW_TURN: Event = {"new_turn": True}


def window_vectors(rng: Random, count: int) -> Iterator[Case]:
    """`count` cases of the window penalty, those with a name first."""
    events = [prompt(1, 2, 2), *accept(3, 3, 4)]
    named: Sequence[tuple[str, Mapping[str, Any], list[Event]]] = (
        ("nothing asked", {}, events),
        ("no history", {"repetition": 1.5, "frequency": 1.0}, []),
        (
            "repetition counts the prompt, frequency doesn't",
            {"repetition": 1.5, "frequency": 0.5, "presence": 2},
            events,
        ),
        ("repetition leaves the prompt out", {"repetition": 1.5, "repetition_counts_prompt": False}, events),
        ("frequency counts the prompt", {"frequency": 0.5, "presence": 0.25, "frequency_counts_prompt": True}, events),
        ("prompt tokens fill the window uncounted", {"presence": 1.0, "window": 2}, [*accept(5), prompt(1, 1)]),
        ("a window of one", {"repetition": 2.0, "window": 1}, events),
        ("a window as long as the history", {"repetition": 2.0, "window": 6}, events),
        ("rewards", {"repetition": 0.5, "frequency": -1.0, "presence": -0.5}, events),
        ("turns are one history", {"frequency": 1.0}, [*accept(1), NEW_TURN, prompt(2), *accept(1)]),
        ("regions mean nothing to it", {"frequency": 1.0}, [*accept(1, region=STRUCTURAL), *accept(1)]),
    )
    for title, rules, happened in named:
        yield _case(title, {"window_penalty": dict(rules)}, happened, PROSE)
    for index in range(len(named), count):
        yield {"name": f"random {index}"} | random_case(rng, window=True)


def ngram_vectors(rng: Random, count: int) -> Iterator[Case]:
    """`count` cases of the n-gram penalty, those with a name first; some have a window penalty beside it."""
    broad: Mapping[str, Any] = {"mode": "PENALTY_MODE_BROAD"}
    again = accept(1, 2, 3, 1, 2)
    stop = {"ignored": {"ngrams": [{"ids": [3]}]}}
    named: Sequence[tuple[str, Mapping[str, Any], list[Event], str, list[int] | None]] = (
        ("no history", {}, [], PROSE, None),
        ("surgical: how the repeated n-gram goes on", {"min_size": 3, "max_count": 0.5}, again, PROSE, None),
        ("surgical: a token seen once is left alone", {}, accept(1, 2, 3), PROSE, None),
        ("surgical: the whole history", {"max_count": 0, "min_size": 2}, accept(7, 7, 7), PROSE, None),
        ("surgical: an ignored continuation is skipped", {"min_size": 3, "max_count": 0.5, **stop}, again, PROSE, None),
        ("broad: every n-gram", {**broad, "max_size": 2}, again, PROSE, None),
        ("broad: scaled above max_count alone", {**broad, "decay": 1.0, "max_count": 2}, again, PROSE, None),
        ("broad: the ignored last token is stepped over", {**broad, **stop}, accept(1, 3), PROSE, None),
        ("broad: all tokens ignored", {**broad, **stop}, accept(3, 3), PROSE, None),
        ("an ignored pair isn't counted", {**broad, "ignored": {"ngrams": [{"ids": [1, 2]}]}}, again, PROSE, None),
        ("exactly max_count isn't above it", {"decay": 1.0, "max_count": 2}, again, PROSE, None),
        ("exactly max_count with decay", {"decay": 0.5, "max_count": 1.5, "max_size": 1}, accept(4, 4), PROSE, None),
        ("a window of one pass", {**broad, "window": 1}, again, PROSE, None),
        ("a window of three passes", {**broad, "window": 3, "decay": 0.5}, again, PROSE, None),
        ("seven tokens", {"min_size": 7, "max_size": 7, "max_count": 0}, accept(*range(9)), PROSE, None),
        ("the prompt counts", {}, [prompt(1, 2, 1, 2)], PROSE, None),
        ("the prompt doesn't count", {"counts_prompt": False}, [prompt(1, 2, 1, 2), *accept(1, 2)], PROSE, None),
        ("structure: nobody is punished", {}, [*again, *accept(1, region=STRUCTURAL)], STRUCTURAL, None),
        ("structure: nothing is counted", broad, accept(1, 2, 1, 2, region=STRUCTURAL), PROSE, None),
        ("permissive: statistics of its own", broad, [*again, *accept(5, 5, region=PERMISSIVE)], PERMISSIVE, None),
        ("prose after it: its own again", broad, [*accept(5, 5, region=PERMISSIVE), *accept(6)], PROSE, None),
        (
            "permissive: the history knows the structure",
            {"min_size": 2, "max_count": 0},
            [*accept(8, region=STRUCTURAL), *accept(9, region=PERMISSIVE), *accept(8, region=STRUCTURAL)],
            PERMISSIVE,
            None,
        ),
        ("permissive: who would leave is let off", broad, accept(5, 6, 5, region=PERMISSIVE), PERMISSIVE, [6]),
        ("permissive: all would leave", broad, accept(5, 6, 5, region=PERMISSIVE), PERMISSIVE, []),
        (
            "a new turn forgets constrained regions",
            broad,
            [*accept(5, 5, region=PERMISSIVE), NEW_TURN, prompt(1), *accept(6, region=PERMISSIVE)],
            PERMISSIVE,
            None,
        ),
        ("a new turn goes on with prose", broad, [*accept(1, 2), NEW_TURN, prompt(1), *accept(2)], PROSE, None),
        ("rewards", {"repeat": 0.5, "frequency": -1.0, "presence": -0.5, "max_count": 0}, again, PROSE, None),
    )
    for title, rules, happened, region, staying in named:
        yield _case(title, {"ngram_penalty": {"ignored": {}} | dict(rules)}, happened, region, staying)
    found = len(named)
    while found < count:
        case = {"name": f"random {found}"} | random_case(rng, window=rng.random() < 0.3, ngram=True)
        if margin(case) >= SOLID:
            found += 1
            yield case


def _case(
    title: str, config: Mapping[str, Any], events: list[Event], region: str, staying: list[int] | None = None
) -> Case:
    case: Case = {"name": title, "config": dict(config), "events": events, "region": region}
    return case if staying is None else case | {"staying": staying}


def random_case(rng: Random, *, window: bool = False, ngram: bool = False) -> Case:
    """A case of up to 60 tokens from a small alphabet, so that much comes again."""
    alphabet = rng.choice([2, 3, 5, 12])
    config: dict[str, Any] = {}
    if window:
        config["window_penalty"] = random_window(rng)
    if ngram:
        config["ngram_penalty"] = random_ngram(rng, alphabet)
    events = [prompt(*(rng.randrange(alphabet) for _ in range(rng.randrange(12))))]
    region = PROSE
    for _ in range(rng.randrange(50)):
        if rng.random() < 0.2:
            region = rng.choice(REGIONS)
        events += accept(rng.randrange(alphabet), region=region)
        if rng.random() < 0.03:
            events += [NEW_TURN, prompt(*(rng.randrange(alphabet) for _ in range(rng.randrange(6))))]
    case: Case = {"config": config, "events": events, "region": region}
    if region == PERMISSIVE and rng.random() < 0.5:
        case["staying"] = sorted(rng.sample(range(alphabet), rng.randrange(alphabet + 1)))
    return case


def random_window(rng: Random) -> dict[str, Any]:
    """A window penalty."""
    return {
        "repetition": rng.choice([1.0, 1.1, 0.8, 2.0]),
        "frequency": rng.choice([0.0, 0.5, -0.25, round(rng.uniform(-2, 2), 3)]),
        "presence": rng.choice([0.0, 0.5, -0.25, round(rng.uniform(-2, 2), 3)]),
        "repetition_counts_prompt": rng.random() < 0.5,
        "frequency_counts_prompt": rng.random() < 0.5,
    } | ({"window": rng.randrange(1, 40)} if rng.random() < 0.7 else {})


def random_ngram(rng: Random, alphabet: int) -> dict[str, Any]:
    """An n-gram penalty that ignores some n-grams of tokens below `alphabet`."""
    least = rng.randrange(1, 5)
    ignored = [
        {"ids": [rng.randrange(alphabet) for _ in range(rng.choice([1, 1, 2, 3]))]} for _ in range(rng.randrange(4))
    ]
    return {
        "mode": rng.choice(["PENALTY_MODE_BROAD", "PENALTY_MODE_SURGICAL"]),
        "min_size": least,
        "max_size": rng.randrange(least, 8),
        "repeat": rng.choice([1.05, 1.0, 0.9, 1.5]),
        "frequency": rng.choice([0.025, 0.0, -0.5, 1.0]),
        "presence": rng.choice([0.0625, 0.0, -0.5, 1.0]),
        "window": rng.choice([1, 3, 10, 2048]),
        "decay": rng.choice([1.0, 0.99, 0.5, 0.01]),
        "max_count": rng.choice([0.0, 1.0, 2.0, round(rng.uniform(0, 4), 3)]),
        "counts_prompt": rng.random() < 0.5,
        "ignored": {"ngrams": ignored} if ignored else {},
    }


def folded(config: Mapping[str, Any], events: Sequence[Event]) -> Penalties:
    """The reference's penalties after those events."""
    penalties = Penalties(config)
    for event in events:
        if "prompt" in event:
            penalties.prompt(event["prompt"])
        elif "accept" in event:
            penalties.accept(event["accept"], event["region"])
        else:
            penalties.new_turn()
    return penalties


def expected(case: Mapping[str, Any]) -> Case:
    """The adjustments at the case's place, and the statistics there."""
    penalties = folded(case["config"], case["events"])
    found = penalties.adjustments(case["region"], case.get("staying"))
    result: Case = {
        "adjustments": {"ids": list(found.ids), "scales": list(found.scales), "offsets": list(found.offsets)}
    }
    if penalties.ngram_rules is not None:
        result["statistics"] = {"prose": _written(penalties.prose), "constrained": _written(penalties.constrained)}
    return result


def _written(statistics: Statistics) -> Case:
    ngrams = [{"ids": list(ngram), "positions": at} for ngram, at in statistics.positions().items()]
    return {"step": statistics.step, "ngrams": ngrams}


def margin(case: Mapping[str, Any]) -> float:
    """How near an effective count comes to max_count without being it."""
    return folded(case["config"], case["events"]).margin(case["region"])
