"""The daemon's vocabularies, and the uploads that they were made of: a session's store keeps those for its revival."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

from constraintd.errors import InvalidEnvelope, UnknownVocabulary
from constraintd.upload import Upload, upload_bytes, upload_of, vocabulary_of
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.vocabulary import Vocabulary

T = TypeVar("T")
_MAX_UPLOAD_BYTES = 1 << 30


class Vocabularies:
    """Owns the registry and the uploads. Used from one event loop; reading runs in `threads`."""

    def __init__(
        self,
        registry: VocabularyRegistry,
        prepare: Callable[[Vocabulary], Awaitable[None]],
        blob: Callable[[bytes], bytes | None],
        threads: Executor,
    ) -> None:
        """`prepare` makes a new vocabulary known to whoever compiles; `blob` reads one of the store's, and blocks."""
        self.registry = registry
        self._prepare = prepare
        self._blob = blob
        self._threads = threads
        self._uploads: dict[str, tuple[bytes, bytes]] = {}  # fingerprint -> (sha256, upload, compressed)

    async def register(self, upload: Upload) -> tuple[Vocabulary, bool]:
        """The vocabulary of an upload, and whether this call made it known. Raises VocabularyError."""

        def read() -> tuple[Vocabulary, bytes]:
            return vocabulary_of(upload), zlib.compress(upload_bytes(upload), 1)

        read_vocabulary, blob = await self._in_thread(read)
        return await self._add(read_vocabulary, hashlib.sha256(blob).digest(), blob)

    async def find(self, fingerprint: str) -> Vocabulary:
        """A vocabulary that is registered here, or that a daemon on the same store has kept there.

        Raises UnknownVocabulary, InvalidEnvelope, StoreUnavailable.
        """
        try:
            return self.registry.get(fingerprint)
        except UnknownVocabulary:
            digest = await self._in_thread(lambda: self._blob(_note_of(fingerprint)))
            if digest is None:
                raise
        return await self.revive(fingerprint, digest)

    async def revive(self, fingerprint: str, digest: bytes) -> Vocabulary:
        """A vocabulary by its fingerprint, from the blob with its upload if it is not known here.

        Raises UnknownVocabulary, InvalidEnvelope, StoreUnavailable.
        """
        try:
            return self.registry.get(fingerprint)
        except UnknownVocabulary:
            kept = await self._in_thread(lambda: self._blob(digest))
            if kept is None:
                raise
            data = kept

        def read() -> Vocabulary:
            inflate = zlib.decompressobj()
            return vocabulary_of(upload_of(inflate.decompress(data, _MAX_UPLOAD_BYTES)))

        found = await self._in_thread(read)
        if found.fingerprint != fingerprint:
            raise InvalidEnvelope(f"the kept upload of vocabulary {fingerprint} reads as {found.fingerprint}")
        return (await self._add(found, digest, data))[0]

    def upload(self, fingerprint: str) -> tuple[bytes, dict[bytes, bytes]]:
        """The name of the blob with a registered vocabulary's upload, and all blobs by which `revive` and `find` know
        it again; empty for one that came without an upload.
        """
        if fingerprint not in self._uploads:
            return b"", {}
        digest, blob = self._uploads[fingerprint]
        return digest, {digest: blob, _note_of(fingerprint): digest}

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _add(self, vocabulary: Vocabulary, digest: bytes, blob: bytes) -> tuple[Vocabulary, bool]:
        held, created = self.registry.add(vocabulary)
        if created:
            self._uploads[held.fingerprint] = (digest, blob)
            await self._prepare(held)
        return held, created


def _note_of(fingerprint: str) -> bytes:
    """The name of the blob that tells under which name the upload is kept."""
    return hashlib.sha256(b"upload of vocabulary " + fingerprint.encode()).digest()
