"""The model house: folders, conversion of the demo model, and sessions with their KV caches."""

from .decoder import Decoder
from .errors import ModelError
from .folder import ModelFolder

__all__ = ["Decoder", "ModelError", "ModelFolder"]
