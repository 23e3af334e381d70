"""The daemon's vocabularies, and the uploads that they were made of: a session's store keeps those for its revival."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from constraintd.errors import InvalidEnvelope, UnknownVocabulary
from constraintd.upload import Upload, upload_bytes, upload_of, vocabulary_of
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.vocabulary import Vocabulary

_MAX_UPLOAD_BYTES = 1 << 30


class Vocabularies:
    """Owns the registry and the uploads. Used from one event loop; reading runs in `threads`."""

    def __init__(
        self, registry: VocabularyRegistry, prepare: Callable[[Vocabulary], Awaitable[None]], threads: Executor
    ) -> None:
        """`prepare` makes a new vocabulary known to whoever compiles."""
        self.registry = registry
        self._prepare = prepare
        self._threads = threads
        self._uploads: dict[str, tuple[bytes, bytes]] = {}  # fingerprint -> (sha256, upload, compressed)

    async def register(self, upload: Upload) -> tuple[Vocabulary, bool]:
        """The vocabulary of an upload, and whether this call made it known. Raises VocabularyError."""

        def read() -> tuple[Vocabulary, bytes]:
            return vocabulary_of(upload), zlib.compress(upload_bytes(upload), 1)

        read_vocabulary, blob = await asyncio.get_running_loop().run_in_executor(self._threads, read)
        return await self._add(read_vocabulary, hashlib.sha256(blob).digest(), blob)

    async def revive(self, fingerprint: str, digest: bytes, blob: Callable[[bytes], bytes | None]) -> Vocabulary:
        """A vocabulary by its fingerprint, from the blob with its upload if it is not known here.

        Raises UnknownVocabulary, InvalidEnvelope.
        """
        try:
            return self.registry.get(fingerprint)
        except UnknownVocabulary:
            data = blob(digest)
            if data is None:
                raise

        def read() -> Vocabulary:
            inflate = zlib.decompressobj()
            return vocabulary_of(upload_of(inflate.decompress(data, _MAX_UPLOAD_BYTES)))

        found = await asyncio.get_running_loop().run_in_executor(self._threads, read)
        if found.fingerprint != fingerprint:
            raise InvalidEnvelope(f"the kept upload of vocabulary {fingerprint} reads as {found.fingerprint}")
        return (await self._add(found, digest, data))[0]

    def upload(self, fingerprint: str) -> tuple[bytes, bytes]:
        """(sha256, compressed upload) of a registered vocabulary; both empty for one that came without."""
        return self._uploads.get(fingerprint, (b"", b""))

    async def _add(self, vocabulary: Vocabulary, digest: bytes, blob: bytes) -> tuple[Vocabulary, bool]:
        held, created = self.registry.add(vocabulary)
        if created:
            self._uploads[held.fingerprint] = (digest, blob)
            await self._prepare(held)
        return held, created
