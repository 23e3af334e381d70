"""Hugging Face `tokenizer.json`: BPE or Unigram, byte-level or SentencePiece-style, with byte fallback or without.

The two styles spell bytes differently:

- *byte-level* (GPT-2, Llama 3, Qwen, DeepSeek, SmolLM2): every byte is one character of the GPT-2 byte
  alphabet, a space is U+0120. A token with any character outside of the alphabet is its own UTF-8, as
  the `tokenizers` package decodes it.
- *SentencePiece-style* (Llama 2, Mistral, Gemma; T5 and other Unigram models): tokens are text, U+2581 stands for a
  space by a Replace or Metaspace step, and with byte fallback `<0xHH>` is the byte HH.

Both put further text before what they encode, if the file says so (Prepend, `add_prefix_space`), and may
normalise it. A token's bytes keep the leading space: stripping it from the whole text is a matter of the
text, not of the token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from constraintd.errors import UnsupportedTokenizer, VocabularyError
from constraintd.vocabulary.byte_alphabet import bytes_of_byte_level
from constraintd.vocabulary.huggingface_encoder import HuggingFaceEncoder
from constraintd.vocabulary.json_source import (
    array_at,
    object_at,
    parse_json_object,
    pointer,
    string_at,
)
from constraintd.vocabulary.text_pieces import SPACE_MARK, bytes_of_piece
from constraintd.vocabulary.tokenizer_contents import TokenizerContents
from constraintd.vocabulary.tokenizer_json_vocab import (
    read_bpe_vocab,
    read_unigram_vocab,
    token_id_at,
    unknown_token,
)
from constraintd.vocabulary.tokenizer_pipeline import steps_of, template_bos

FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class _AddedToken:
    token_id: int
    content: str
    special: bool


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How tokens of one file spell their bytes."""

    byte_level: bool
    replacements: tuple[tuple[str, str], ...]
    byte_fallback: bool

    def bytes_of(self, token: str, where: str) -> bytes:
        try:
            if self.byte_level:
                return bytes_of_byte_level(token)
            return bytes_of_piece(token, self.replacements, byte_fallback=self.byte_fallback)
        except UnicodeEncodeError:
            raise _lone_surrogate(where) from None

    def bytes_of_added(self, content: str, where: str) -> bytes:
        # An added token is cut out of the raw text, so it is no byte-level spelling but the text itself.
        # SentencePiece-style files also list runs of U+2581 as added tokens (Gemma's 30 of them): the
        # decoder makes spaces of them, and spaces are what the model was trained on.
        try:
            if self.byte_level:
                return content.encode("utf-8")
            return bytes_of_piece(content, self.replacements, byte_fallback=False)
        except UnicodeEncodeError:
            raise _lone_surrogate(where) from None


def read_tokenizer_json(data: bytes) -> TokenizerContents:
    """Read a `tokenizer.json`.

    Added tokens marked special, and the model's unknown token, become special ids without bytes, also
    where the base vocabulary lists them; other added tokens are their content.

    Raises UnsupportedTokenizer, by name, for models other than BPE and Unigram and for spellings that are neither
    of the two above; VocabularyError with a JSON pointer for everything else that is wrong.
    """
    root = parse_json_object(data, FILE)
    model = object_at(root.get("model"), f"{FILE}#/model")
    _refuse_other_models(model)
    read_vocab = read_unigram_vocab if model.get("type") == "Unigram" else read_bpe_vocab
    vocab = read_vocab(model, f"{FILE}#/model/vocab")
    added = _read_added_tokens(root, vocab)
    spelling = _find_spelling(root, model)

    highest = max(max(vocab.values(), default=-1), max((token.token_id for token in added), default=-1))
    token_bytes = [b""] * (highest + 1)
    for token, token_id in vocab.items():
        token_bytes[token_id] = spelling.bytes_of(token, f"{FILE}#/model/vocab{pointer(token)}")
    special: dict[int, str] = {}
    unknown = unknown_token(model, vocab, [entry.content for entry in added], f"{FILE}#/model")
    if unknown is not None:
        special[unknown[0]] = unknown[1]
    for index, entry in enumerate(added):
        if entry.special:
            special[entry.token_id] = entry.content
        else:
            where = f"{FILE}#/added_tokens/{index}/content"
            token_bytes[entry.token_id] = spelling.bytes_of_added(entry.content, where)
    for token_id in special:
        token_bytes[token_id] = b""

    id_of_spelling = {**vocab, **{entry.content: entry.token_id for entry in added}}
    bos = template_bos(root, FILE)
    return TokenizerContents(
        token_bytes=tuple(token_bytes),
        special=special,
        id_of_spelling=id_of_spelling,
        bos_id=id_of_spelling.get(bos) if bos is not None else None,
        eos_id=None,
        encoder=HuggingFaceEncoder.from_json(
            data,
            root,
            vocab,
            {entry.content: entry.token_id for entry in added if not entry.special},
            location=FILE,
        ),
    )


def _refuse_other_models(model: Mapping[str, object]) -> None:
    kind = model.get("type")
    if kind is None and "merges" in model:
        kind = "BPE"  # files from before 2020 leave the type out
    if kind not in ("BPE", "Unigram"):
        named = string_at(kind, f"{FILE}#/model/type")[:80]
        raise UnsupportedTokenizer(
            f"tokenizer model {named} is not supported, only BPE and Unigram are",
            location=f"{FILE}#/model/type",
            remedy="register a SentencePiece model if there is one, else a table of token bytes",
        )
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            raise UnsupportedTokenizer(
                f"BPE with {key} {str(model[key])[:80]!r} is not supported",
                location=f"{FILE}#/model/{key}",
                remedy="register a table of token bytes",
            )


def _read_added_tokens(root: Mapping[str, object], vocab: Mapping[str, int]) -> list[_AddedToken]:
    listed = root.get("added_tokens")
    where = f"{FILE}#/added_tokens"
    token_of = {token_id: token for token, token_id in vocab.items()}
    added: list[_AddedToken] = []
    for index, value in enumerate(array_at([] if listed is None else listed, where)):
        here = f"{where}/{index}"
        entry = object_at(value, here)
        content = string_at(entry.get("content"), f"{here}/content")
        token_id = token_id_at(entry.get("id"), here, "id")
        other = token_of.setdefault(token_id, content)
        if other != content:
            raise VocabularyError(
                f"id {token_id} belongs to {other[:80]!r} and to {content[:80]!r}",
                location=f"{here}/id",
                remedy="give each token an id of its own",
            )
        if vocab.get(content, token_id) != token_id and entry.get("special") is not True:
            # Nobody could tell which of the two ids its text becomes.
            raise VocabularyError(
                f"{content[:80]!r} is id {token_id} here and id {vocab[content]} in the base vocabulary",
                location=f"{here}/id",
                remedy="give the token one id",
            )
        added.append(_AddedToken(token_id, content, special=entry.get("special") is True))
    return added


def _find_spelling(root: Mapping[str, object], model: Mapping[str, object]) -> _Spelling:
    normalizers = steps_of(root, "normalizer", FILE)
    pre_tokenizers = steps_of(root, "pre_tokenizer", FILE)
    decoders = steps_of(root, "decoder", FILE)
    kinds = {step.kind for step in (*normalizers, *pre_tokenizers, *decoders)}
    if "ByteLevel" in kinds:
        return _Spelling(byte_level=True, replacements=(), byte_fallback=False)
    for step in decoders:
        if step.kind in {"BPEDecoder", "WordPiece", "CTC"}:
            raise UnsupportedTokenizer(
                f"a {step.kind} decoder is not supported",
                location=step.where,
                remedy="register a table of token bytes",
            )
    byte_fallback = model.get("byte_fallback") is True or "ByteFallback" in kinds
    replacements = tuple(step.replacement() for step in decoders if step.kind in {"Replace", "Metaspace"}) or tuple(
        # Without a decoder, what turns spaces into something says what turns that back into spaces.
        step.inverse_replacement()
        for step in (*normalizers, *pre_tokenizers)
        if step.kind == "Metaspace" or step.replaces_spaces()
    )
    if not byte_fallback and not replacements:
        raise UnsupportedTokenizer(
            f"neither ByteLevel nor a step that spells spaces (such as {SPACE_MARK!r}) nor byte fallback",
            location=f"{FILE}#/decoder",
            remedy="register a table of token bytes",
        )
    return _Spelling(byte_level=False, replacements=replacements, byte_fallback=byte_fallback)


def _lone_surrogate(where: str) -> VocabularyError:
    return VocabularyError(
        "a token has a lone surrogate, which no text has",
        location=where,
        remedy="check that the file is unchanged",
    )
