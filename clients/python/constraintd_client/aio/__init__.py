"""The same client for asyncio: `ConstraintClient` is `AsyncConstraintClient` here, and so on.

Values, errors, grammars, samplers and masks are those of `constraintd_client`.
"""

from .client import AsyncConstraintClient
from .decode_stream import AsyncDecodeStream
from .generation import AsyncGeneration, AsyncGenerationClient

__all__ = ["AsyncConstraintClient", "AsyncDecodeStream", "AsyncGeneration", "AsyncGenerationClient"]
