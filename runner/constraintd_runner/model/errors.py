"""Every error of the model house, in the order in which a reader meets them."""

from __future__ import annotations


class ModelError(Exception):
    """Root of all errors about models, their folders and the sessions that run them."""


class GgufError(ModelError):
    """A GGUF file cannot be used; names the tensor, key or architecture that is in the way."""


class ConversionError(ModelError):
    """A model cannot be written in the form asked for, or the target folder is in the way."""


class FetchError(ModelError):
    """The package that carries the demo model could not be had, or does not hold what it should."""


class FolderError(ModelError):
    """A model folder lacks a file or a value, or holds one that is not understood; names the file."""


class ProviderError(ModelError):
    """The execution provider asked for is not in the installed onnxruntime; says what to install."""


class SlotError(ModelError):
    """No slot is free, or the slot named is not in use."""


class SlotLengthError(ModelError):
    """The tokens given would not fit into the slot; raised before anything has run."""


class TokenError(ModelError):
    """A token id that the model's embedding does not have; no slot has changed."""
