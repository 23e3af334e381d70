"""Walks the instances of a file of JSON Schemas token by token through a real daemon's masks.

The file has one JSON object a line: `schema`, and `tests` of `data` and `valid`. Each instance is written with
`json.dumps` and encoded by SmolLM2's tokenizer; a valid one must be legal to its end and complete there, an invalid
one must not.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from constraintd_client import ConstraintClient, InvalidGrammar, LimitExceeded, json_schema
from constraintd_client.mask import allowed_ids
from constraintd_runner.model.fetch import fetch_smollm2
from tokenizers import Tokenizer

from benchmarks.form import Progress, Result
from benchmarks.processes import daemon_process

NAME = "schema-walk"
SUMMARY = "valid and invalid instances of real JSON Schemas, walked through gRPC masks"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The file to walk."""
    parser.add_argument("--cases", type=Path, required=True, metavar="FILE", help="schemas with tests, a line each")
    parser.add_argument("--wrong", action="store_true", help="also name what came out wrong")


def run(progress: Progress, *, cases: Path, wrong: bool = False) -> Result:
    """Counts of schemas and instances, and how long compiling and a step take."""
    schemas = [json.loads(line) for line in cases.read_text(encoding="utf-8").splitlines() if line.strip()]
    folder = fetch_smollm2()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    figures = dict.fromkeys(
        ("schemas", "compiled", "valid", "valid_accepted", "invalid", "invalid_accepted", "unspelt"), 0
    )
    compile_us: list[float] = []
    step_us: list[float] = []
    with daemon_process() as address, ConstraintClient(address) as client:
        walker = _Walker(client, folder, step_us)
        for done, case in enumerate(schemas):
            progress(str(case.get("id", "")), done, len(schemas))
            figures["schemas"] += 1
            began = time.perf_counter()
            try:
                grammar_id = client.compile_grammar(walker.vocabulary_id, json_schema(json.dumps(case["schema"])))
            except (InvalidGrammar, LimitExceeded) as error:
                if wrong:
                    print("refused", case.get("id"), error.message[:160])
                continue
            compile_us.append((time.perf_counter() - began) * 1e6)
            figures["compiled"] += 1
            for test in case["tests"]:
                text = json.dumps(test["data"], ensure_ascii=False)
                tokens = tokenizer.encode(text, add_special_tokens=False).ids
                if walker.table.text(tokens) != text.encode():
                    figures["unspelt"] += 1
                    continue
                accepted = walker.accepts(grammar_id, tokens)
                kind = "valid" if test["valid"] else "invalid"
                figures[kind] += 1
                figures[f"{kind}_accepted"] += accepted
                if wrong and accepted != test["valid"]:
                    print("refuses" if test["valid"] else "ACCEPTS", case.get("id"), text[:120])
        progress("done", len(schemas), len(schemas))
    return Result({key: float(value) for key, value in figures.items()}, {"compile_us": compile_us, "step_us": step_us})


class _Walker:
    """Sessions on one Decode stream, one after another."""

    def __init__(self, client: ConstraintClient, folder: Path, step_us: list[float]) -> None:
        vocabulary = client.register_vocabulary(
            "tokenizer_json", folder / "tokenizer.json", generation_config=folder / "generation_config.json"
        )
        self._client = client
        self._step_us = step_us
        self.vocabulary_id = vocabulary.vocabulary_id
        self.table = client.token_table(vocabulary.vocabulary_id)
        self._eog = vocabulary.eog_ids[0]
        self._stream = client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width)

    def accepts(self, grammar_id: str, tokens: list[int]) -> bool:
        """Whether every token is legal, and the end after them."""
        session: Any = self._client.open_session(self.vocabulary_id, grammar_id)
        try:
            for token in [*tokens, self._eog]:
                directive = session.directive
                if directive.finish is not None:
                    return token == self._eog and not directive.finish.constraint_incomplete
                if directive.mask is None or token not in allowed_ids(directive.mask):
                    return False
                began = time.perf_counter()
                self._stream.send([(session, [token], [0.0])])
                self._stream.take(session, 30.0)
                self._step_us.append((time.perf_counter() - began) * 1e6)
            finish = session.directive.finish
            return finish is not None and finish.reason == "EOG"
        finally:
            self._client.close_session(session.session_id)
