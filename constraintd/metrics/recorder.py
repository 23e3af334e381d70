"""All that the daemon records as it happens. What can be read off when a scrape comes is in `sources`."""

from __future__ import annotations

from typing import Final

from constraintd.errors import ConstraintdError
from constraintd.metrics.histogram import Count, Histogram, LabelledCount
from constraintd.v1 import constraint_service_pb2, error_pb2

METHODS: Final = tuple(
    method.name for method in constraint_service_pb2.DESCRIPTOR.services_by_name["ConstraintService"].methods
)
REASONS: Final = tuple(name.removeprefix("ERROR_REASON_") for name, number in error_pb2.ErrorReason.items() if number)
LANES: Final = ("quick", "slow")
BACKENDS: Final = ("memory", "sqlite", "redis")
OPERATIONS: Final = (
    "append", "blob", "create", "delete", "expire", "head", "load", "load_short", "page", "put_blobs", "statistics",
)  # fmt: skip
COMPILE_LIMITS: Final = ("seconds", "memory_bytes", "stack_bytes", "step_seconds", "engine", "deadline", "none")
"""What a refused grammar ran into: a child that took too long or too much of something was ended, `engine` says that
the engine died of it there, `none` that the grammar itself is at fault.
"""

# Seconds. A warm mask takes 1 us, a usual one 60 us, a cold one of a large vocabulary 45 ms.
_COMPUTING: Final = (
    2e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5,
)  # fmt: skip
# From a batch of one on the memory store to a store that hangs.
_STEPPING: Final = (
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
)  # fmt: skip
_STORING: Final = (1e-5, 2.5e-5, *_STEPPING[:-1])
# Compiling takes a millisecond to a minute.
_CALLING: Final = (5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_STEPS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Recorder:
    """Measurements of one process, from its first listener to its last. Any thread may record."""

    def __init__(self) -> None:
        self.step_seconds = {lane: Histogram(_STEPPING) for lane in LANES}
        self.mask_seconds = Histogram(_COMPUTING)
        self.advance_seconds = Histogram(_COMPUTING)
        self.batch_steps = Histogram(_STEPS)
        self.wire_bytes_in = Count()
        self.wire_bytes_out = Count()
        self.store_append_seconds = {backend: Histogram(_STORING) for backend in BACKENDS}
        self.store_errors = LabelledCount(BACKENDS, OPERATIONS)
        self.compile_seconds = Histogram(_CALLING)
        self.compile_refusals = LabelledCount(REASONS, COMPILE_LIMITS)
        # A Decode stream lasts as long as its client likes, which says nothing.
        self.call_seconds = {method: Histogram(_CALLING) for method in METHODS if method != "Decode"}
        self.errors = LabelledCount(METHODS, REASONS)

    def error(self, method: str, error: Exception) -> None:
        """A call, or a Step of a stream, was refused or failed."""
        self.errors.add(method, error.reason if isinstance(error, ConstraintdError) else ConstraintdError.reason)

    def compile_refused(self, error: ConstraintdError) -> None:
        """A grammar was refused."""
        self.compile_refusals.add(error.reason, error.metadata.get("limit", "none"))
