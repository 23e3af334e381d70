"""Our own runner and daemon on what the vectors hold. No vector is made with it: that is the reference's part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from constraintd_runner import sampling
from numpy.typing import NDArray

from constraintd.engine.region import Region
from constraintd.sampler import config as domain
from constraintd.sampler.ngrams import NGramStats
from constraintd.sampler.penalties import Penalties
from constraintd.vocabulary.vocabulary import Vocabulary, build_vocabulary

STAGES: Mapping[str, Any] = {
    "greedy": sampling.Greedy,
    "temperature": sampling.Temperature,
    "top_k": sampling.TopK,
    "top_p": sampling.TopP,
    "min_p": sampling.MinP,
    "typical_p": sampling.TypicalP,
    "tail_free": sampling.TailFree,
    "split_p": sampling.SplitP,
    "split_l": sampling.SplitL,
    "mirostat_v1": sampling.MirostatV1,
    "mirostat_v2": sampling.MirostatV2,
    "logit_bias": lambda ids, biases: sampling.LogitBias(tuple(ids), tuple(biases)),
}

VOCABULARY: Vocabulary = build_vocabulary(
    [bytes([token % 256]) * (1 + token // 256) for token in range(300)], {300: "<eog>"}, eog_ids=[300]
)


def runner_stages(stages: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[sampling.Stage]:
    """The runner's stages for those of a vector. tau and eta are the daemon's business."""
    result = []
    for stage in stages:
        ((name, fields),) = stage.items()
        result.append(STAGES[name](**{key: value for key, value in fields.items() if key not in ("tau", "eta")}))
    return result


def runner_adjustments(fields: Mapping[str, Any] | None) -> sampling.Adjustments | None:
    """The runner's adjustments; none where a vector has none."""
    if fields is None or not fields["ids"]:
        return None
    ids = np.array(fields["ids"], dtype=np.uint32)
    return sampling.Adjustments(ids, np.array(fields["scales"]), np.array(fields["offsets"]))


def row_of(case: Mapping[str, Any]) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    """The logits [width] and mask words of a case."""
    return np.array([float(value) for value in case["logits"]], dtype=np.float32), np.array(case["mask"], dtype="<u4")


def runner_kept(case: Mapping[str, Any]) -> dict[int, float]:
    """The tokens that the runner's stages keep, with their logits; greedy keeps the one that it picks."""
    candidates = sampling.masked_candidates(*row_of(case))
    adjustments = runner_adjustments(case.get("adjustments"))
    if adjustments is not None:
        candidates = adjustments.apply(candidates)
    for stage in runner_stages(case["stages"]):
        if isinstance(stage, sampling.Greedy) or (isinstance(stage, sampling.Temperature) and stage.temperature == 0):
            candidates = candidates.at(np.array([candidates.logits.argmax()]))
        elif isinstance(stage, sampling.MirostatV1 | sampling.MirostatV2):
            candidates = stage.apply(candidates, case["mu"])
        else:
            candidates = stage.apply(candidates)
    return dict(zip(candidates.ids.tolist(), candidates.logits.tolist(), strict=True))


def domain_config(config: Mapping[str, Any]) -> domain.SamplerConfig:
    """The penalties of a vector's config as the daemon's values."""
    window, ngram = config.get("window_penalty"), config.get("ngram_penalty")
    return domain.SamplerConfig(
        window_penalty=None if window is None else domain.WindowPenalty(**window),
        ngram_penalty=None if ngram is None else _domain_ngram(**ngram),
    )


def _domain_ngram(
    *, ignored: Mapping[str, Any], mode: str = "PENALTY_MODE_SURGICAL", **fields: Any
) -> domain.NGramPenalty:
    ngrams = tuple(tuple(entry["ids"]) for entry in ignored.get("ngrams", []))
    return domain.NGramPenalty(
        mode=domain.PenaltyMode(mode.removeprefix("PENALTY_MODE_")),
        ignored=domain.IgnoredNGrams(ngrams=ngrams, texts=(), sets=()),
        **fields,
    )


def daemon_penalties(config: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Penalties:
    """The daemon's penalties after those events."""
    penalties = Penalties.start(domain_config(config), VOCABULARY)
    for event in events:
        if "prompt" in event:
            penalties.prompt(tuple(event["prompt"]))
        elif "accept" in event:
            penalties.advance(event["accept"], Region[event["region"]])
        else:
            penalties.new_turn()
    return penalties


def daemon_adjustments(penalties: Penalties, region: str, staying: Sequence[int] | None) -> dict[int, Any]:
    """(scale, offset) of each token that the daemon's penalties change. All of a permissive place stay by default."""
    found = penalties.adjustments(
        Region[region], lambda tokens: [staying is None or int(token) in staying for token in tokens]
    )
    if found is None:
        return {}
    ids = found.ids.tolist()
    assert ids == sorted(set(ids))
    pairs = zip(found.scales.tolist(), found.offsets.tolist(), strict=True)
    return {token: pair for token, pair in zip(ids, pairs, strict=True) if pair != (1.0, 0.0)}


def written(statistics: NGramStats) -> dict[str, Any]:
    """The daemon's statistics as vectors write them."""
    ngrams = [{"ids": list(ngram), "positions": list(entry.positions)} for ngram, entry in statistics.entries.items()]
    return {"step": statistics.step, "ngrams": ngrams}
