"""Picking a token: the repository's vectors for the stages that a client has, and whole Directives."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from clients.conformance.harness.case import Case, case
from clients.conformance.harness.expect import near, same, true
from clients.conformance.harness.talk import Talk, regex
from tests.vectors.cases import stages as reference
from tests.vectors.generate import FOLDER
from tests.vectors.reference.chain import mirostat_of
from tests.vectors.reference.mirostat import first_mu

STAGES: Final = (
    *("greedy", "temperature", "top_k", "top_p", "min_p", "typical_p", "tail_free", "split_p", "split_l"),
    *("mirostat_v1", "mirostat_v2", "logit_bias"),
)
LEAST_VECTORS: Final = 40
"""In each file of one stage: fewer would mean that the file is not what this module takes it for."""


def vectors(name: str) -> list[dict[str, Any]]:
    """Of one file, by its name without `.json`."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def check(talk: Talk, vector: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """The client picks what is expected from these logits."""
    request = {key: vector[key] for key in ("stages", "logits", "draw")}
    request["mask"] = struct.pack(f"<{len(vector['mask'])}I", *vector["mask"]).hex()
    request |= {key: vector[key] for key in ("adjustments", "mu") if vector.get(key) is not None}
    if "error" in expected:
        talk.refused({"kind": "sampling"}, "pick", **request)
        return
    picked = talk.ok("pick", **request)
    same(picked["token"], expected["token"], f"{what}: the token")
    near(picked["surprisal"], expected["surprisal"], f"{what}: the surprisal")


def _one_file(name: str, stages: str, description: str) -> Case:
    def script(talk: Talk) -> None:
        found = vectors(name)
        true(len(found) >= LEAST_VECTORS, f"{name}.json has only {len(found)} vectors")
        for index, vector in enumerate(found):
            check(talk, vector, vector["expected"], f"vector {index} of {name}.json, {vector['name']!r}")

    return Case(f"vectors-{name.replace('_', '-')}", description, script, frozenset(stages.split()))


ONE_STAGE = tuple(
    _one_file(name, name, f"The vectors of {name}.json give their token and surprisal.") for name in STAGES
)
CHAINS = _one_file("chains", " ".join(STAGES), "The vectors of whole chains give their token and surprisal.")


@case(stages=" ".join(STAGES))
def vectors_sessions(talk: Talk) -> None:
    """The vectors of whole sessions are picked token by token, with adjustments and mu as a daemon sends them."""
    found = vectors("sessions")
    true(len(found) >= 20, f"sessions.json has only {len(found)} vectors")
    for session in found:
        stages = session["config"].get("stages", [])
        mirostat = mirostat_of(stages)
        mu = None if mirostat is None else first_mu(mirostat["tau"])
        for position, (step, expected) in enumerate(zip(session["steps"], session["expected"], strict=True)):
            vector = {
                "stages": stages,
                "mu": mu,
                **step,
                "draw": expected["draw"],
                "adjustments": expected["adjustments"],
            }
            check(talk, vector, expected, f"position {position} of {session['name']!r}")
            mu = expected.get("mu", mu)


def _walk(talk: Talk, sampler: dict[str, Any], seen: Callable[[Mapping[str, Any]], bool]) -> None:
    """Picks ten tokens from live Directives; each is what the slow reference picks from the same Directive."""
    talk.begin()
    answer = talk.open("s", regex("[a-p ]{20,}"), sampler=sampler, prompt_tokens=[97, 98, 99, 97, 98])
    noticed = False
    for position in range(10):
        said = answer["directive"]
        noticed = noticed or seen(said)
        logits = [float((token * 37 + position * 101) % 64) / 8 - 4 for token in range(300)]
        words = bytes.fromhex(said["mask"])
        vector = {
            "stages": sampler["stages"],
            "logits": logits,
            "mask": list(struct.unpack(f"<{len(words) // 4}I", words)),
            "draw": said["draw"],
            "mu": said["mu"],
            "adjustments": said["adjustments"],
        }
        expected = reference.expected({key: value for key, value in vector.items() if value is not None})
        picked = talk.ok("pick", session="s", logits=logits)
        same(picked["token"], expected["token"], f"the token at position {position}")
        near(picked["surprisal"], expected["surprisal"], f"the surprisal at position {position}")
        answer = talk.ok("step", session="s", tokens=[picked["token"]], surprisals=[picked["surprisal"]])
    true(noticed, f"the Directives of this sampler brought nothing to be minded: {answer['directive']}")


@case(stages="temperature top_k")
def a_pick_minds_the_penalties_of_the_directive(talk: Talk) -> None:
    """Picks from live Directives with penalties are those of the reference, by the draw of each position."""
    penalty = {"repetition": 1.4, "frequency": 0.5, "presence": 0.25, "frequency_counts_prompt": True}
    stages = [{"top_k": {"k": 12}}, {"temperature": {"temperature": 0.8}}]
    sampler = {"stages": stages, "seed": "11", "window_penalty": penalty}
    _walk(talk, sampler, lambda said: said["adjustments"] is not None)


@case(stages="mirostat_v2")
def a_pick_minds_mu_of_the_directive(talk: Talk) -> None:
    """Picks from live Directives of a session with mirostat are those of the reference, mu as the daemon moves it."""
    sampler = {"stages": [{"mirostat_v2": {"tau": 2.0, "eta": 0.3, "max_keep": 100}}], "seed": "12"}
    _walk(talk, sampler, lambda said: said["mu"] not in (None, 4.0))


@case(stages="greedy")
def a_tie_goes_to_the_lowest_id(talk: Talk) -> None:
    """Greedy takes the lowest of several highest tokens that the mask allows."""
    logits = [9.0, 1.0, 5.0, 5.0, 5.0]
    picked = talk.ok("pick", stages=[{"greedy": {}}], logits=logits, mask="1a000000", draw=0.9)
    same(picked["token"], 3, "the token")
    near(picked["surprisal"], 0.0, "the surprisal")
