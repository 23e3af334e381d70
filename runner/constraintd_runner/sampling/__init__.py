"""The sampler chain: pure functions over NumPy arrays, with no gRPC and no protobuf in sight.

The order is fixed: the mask first (`candidates`), then the stages in the order in which the caller gave them
(`stages`, `chain`), then the pick by draw (`pick`).
"""

from constraintd_runner.sampling.candidates import Candidates, masked_candidates, unmasked_candidates
from constraintd_runner.sampling.chain import Chain
from constraintd_runner.sampling.errors import BrokenLogits, NothingLeft, SamplingError
from constraintd_runner.sampling.pick import Picked
from constraintd_runner.sampling.stages import Greedy, MinP, Stage, Temperature, TopK, TopP

__all__ = [
    "BrokenLogits",
    "Candidates",
    "Chain",
    "Greedy",
    "MinP",
    "NothingLeft",
    "Picked",
    "SamplingError",
    "Stage",
    "Temperature",
    "TopK",
    "TopP",
    "masked_candidates",
    "unmasked_candidates",
]
