"""The sampler chain: pure functions over NumPy arrays, with no gRPC and no protobuf in sight.

The order is fixed: the mask first (`candidates`), then the daemon's changes to single logits (`adjustments`), then the
stages in the order in which the caller gave them (`stages`, `chain`), then the pick by draw (`pick`).
"""

from constraintd_runner.sampling.adjustments import Adjustments
from constraintd_runner.sampling.candidates import Candidates, masked_candidates, unmasked_candidates
from constraintd_runner.sampling.chain import Chain
from constraintd_runner.sampling.errors import BrokenLogits, NothingLeft, SamplingError
from constraintd_runner.sampling.logit_bias import LogitBias
from constraintd_runner.sampling.logprobs import PositionLogprobs, TokenLogprob, position_logprobs
from constraintd_runner.sampling.mirostat import MirostatV1, MirostatV2
from constraintd_runner.sampling.pick import Picked
from constraintd_runner.sampling.split import SplitL, SplitP
from constraintd_runner.sampling.stages import Greedy, MinP, Stage, Temperature, TopK, TopP
from constraintd_runner.sampling.tail_free import TailFree
from constraintd_runner.sampling.typical import TypicalP

__all__ = [
    "Adjustments",
    "BrokenLogits",
    "Candidates",
    "Chain",
    "Greedy",
    "LogitBias",
    "MinP",
    "MirostatV1",
    "MirostatV2",
    "NothingLeft",
    "Picked",
    "PositionLogprobs",
    "SamplingError",
    "SplitL",
    "SplitP",
    "Stage",
    "TailFree",
    "Temperature",
    "TokenLogprob",
    "TopK",
    "TopP",
    "TypicalP",
    "masked_candidates",
    "position_logprobs",
    "unmasked_candidates",
]
