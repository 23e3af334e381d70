"""The penalties: a window over the last tokens, and repeated n-grams. Both are folds over what happened.

All is kept as it happened and counted anew at each question.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.vectors.reference.row import Adjustments

BOUND = 1e15
"""Each penalty's scale of a token is held within [1 / BOUND, BOUND] and its offset within [-BOUND, BOUND]: hundreds of
repeated n-grams would else go beyond every float."""

PROSE, PERMISSIVE, STRUCTURAL = "PROSE", "PERMISSIVE", "STRUCTURAL"

WINDOW_DEFAULTS: Mapping[str, Any] = {
    "repetition": 1.0,
    "frequency": 0.0,
    "presence": 0.0,
    "window": None,
    "repetition_counts_prompt": True,
    "frequency_counts_prompt": False,
}
NGRAM_DEFAULTS: Mapping[str, Any] = {
    "mode": "PENALTY_MODE_SURGICAL",
    "min_size": 1,
    "max_size": 4,
    "repeat": 1.05,
    "frequency": 0.025,
    "presence": 0.0625,
    "window": 2048,
    "decay": 0.99,
    "max_count": 1.0,
    "counts_prompt": True,
}


@dataclass(slots=True)
class Statistics:
    """The n-grams of one kind of region, in the order in which they were recorded."""

    history: list[int] = field(default_factory=list)
    step: int = 0
    """Passes so far."""
    recordings: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """(the pass, an n-gram)."""

    def record(self, rules: Mapping[str, Any], ignored: Collection[tuple[int, ...]]) -> None:
        """One pass: old recordings go, the n-grams that end the history come."""
        self.recordings = [(at, ngram) for at, ngram in self.recordings if at > self.step - rules["window"]]
        for size in range(rules["min_size"], min(rules["max_size"], len(self.history)) + 1):
            ngram = tuple(self.history[-size:])
            if ngram not in ignored:
                self.recordings.append((self.step, ngram))
        self.step += 1

    def positions(self) -> dict[tuple[int, ...], list[int]]:
        """The passes in which each n-gram was recorded, n-grams in the order of their first one."""
        found: dict[tuple[int, ...], list[int]] = {}
        for at, ngram in self.recordings:
            found.setdefault(ngram, []).append(at)
        return found

    def effective(self, decay: float) -> dict[tuple[int, ...], float]:
        """The effective count of each n-gram: an occurrence in the newest pass weighs 1."""
        return {
            ngram: sum(decay ** (self.step - 1 - at) for at in positions)
            for ngram, positions in self.positions().items()
        }


class Penalties:
    """The penalties of one session. `config` is a SamplerConfig in protobuf's JSON; `ignored` names n-grams by tokens
    alone (texts and named sets need a vocabulary, and become such n-grams before anything is counted)."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        window, ngram = config.get("window_penalty"), config.get("ngram_penalty")
        self.window_rules = None if window is None else {**WINDOW_DEFAULTS, **window}
        self.ngram_rules = None if ngram is None else {**NGRAM_DEFAULTS, **ngram}
        listed = [] if ngram is None else ngram["ignored"].get("ngrams", [])
        self.ignored = {tuple(entry["ids"]) for entry in listed}
        self.history: list[tuple[int, bool]] = []
        """(token, whether it is a prompt token)."""
        self.prose = Statistics()
        self.constrained = Statistics()

    def prompt(self, tokens: Iterable[int]) -> None:
        """Prompt tokens come before what is accepted next."""
        for token in tokens:
            self.history.append((token, True))
            if self.ngram_rules is not None and self.ngram_rules["counts_prompt"]:
                self.prose.history.append(token)
                self.prose.record(self.ngram_rules, self.ignored)

    def accept(self, token: int, region: str) -> None:
        """A token that ends nothing is accepted; `region` is that of the place behind it."""
        self.history.append((token, False))
        self.prose.history.append(token)
        self.constrained.history.append(token)
        if self.ngram_rules is not None and region == PROSE:
            self.prose.record(self.ngram_rules, self.ignored)
        if self.ngram_rules is not None and region == PERMISSIVE:
            self.constrained.record(self.ngram_rules, self.ignored)

    def new_turn(self) -> None:
        """Constrained regions are a matter of one turn."""
        self.constrained = Statistics()

    def adjustments(self, region: str, staying: Collection[int] | None = None) -> Adjustments:
        """What is done to the logits at a place in that region; entries that do nothing are left out.

        `staying`: the tokens that stay in the permissive region; None where all do.
        """
        window, ngrams = _summed(self._window()), _summed(self._ngrams(region, staying))
        changes = _summed([(target, *change) for part in (window, ngrams) for target, change in part.items()], math.inf)
        ids = sorted(target for target, change in changes.items() if change != (1.0, 0.0))
        return Adjustments(tuple(ids), tuple(changes[i][0] for i in ids), tuple(changes[i][1] for i in ids))

    def margin(self, region: str) -> float:
        """How near the closest effective count lies to max_count without being it."""
        if self.ngram_rules is None or region == STRUCTURAL:
            return math.inf
        counts = (self.prose if region == PROSE else self.constrained).effective(self.ngram_rules["decay"]).values()
        gaps = [abs(count - self.ngram_rules["max_count"]) for count in counts]
        return min((gap for gap in gaps if gap > 0), default=math.inf)

    def _window(self) -> list[tuple[int, float, float]]:
        """(token, scale, offset) for the tokens in the window."""
        rules = self.window_rules
        if rules is None:
            return []
        seen = self.history if rules["window"] is None else self.history[-rules["window"] :]
        result = []
        for target in sorted({token for token, _ in seen}):
            repeated = any(
                token == target and (rules["repetition_counts_prompt"] or not is_prompt) for token, is_prompt in seen
            )
            count = sum(
                token == target and (rules["frequency_counts_prompt"] or not is_prompt) for token, is_prompt in seen
            )
            offset = -(count * rules["frequency"] + rules["presence"]) if count else 0.0
            result.append((target, rules["repetition"] if repeated else 1.0, offset))
        return result

    def _ngrams(self, region: str, staying: Collection[int] | None) -> list[tuple[int, float, float]]:
        """(target, scale, offset), one for each n-gram that punishes somebody."""
        rules = self.ngram_rules
        if rules is None or region == STRUCTURAL:
            return []
        statistics = self.prose if region == PROSE else self.constrained
        result = []
        for ngram, effective in statistics.effective(rules["decay"]).items():
            repeated = effective > rules["max_count"]
            if rules["mode"] == "PENALTY_MODE_BROAD":
                target = self._last_not_ignored(ngram)
            elif repeated:
                target = self._continuation(ngram, statistics.history)
            else:
                continue
            if target is None or (region == PERMISSIVE and staying is not None and target not in staying):
                continue
            scale = rules["repeat"] ** len(ngram) if repeated else 1.0
            result.append((target, scale, -(effective * rules["frequency"] + rules["presence"])))
        return result

    def _last_not_ignored(self, ngram: Sequence[int]) -> int | None:
        return next((token for token in reversed(ngram) if (token,) not in self.ignored), None)

    def _continuation(self, ngram: tuple[int, ...], history: Sequence[int]) -> int | None:
        """The token with which the n-gram would go on from the history's end; None if that one is ignored."""
        matched = max(
            k for k in range(len(ngram)) if k <= len(history) and tuple(history[len(history) - k :]) == ngram[:k]
        )
        return None if (ngram[matched],) in self.ignored else ngram[matched]


def _summed(changes: Iterable[tuple[int, float, float]], bound: float = BOUND) -> dict[int, tuple[float, float]]:
    """(scale, offset) of each token: its scales multiplied, its offsets added, both held within the bound."""
    sums: dict[int, tuple[float, float]] = {}
    for target, scale, offset in changes:
        scale_before, offset_before = sums.get(target, (1.0, 0.0))
        sums[target] = (scale_before * scale, offset_before + offset)
    return {
        target: (min(max(scale, 1 / bound), bound), min(max(offset, -bound), bound))
        for target, (scale, offset) in sums.items()
    }
