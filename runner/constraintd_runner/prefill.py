"""What a generation begins from goes into the model: at once, or in the very passes that made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.errors import Abandoned, Stopping
from constraintd_runner.generation import Generation
from constraintd_runner.line import Line


class PrefillDecoder(Protocol):
    """What a prefill needs of `constraintd_runner.model.Decoder`; see there."""

    def prefill(self, slot: int, tokens: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]: ...


def prefill(
    decoder: PrefillDecoder, slot: int, generation: Generation, line: Line
) -> tuple[NDArray[np.float32], list[int]]:
    """The logits [width] behind the generation's prompt, and the lengths of the passes that it took.

    A pass of one token behind others runs as it did when it was made, as a decoding step: that is another path through
    the model than a prefill of one token, and may differ from it in the last bits. Raises what the decoder raises, and
    between two passes Abandoned or Stopping.
    """
    prompt = generation.prompt
    passes = generation.passes or (len(prompt),)
    row = decoder.prefill(slot, prompt[: passes[0]])
    fed = passes[0]
    for length in passes[1:]:
        if generation.cancelled:
            raise Abandoned("the caller cancelled")
        if line.stopping:
            raise Stopping("the runner is stopping; try again elsewhere")
        if length == 1:
            row = decoder.decode([slot], [int(prompt[fed])])[0]
        else:
            row = decoder.prefill(slot, prompt[fed : fed + length])
        fed += length
    return row, list(passes)
