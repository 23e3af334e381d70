"""The vocabulary, the grammar and the tokens of the benchmark `sessions`: SmolLM2's, and a long JSON text in it."""

from __future__ import annotations

import json
import random
from pathlib import Path

from constraintd_runner.model.fetch import fetch_smollm2
from tokenizers import Tokenizer

from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.vocabulary import Vocabulary

WIDTH = 49_152
SCHEMA = json.dumps(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "description": {"type": "string"}},
            "required": ["id", "name", "description"],
            "additionalProperties": False,
        },
    }
)
_WORDS = tuple(
    "a river old town bridge small museum of glass with view over the valley and where people meet in summer for "  # noqa: SIM905
    "music food markets walks along its quiet harbour mountain path ruins from an early century that few know".split()
)
_SEED = 20261130


class Walk:
    """A text that SCHEMA takes, as SmolLM2's tokenizer cuts it."""

    def __init__(self, tokens: int, folder: Path | None = None) -> None:
        """`tokens`: how many are needed at least. The text ends within a list, so that nothing ends a session."""
        folder = folder or fetch_smollm2()
        self.folder = folder
        rng = random.Random(_SEED)
        encode = Tokenizer.from_file(str(folder / "tokenizer.json")).encode
        items: list[str] = []
        found: list[int] = []
        while len(found) < tokens:
            items += [_item(rng, len(items) + more) for more in range(1 + tokens // 40)]
            found = encode("[" + ", ".join(items), add_special_tokens=False).ids
        self.tokens = found[:tokens]
        self.prompt = encode("Here is a list of places to visit, each with a few words on what makes it special:").ids

    def vocabulary(self) -> Vocabulary:
        """What the daemon makes of the tokenizer."""
        return load_vocabulary(
            VocabularyFormat.TOKENIZER_JSON,
            (self.folder / "tokenizer.json").read_bytes(),
            logits_width=WIDTH,
            generation_config=(self.folder / "generation_config.json").read_bytes(),
        )


def _item(rng: random.Random, number: int) -> str:
    name = " ".join(rng.choices(_WORDS, k=2)).title()
    text = " ".join(rng.choices(_WORDS, k=rng.randint(8, 30)))
    return json.dumps({"id": number, "name": name, "description": text + "."})
