"""The sampler against the reference vectors, and against the reference itself on random cases.

The reference (`tests/vectors/reference`) is plain, slow Python that shares no line with the code under test.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from constraintd_runner import sampling
from google.protobuf import json_format

from constraintd.constraint import PartKind, PartSpec
from constraintd.engine.region import Region
from constraintd.engine.token_rules import FixedMask
from constraintd.mask.packed import of_ids
from constraintd.sampler import config as domain
from constraintd.sampler.draws import draw
from constraintd.sampler.settings import Settings
from constraintd.sampler.state import SamplerState
from constraintd.v1 import sampler_pb2
from tests.vectors import our_sampler as ours
from tests.vectors.cases import penalties as penalty_cases
from tests.vectors.cases import stages as stage_cases
from tests.vectors.cases.rows import float32, mask_of
from tests.vectors.generate import FOLDER, vector_files
from tests.vectors.reference.chain import mirostat_of, mu_after
from tests.vectors.reference.mirostat import first_mu, next_mu

TOLERANCE = 1e-5
ROUNDING = 1e-12
"""Where a running sum lies this near to its threshold without meeting it, both ways of going on are right."""


def vectors(name: str) -> list[dict[str, Any]]:
    """The vectors of one file, by its name without `.json`."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def check_sampling(case: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """The runner keeps, and picks, what is expected."""
    logits, mask = ours.row_of(case)
    chain = sampling.Chain.of(ours.runner_stages(case["stages"]))
    adjustments = ours.runner_adjustments(case.get("adjustments"))
    if "error" in expected:
        with pytest.raises(sampling.NothingLeft):
            chain.sample(logits, mask, case["draw"], adjustments=adjustments, mu=case.get("mu"))
        return
    kept = ours.runner_kept(case)
    wanted = [float(value) for value in expected["logits"]]
    assert list(kept) == expected["kept"]
    assert [token for token, value in enumerate(wanted) if value > -math.inf] == expected["kept"]
    # A temperature may shift all logits by one number on its way: nothing that follows can tell.
    shifts = any("temperature" in stage for stage in case["stages"])
    base, found_base = (max(wanted), max(kept.values())) if shifts else (0.0, 0.0)
    found = {token: value - found_base for token, value in kept.items()}
    assert found == pytest.approx({token: wanted[token] - base for token in kept}, rel=TOLERANCE, abs=TOLERANCE)
    picked = chain.sample(logits, mask, case["draw"], adjustments=adjustments, mu=case.get("mu"))
    assert picked.token == expected["token"]
    assert picked.surprisal == pytest.approx(expected["surprisal"], abs=TOLERANCE)


def check_random_sampling(rng: Random, names: Sequence[str], width: int) -> bool:
    """One random case of those stages; False where a decision is too close for either answer to be wrong."""
    case = stage_cases.random_case(rng, width, names)
    if 0 < stage_cases.margin(case) < ROUNDING:
        return False
    check_sampling(case, stage_cases.expected(case))
    return True


def by_token(adjustments: Mapping[str, Any]) -> dict[int, Any]:
    """(scale, offset) of each token in a vector's adjustments."""
    pairs = zip(adjustments["scales"], adjustments["offsets"], strict=True)
    return dict(zip(adjustments["ids"], pairs, strict=True))


def same_adjustments(found: Mapping[int, Any], wanted: Mapping[int, Any]) -> bool:
    """Whether they change the same tokens in the same way, to the tolerance; what changes nothing doesn't count."""
    for token in {*found, *wanted}:
        if found.get(token, (1.0, 0.0)) != pytest.approx(wanted.get(token, (1.0, 0.0)), rel=TOLERANCE, abs=TOLERANCE):
            return False
    return True


def check_penalties(case: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """The daemon's penalties adjust, and count, as expected."""
    penalties = ours.daemon_penalties(case["config"], case["events"])
    found = ours.daemon_adjustments(penalties, case["region"], case.get("staying"))
    wanted = by_token(expected["adjustments"])
    assert same_adjustments(found, wanted), (found, wanted)
    if "statistics" in expected:
        assert ours.written(penalties.ngram_stats) == expected["statistics"]["prose"]
        assert ours.written(penalties.constrained_ngram_stats) == expected["statistics"]["constrained"]


def same(found: Any, made: Any) -> bool:
    """Whether two JSON values are equal, floats to the last few bits (which the platform's logarithm decides)."""
    if isinstance(made, dict):
        return found.keys() == made.keys() and all(same(found[key], made[key]) for key in made)
    if isinstance(made, list):
        return len(found) == len(made) and all(same(a, b) for a, b in zip(found, made, strict=True))
    if isinstance(made, float) and not isinstance(found, str):
        return math.isclose(found, made, rel_tol=1e-12, abs_tol=1e-12)
    return bool(found == made)


@pytest.fixture(scope="module")
def made() -> dict[str, list[dict[str, Any]]]:
    return vector_files()


def test_the_committed_files_are_those_that_are_made(made: dict[str, list[dict[str, Any]]]) -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == set(made)


def test_the_committed_vectors_are_what_the_reference_makes_now(made: dict[str, list[dict[str, Any]]]) -> None:
    for name, made_vectors in made.items():
        committed = vectors(Path(name).stem)
        assert len(committed) == len(made_vectors), name
        for found, wanted in zip(committed, made_vectors, strict=True):
            assert same(found, wanted), (name, found, wanted)


def test_the_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 1_500_000


def test_stages_and_configs_are_the_protocols() -> None:
    for name in [*ours.STAGES, "chains"]:
        for vector in vectors(name):
            json_format.ParseDict({"stages": vector["stages"]}, sampler_pb2.SamplerConfig())
    for name in ["window_penalty", "ngram_penalty", "sessions"]:
        for vector in vectors(name):
            json_format.ParseDict(vector["config"], sampler_pb2.SamplerConfig())


def test_the_references_draws_are_numpys_and_the_daemons() -> None:
    for vector in vectors("draws"):
        seed, position = int(vector["seed"]), int(vector["position"])
        key, counter = np.array([seed, 0], dtype=np.uint64), np.array([0, position, 0, 0], dtype=np.uint64)
        assert np.random.Generator(np.random.Philox(key=key, counter=counter)).random() == vector["expected"]
        assert draw(seed, position) == vector["expected"]


@pytest.mark.parametrize("name", [*ours.STAGES, "chains"])
def test_the_runner_agrees_with_every_vector(name: str) -> None:
    assert len(vectors(name)) >= 40
    for vector in vectors(name):
        check_sampling(vector, vector["expected"])


@pytest.mark.parametrize("name", ["window_penalty", "ngram_penalty"])
def test_the_daemons_penalties_agree_with_every_vector(name: str) -> None:
    for vector in vectors(name):
        check_penalties(vector, vector["expected"])


def test_daemon_and_runner_together_agree_with_every_session() -> None:
    for vector in vectors("sessions"):
        config, penalties = vector["config"], ours.daemon_penalties(vector["config"], [{"prompt": vector["prompt"]}])
        mirostat = mirostat_of(config["stages"])
        mu = None if mirostat is None else first_mu(mirostat["tau"])
        for position, (step, expected) in enumerate(zip(vector["steps"], vector["expected"], strict=True)):
            if position > 0:
                penalties.advance(vector["expected"][position - 1]["token"], Region[step["region"]])
            found = ours.daemon_adjustments(penalties, step["region"], step.get("staying"))
            assert same_adjustments(found, by_token(expected["adjustments"]))
            number = draw(int(config["seed"]), position)
            assert number == expected["draw"]
            ids = sorted(found)
            adjustments = {"ids": ids, "scales": [found[i][0] for i in ids], "offsets": [found[i][1] for i in ids]}
            case = {"stages": config["stages"], "draw": number, "mu": mu, "adjustments": adjustments} | step
            check_sampling(case, expected)
            if mu is not None:
                mu = mu_after(config["stages"], mu, expected["surprisal"], step["mask"])
                assert mu == pytest.approx(expected["mu"])


@pytest.mark.parametrize("name", list(ours.STAGES))
def test_each_stage_agrees_with_the_reference_on_random_rows(name: str) -> None:
    rng = Random(f"stage {name}")
    checked = 0
    while checked < 1000:
        checked += check_random_sampling(rng, [name], rng.randrange(1, 301))


def test_chains_agree_with_the_reference_on_random_rows() -> None:
    rng = Random("chains")
    checked = sum(check_random_sampling(rng, stage_cases.random_chain(rng), rng.randrange(1, 301)) for _ in range(1010))
    assert checked >= 1000


@pytest.mark.parametrize("name", ["top_k", "greedy"])
def test_long_rows_lose_nothing_to_the_runners_shortcut_for_the_highest(name: str) -> None:
    rng = Random(f"long rows {name}")
    for _ in range(20):
        case = stage_cases.random_case(rng, rng.randrange(8192, 20000), [name])
        if name == "top_k":
            case["stages"] = [{"top_k": {"k": rng.choice([1, 40, 200])}}, *case["stages"]]
        check_sampling(case, stage_cases.expected(case))


@pytest.mark.parametrize("legal", [[7], [7, 8]], ids=["one legal token", "two legal tokens"])
def test_the_daemon_moves_mu_as_the_reference_does(legal: list[int]) -> None:
    rule = FixedMask(of_ids(legal, ours.VOCABULARY.logits_width))
    part = PartSpec("allowed", PartKind.RULE, b"", start=lambda: rule, at=lambda _: rule)
    config = domain.SamplerConfig(stages=(domain.MirostatV2(tau=2.5, eta=0.3),))
    state = SamplerState.start(Settings(ours.VOCABULARY, config, (part,)))
    mu = first_mu(2.5)
    assert state.mu == mu == 5.0
    for surprisal in (0.0, 0.5, 0.0, 4.75, 0.0) if len(legal) > 1 else (0.0, 0.0):
        state.advance(7, surprisal)
        mu = next_mu(mu, 2.5, 0.3, surprisal, mask_of(legal, ours.VOCABULARY.logits_width))
        assert state.mu == pytest.approx(mu, abs=TOLERANCE)
    assert mu == pytest.approx(7.175 if len(legal) > 1 else 5.0)


@pytest.mark.parametrize("stages", [[{"temperature": {"temperature": 1e-308}}], [{"top_k": {"k": 3}}]])
def test_logits_at_the_ends_of_float32_are_picked_from(stages: list[Any]) -> None:
    largest = float32(3.4e38)
    case = {"stages": stages, "logits": [-largest, largest, largest, 1e-45, 0.0], "mask": mask_of(range(5), 5)}
    for number, token in ((0.0, 1), (0.49, 1), (0.5, 2), (0.99, 2)):
        logits, mask = ours.row_of(case)
        picked = sampling.Chain.of(ours.runner_stages(stages)).sample(logits, mask, number)
        assert (picked.token, picked.surprisal) == (token, 1.0)


@pytest.mark.parametrize(
    ("window", "ngram"), [(True, False), (False, True), (True, True)], ids=["window", "n-grams", "both"]
)
def test_each_penalty_agrees_with_the_reference_on_random_histories(window: bool, ngram: bool) -> None:
    rng = Random(f"penalties {window} {ngram}")
    checked = 0
    while checked < 1000:
        case = penalty_cases.random_case(rng, window=window, ngram=ngram)
        if penalty_cases.margin(case) >= ROUNDING:
            check_penalties(case, penalty_cases.expected(case))
            checked += 1
