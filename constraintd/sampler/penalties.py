"""All penalty statistics of one session: a fold over its prompts and tokens, and what they come to at its position."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from constraintd.encoding import Reader, Writer
from constraintd.engine.region import Region
from constraintd.sampler.adjustments import Adjustments, joined
from constraintd.sampler.config import SamplerConfig
from constraintd.sampler.ngram_rule import NGramRule
from constraintd.sampler.ngram_statistics import NGramStatistics
from constraintd.sampler.ngrams import NGramStats
from constraintd.sampler.window_counts import WindowCounts
from constraintd.vocabulary.vocabulary import Vocabulary

Stays = Callable[[Sequence[int]], Sequence[bool]]
"""For each token whether the place stays in the permissive region behind it."""


class Penalties:
    """A session's penalty statistics. Mutated only by its methods; `fork` gives an independent copy.

    An absent penalty holds nothing. The n-gram penalty has statistics of prose, whose history is all that the session
    accepted (prompts by option), and of constrained regions, whose history is what the turn accepted.
    """

    __slots__ = ("_constrained", "_prose", "_rule", "_window")

    def __init__(self, rule: NGramRule | None, window: WindowCounts | None) -> None:
        """Empty n-gram statistics. Sessions use `start`."""
        self._rule = rule
        self._window = window
        self._prose = None if rule is None else NGramStatistics(rule)
        self._constrained = None if rule is None else NGramStatistics(rule)

    @classmethod
    def start(cls, config: SamplerConfig, vocabulary: Vocabulary) -> Penalties:
        """Empty statistics of a checked config. Raises InvalidField for texts to ignore that can't be tokenised."""
        window = None if config.window_penalty is None else WindowCounts(config.window_penalty, vocabulary)
        return cls(_rule(config, vocabulary), window)

    def prompt(self, tokens: Sequence[int]) -> None:
        """A prompt's tokens, the session's or a new turn's; which statistics count them is an option."""
        if self._window is not None:
            self._window.prompt(tokens)
        if self._prose is not None and self._rule is not None and self._rule.penalty.counts_prompt:
            self._prose.prompt(tokens)

    def advance(self, token: int, region: Region) -> None:
        """An accepted, non-terminal token. `region` is that of the place behind it, where the next one is picked."""
        if self._window is not None:
            self._window.append(token)
        if self._prose is None or self._constrained is None:
            return
        self._prose.append(token)
        self._constrained.append(token)
        if region is Region.PROSE:
            self._prose.record()
        elif region is Region.PERMISSIVE:
            self._constrained.record()

    def adjustments(self, region: Region, stays: Stays) -> Adjustments | None:
        """What the penalties come to at a place in `region`. `stays` is called at most once, with all targets there."""
        window = None if self._window is None else self._window.adjustments()
        return joined(window, self._ngram_adjustments(region, stays))

    def new_turn(self) -> None:
        """Drops the statistics of constrained regions."""
        self._constrained = None if self._rule is None else NGramStatistics(self._rule)

    def reconfigured(self, config: SamplerConfig, vocabulary: Vocabulary) -> Penalties:
        """The same statistics under other options; what was absent begins empty. Raises InvalidField as `start`."""
        twin = Penalties.start(config, vocabulary)
        if self._window is not None and config.window_penalty is not None:
            twin._window = self._window.reconfigured(config.window_penalty)
        if twin._rule is not None and self._prose is not None and self._constrained is not None:
            twin._prose = self._prose.reconfigured(twin._rule)
            twin._constrained = self._constrained.reconfigured(twin._rule)
        return twin

    def fork(self) -> Penalties:
        """The same statistics, to go on from independently."""
        twin = object.__new__(Penalties)
        twin._rule = self._rule
        twin._window = None if self._window is None else self._window.fork()
        twin._prose = None if self._prose is None else self._prose.fork()
        twin._constrained = None if self._constrained is None else self._constrained.fork()
        return twin

    @property
    def needs_region(self) -> bool:
        """Whether regions make a difference; if not, any will do."""
        return self._rule is not None

    @property
    def ngram_stats(self) -> NGramStats:
        """The statistics of prose."""
        return NGramStats() if self._prose is None else self._prose.stats()

    @property
    def constrained_ngram_stats(self) -> NGramStats:
        """The statistics of constrained regions."""
        return NGramStats() if self._constrained is None else self._constrained.stats()

    @property
    def step(self) -> int:
        """Passes over prose."""
        return 0 if self._prose is None else self._prose.step

    @property
    def constrained_step(self) -> int:
        """Passes over constrained regions in this turn."""
        return 0 if self._constrained is None else self._constrained.step

    def write(self, writer: Writer) -> None:
        """All statistics, the config apart: the same history gives the same bytes."""
        writer.flag(self._window is not None)
        writer.flag(self._rule is not None)
        for part in (self._window, self._prose, self._constrained):
            if part is not None:
                part.write(writer)

    @classmethod
    def read(cls, reader: Reader, config: SamplerConfig, vocabulary: Vocabulary) -> Penalties:
        """What `write` wrote under the same config and vocabulary; goes on bit for bit as the original.

        Raises InvalidEnvelope for anything else, InvalidField as `start`.
        """
        self = cls(_rule(config, vocabulary), None)
        if reader.flag() != (config.window_penalty is not None) or reader.flag() != (self._rule is not None):
            raise reader.error("the penalties are not those of the config")
        if config.window_penalty is not None:
            self._window = WindowCounts.read(reader, config.window_penalty, vocabulary)
        if self._rule is not None:
            self._prose = NGramStatistics.read(reader, self._rule)
            self._constrained = NGramStatistics.read(reader, self._rule)
        return self

    def _ngram_adjustments(self, region: Region, stays: Stays) -> Adjustments | None:
        if region is Region.PROSE:
            return None if self._prose is None else self._prose.adjustments()
        if region is Region.STRUCTURAL or self._constrained is None:
            return None
        found = self._constrained.adjustments()
        if found is None:
            return None
        kept = np.array(stays(found.ids.tolist()), dtype=np.bool_)  # [n]
        if not kept.any():
            return None
        return Adjustments(found.ids[kept], found.scales[kept], found.offsets[kept])


def _rule(config: SamplerConfig, vocabulary: Vocabulary) -> NGramRule | None:
    return None if config.ngram_penalty is None else NGramRule.of(config.ngram_penalty, config, vocabulary)
