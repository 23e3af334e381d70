"""Cases of one stage each, and of whole chains: what goes in, and what the reference makes of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

from tests.vectors.cases.rows import DRAWS, EDGES, float32, random_draw, random_mask, random_row, short
from tests.vectors.reference.chain import NothingLeft, mirostat_of, mu_after, sample
from tests.vectors.reference.row import Adjustments

Case: TypeAlias = dict[str, Any]

SOLID = 1e-9
"""A vector's decisions are this far from falling the other way, or exactly at the edge (where floats are exact)."""

PARAMETERS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "greedy": [{}],
    "temperature": [{"temperature": t} for t in (0.0, 1.0, 0.5, 2.0, 0.01, 100.0)],
    "top_k": [{"k": k} for k in (1, 2, 3, 4, 1000)],
    "top_p": [{"p": p} for p in (0.5, 1.0, 1e-12, 0.75, 0.97)],
    "min_p": [{"p": p} for p in (0.0, 1.0, 0.5, 0.1, 1e-12)],
    "typical_p": [{"p": p} for p in (0.5, 1.0, 1e-12, 0.75, 0.97)],
    "tail_free": [{"z": z} for z in (0.5, 1.0, 1e-12, 0.25, 0.97)],
    "split_p": [{}, {"min_keep": 2}, {"min_keep": 1, "max_keep": 1}, {"min_keep": 3, "max_keep": 4}, {"max_keep": 2}],
    "split_l": [{}, {"min_keep": 2}, {"min_keep": 1, "max_keep": 1}, {"min_keep": 3, "max_keep": 4}, {"max_keep": 2}],
    "mirostat_v1": [{}, {"max_keep": 2}, {"tau": 1.5, "eta": 0.5}, {"max_keep": 5}],
    "mirostat_v2": [{}, {"max_keep": 1}, {"tau": 1.5, "eta": 0.5}, {"max_keep": 3}],
    "logit_bias": [
        {"ids": [0], "biases": [10.0]},
        {"ids": [1, 0], "biases": [-4.0, 0.5]},
        {"ids": [0], "biases": [-1e300]},
    ],
}
"""Parameters at their ends and between them, by stage. Each edge takes the next two."""

MUS = (6.0, 1.0, 2.0, -1.0, 0.0, 3.5, 12.0, 5000.0)
"""Places of mu: the first one, some near a few tokens, and some far outside."""


def stage_vectors(name: str, rng: Random, count: int) -> Iterator[Case]:
    """`count` cases of that stage: the edges by turns with the parameters at their ends, then random rows."""
    parameters = itertools.cycle(PARAMETERS[name])
    mus, draws = itertools.cycle(MUS), itertools.cycle(DRAWS)
    found = 0
    for (edge, (logits, mask)), _ in itertools.product(EDGES.items(), range(2)):
        fields = next(parameters)
        if name == "logit_bias" and len(logits) < 2:
            fields = PARAMETERS[name][0]
        case: Case = {"name": edge, "stages": [{name: fields}], "logits": logits, "mask": mask, "draw": next(draws)}
        if name.startswith("mirostat"):
            case["mu"] = next(mus)
        if solid(case):
            found += 1
            yield case
    while found < count:
        case = {"name": f"random {found}"} | random_case(rng, rng.randrange(2, 65), [name], short)
        if solid(case):
            found += 1
            yield case


def chain_vectors(rng: Random, count: int) -> Iterator[Case]:
    """`count` cases of whole chains, the first ones of few stages and without candidates."""
    nothing: Sequence[tuple[str, list[float], list[int]]] = (
        ("an empty mask", [1.0, 2.0], [0]),
        ("nothing legal above -inf", [-math.inf, 2.0], [1]),
    )
    for title, logits, mask in nothing:
        yield {"name": title, "stages": [{"top_k": {"k": 2}}], "logits": logits, "mask": mask, "draw": 0.5}
    for title, (logits, mask) in list(EDGES.items())[:8]:
        yield {"name": f"no stages: {title}", "stages": [], "logits": logits, "mask": mask, "draw": 0.5}
    found = 10
    while found < count:
        names = random_chain(rng)
        case = {"name": f"random {found}"} | random_case(rng, rng.randrange(2, 49), names, short)
        if solid(case):
            found += 1
            yield case


def random_case(rng: Random, width: int, names: Sequence[str], rounded: Callable[[float], float] = float32) -> Case:
    """A case of those stages on a random row, with logit adjustments half of the time."""
    logits = random_row(rng, width, rounded)
    case: Case = {
        "stages": [{name: random_fields(name, rng, width)} for name in names],
        "logits": logits,
        "mask": random_mask(rng, width, logits),
        "draw": random_draw(rng),
    }
    if rng.random() < 0.5:
        ids = sorted(rng.sample(range(width), rng.randrange(1, min(width, 8) + 1)))
        case["adjustments"] = {
            "ids": ids,
            "scales": [rng.choice([1.0, 1.1, 1.5, 0.5, round(rng.uniform(0.5, 2), 3)]) for _ in ids],
            "offsets": [rng.choice([0.0, -0.5, 1.0, round(rng.uniform(-3, 3), 3)]) for _ in ids],
        }
    if mirostat_of(case["stages"]) is not None:
        case["mu"] = rng.choice([*MUS, rng.uniform(0.0, 9.0)])
    return case


def random_chain(rng: Random) -> list[str]:
    """Names of 1 to 5 stages in a legal order: one mirostat at most, greedy last."""
    others = [name for name in PARAMETERS if name != "greedy" and not name.startswith("mirostat")]
    names = rng.sample(others, rng.randrange(1, 5))
    if rng.random() < 0.3:
        names.insert(rng.randrange(len(names) + 1), rng.choice(["mirostat_v1", "mirostat_v2"]))
    elif rng.random() < 0.2:
        names.append("greedy")
    return names


def random_fields(name: str, rng: Random, width: int) -> Mapping[str, Any]:
    """Parameters of a stage, at their ends a third of the time. A temperature of 0 is left to cases of its own."""
    if name == "logit_bias":
        ids = rng.sample(range(width), rng.randrange(1, min(width, 6) + 1))
        return {"ids": ids, "biases": [rng.choice([-1.0, 0.0, 2.5, round(rng.uniform(-20, 20), 3)]) for _ in ids]}
    if rng.random() < 1 / 3:
        return rng.choice([fields for fields in PARAMETERS[name] if fields.get("temperature") != 0])
    share = round(rng.uniform(0.001, 1.0), 6)
    least = rng.randrange(1, 6)
    fields: Mapping[str, Mapping[str, Any]] = {
        "greedy": {},
        "temperature": {"temperature": round(rng.uniform(0.05, 3.0), 3)},
        "top_k": {"k": rng.randrange(1, width + 2)},
        "top_p": {"p": share},
        "min_p": {"p": share},
        "typical_p": {"p": share},
        "tail_free": {"z": share},
        "split_p": {"min_keep": least, "max_keep": least + rng.randrange(20)},
        "split_l": {"min_keep": least, "max_keep": least + rng.randrange(20)},
        "mirostat_v1": {"tau": round(rng.uniform(0.5, 5), 3), "eta": 0.2, "max_keep": rng.randrange(2, 120)},
        "mirostat_v2": {"tau": round(rng.uniform(0.5, 5), 3), "eta": 0.2, "max_keep": rng.randrange(1, 120)},
    }
    return fields[name]


def expected(case: Mapping[str, Any]) -> Case:
    """What the reference makes of a case."""
    mu = case.get("mu")
    try:
        picked = sample(
            case["logits"], case["mask"], case["stages"], case["draw"], mu, adjustments_of(case.get("adjustments"))
        )
    except NothingLeft:
        return {"error": "nothing_left"}
    result: Case = {
        "logits": [picked.row.get(token, -math.inf) for token in range(len(case["logits"]))],
        "kept": list(picked.row),
        "token": picked.token,
        "surprisal": picked.surprisal,
    }
    if mu is not None:
        result["mu"] = mu_after(case["stages"], mu, picked.surprisal, case["mask"])
    return result


def adjustments_of(fields: Mapping[str, Any] | None) -> Adjustments:
    """The logit adjustments that a case writes as lists."""
    if fields is None:
        return Adjustments()
    return Adjustments(tuple(fields["ids"]), tuple(fields["scales"]), tuple(fields["offsets"]))


def margin(case: Mapping[str, Any]) -> float:
    """How near the case's closest decision comes to falling the other way."""
    return sample(
        case["logits"],
        case["mask"],
        case["stages"],
        case["draw"],
        case.get("mu"),
        adjustments_of(case.get("adjustments")),
    ).margin


def solid(case: Mapping[str, Any]) -> bool:
    """Whether every decision is either clear or exact, so that any correct implementation decides alike."""
    closest = margin(case)
    return closest == 0 or closest >= SOLID
