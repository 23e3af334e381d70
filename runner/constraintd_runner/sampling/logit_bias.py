"""A caller's own changes to single logits, at their place in the order of stages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from constraintd_runner.sampling.adjustments import Adjustments
from constraintd_runner.sampling.candidates import Candidates


@dataclass(frozen=True, slots=True)
class LogitBias:
    """Adds `biases[i]`, finite, to the logit of `ids[i]`; at least one id, none twice."""

    ids: tuple[int, ...]
    biases: tuple[float, ...]
    _changes: Adjustments = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.ids or len(self.ids) != len(self.biases):
            raise ValueError(
                f"{len(self.ids)} ids and {len(self.biases)} biases; expected one bias an id, at least one"
            )
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("an id stands twice in the logit bias; expected each once")
        wrong = next((bias for bias in self.biases if not math.isfinite(bias)), None)
        if wrong is not None:
            raise ValueError(f"a logit bias is {wrong}; expected finite numbers")
        changes = Adjustments(
            np.array(self.ids, dtype=np.int64), np.ones(len(self.ids)), np.array(self.biases, dtype=np.float64)
        )
        object.__setattr__(self, "_changes", changes)

    def apply(self, candidates: Candidates) -> Candidates:
        """The candidates with changed logits; ids that are none of them are left out.

        Raises NothingLeft if every one falls to -inf, which takes biases near the limit of float64.
        """
        return self._changes.apply(candidates)
