"""Whole sessions, token by token, and single draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from tests.vectors.cases.penalties import REGIONS, random_ngram, random_window
from tests.vectors.cases.rows import mask_of, random_mask, random_row, short
from tests.vectors.cases.stages import SOLID, Case, expected, random_chain, random_fields, solid
from tests.vectors.reference.chain import mirostat_of
from tests.vectors.reference.mirostat import first_mu
from tests.vectors.reference.penalties import PERMISSIVE, Penalties
from tests.vectors.reference.philox import draw

WIDTH = 16
STEPS = 8
LAST = 2**64 - 1


def session_vectors(rng: Random, count: int) -> Iterator[Case]:
    """`count` sessions of 8 tokens over a vocabulary of 16; each step's place has a region of its own."""
    found = 0
    while found < count:
        config: dict[str, Any] = {"seed": str(rng.randrange(2**64))}
        config["stages"] = [{name: random_fields(name, rng, WIDTH)} for name in random_chain(rng)]
        if rng.random() < 0.7:
            config["window_penalty"] = random_window(rng)
        if rng.random() < 0.7:
            config["ngram_penalty"] = random_ngram(rng, WIDTH)
        steps = []
        for _ in range(STEPS):
            logits = random_row(rng, WIDTH, short)
            mask = random_mask(rng, WIDTH, logits) if rng.random() < 0.8 else mask_of([rng.randrange(WIDTH)], WIDTH)
            step: Case = {"region": rng.choice(REGIONS), "logits": logits, "mask": mask}
            if step["region"] == PERMISSIVE:
                step["staying"] = sorted(rng.sample(range(WIDTH), 12))
            steps.append(step)
        prompt = [rng.randrange(WIDTH) for _ in range(rng.randrange(8))]
        case: Case = {"name": f"random {found}", "config": config, "prompt": prompt, "steps": steps}
        answers = session_expected(case)
        if _solid(case, answers):
            found += 1
            yield case


def session_expected(case: Mapping[str, Any]) -> list[Case]:
    """Of each step: draw, adjustments, and what the chain makes of them. Each token is accepted at the next place."""
    config, steps = case["config"], case["steps"]
    penalties = Penalties(config)
    penalties.prompt(case["prompt"])
    mirostat = mirostat_of(config["stages"])
    mu = None if mirostat is None else first_mu(mirostat["tau"])
    answers: list[Case] = []
    for position, step in enumerate(steps):
        if position > 0:
            penalties.accept(answers[-1]["token"], step["region"])
        found = penalties.adjustments(step["region"], step.get("staying"))
        adjustments = {"ids": list(found.ids), "scales": list(found.scales), "offsets": list(found.offsets)}
        number = draw(int(config["seed"]), position)
        answer = expected(_sampling(case, position, number, mu, adjustments))
        answers.append({"draw": number, "adjustments": adjustments} | answer)
        if "error" in answer:
            break
        mu = answer.get("mu")
    return answers


def _sampling(case: Mapping[str, Any], position: int, number: float, mu: float | None, adjustments: Case) -> Case:
    step = case["steps"][position]
    sampling: Case = {"stages": case["config"]["stages"], "logits": step["logits"], "mask": step["mask"]}
    sampling |= {"draw": number, "adjustments": adjustments}
    return sampling if mu is None else sampling | {"mu": mu}


def _solid(case: Mapping[str, Any], answers: list[Case]) -> bool:
    """Whether every step finds a token, by decisions that are clear or exact."""
    mirostat = mirostat_of(case["config"]["stages"])
    mu = None if mirostat is None else first_mu(mirostat["tau"])
    for position, answer in enumerate(answers):
        if "error" in answer or not solid(_sampling(case, position, answer["draw"], mu, answer["adjustments"])):
            return False
        mu = answer.get("mu")
    penalties = Penalties(case["config"])
    penalties.prompt(case["prompt"])
    for answer, step in zip(answers, case["steps"][1:], strict=False):
        penalties.accept(answer["token"], step["region"])
        if penalties.margin(step["region"]) < SOLID:
            return False
    return True


def draw_vectors(rng: Random, count: int) -> Iterator[Case]:
    """`count` draws; seeds and positions as decimal strings, for languages whose numbers end at 2^53."""
    ends = [(0, 0), (0, 1), (1, 0), (LAST, 0), (0, LAST), (LAST, LAST), (2**63, 2**32), (2**53 + 1, 7)]
    many = [(rng.randrange(2**64), rng.choice([rng.randrange(10000), rng.randrange(2**64)])) for _ in range(count)]
    for seed, position in [*ends, *many][:count]:
        yield {"seed": str(seed), "position": str(position)}


def draw_expected(case: Mapping[str, Any]) -> float:
    """The reference's draw."""
    return draw(int(case["seed"]), int(case["position"]))
