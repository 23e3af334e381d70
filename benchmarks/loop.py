"""The runner's own decode loop, set up for measuring: with a daemon, or with nothing in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from constraintd_client import ConstraintClient, SessionHandle, constraint, json_schema, sampler_config
from constraintd_client.samplers import greedy
from constraintd_runner.decode import DecodeLoop
from constraintd_runner.directives import DaemonDirectives, DirectiveSource, InProcessDirectives
from constraintd_runner.generation import Accepted, Ended, Generation, GenerationStatistics, Picker
from constraintd_runner.model.decoder import Decoder
from constraintd_runner.model.folder import ModelFolder
from constraintd_runner.pickers import MaskedPicker, ReplayPicker, UnmaskedPicker
from constraintd_runner.sampling import Chain
from constraintd_runner.sampling.stages import Greedy
from tokenizers import Tokenizer

from benchmarks.processes import daemon_process

PROMPT = "Here is a list of places to visit, each with a short description of what makes it special:\n"
# Free text inside structure, and more of it than is generated, so that the grammar never ends a run early.
SCHEMA = json.dumps(
    {
        "type": "array",
        "minItems": 100,
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "description": {"type": "string"}},
            "required": ["name", "description"],
            "additionalProperties": False,
        },
    }
)
_GREEDY = Chain.of([Greedy()])


@contextmanager
def running(decoder: Decoder, source: DirectiveSource) -> Iterator[DecodeLoop]:
    """A started loop, stopped at the end."""
    loop = DecodeLoop(decoder, source)
    loop.start()
    try:
        yield loop
    finally:
        loop.stop()


def generate(
    loop: DecodeLoop, session: SessionHandle, prompt: Sequence[int], picker: Picker, tokens: int
) -> tuple[list[int], GenerationStatistics]:
    """Runs one generation to its end; its tokens and what it took. Raises RuntimeError if it isn't `tokens` long."""
    generation = Generation(session, np.array(prompt, dtype=np.int64), picker, token_limit=tokens)
    loop.submit(generation)
    accepted: list[int] = []
    for event in generation.events():
        if isinstance(event, Accepted):
            accepted.append(event.token)
        elif isinstance(event, Ended):
            if len(accepted) != tokens:
                raise RuntimeError(f"{len(accepted)} tokens came, not {tokens}: {event.finish}")
            return accepted, event.statistics
    raise AssertionError("events end with Ended")


class Unconstrained:
    """The loop without daemon and mask; greedy, or replaying given tokens."""

    def __init__(self, loop: DecodeLoop, source: InProcessDirectives, prompt: Sequence[int]) -> None:
        self._loop = loop
        self._source = source
        self._prompt = prompt

    def run(self, tokens: int, replay: Sequence[int] | None = None) -> GenerationStatistics:
        """One generation of `tokens` tokens."""
        picker = UnmaskedPicker(_GREEDY) if replay is None else ReplayPicker(_GREEDY, replay)
        return generate(self._loop, self._source.open_session(tokens), self._prompt, picker, tokens)[1]


class Constrained:
    """The loop with a daemon in a process of its own; greedy under SCHEMA."""

    def __init__(self, loop: DecodeLoop, source: DaemonDirectives, prompt: Sequence[int]) -> None:
        self._loop = loop
        self._source = source
        self._prompt = prompt

    def run(self, tokens: int) -> tuple[list[int], GenerationStatistics]:
        """One generation of `tokens` tokens."""
        session = self._source.open_session(
            constraint(json_schema(SCHEMA)), sampler_config(greedy(), max_tokens=tokens), self._prompt
        )
        return generate(self._loop, session, self._prompt, MaskedPicker(_GREEDY), tokens)


@contextmanager
def both(folder: Path, *, threads: int, length: int) -> Iterator[tuple[Unconstrained, Constrained]]:
    """Two loops over one model file, each with a decoder of its own, and a daemon for the second."""
    model = ModelFolder.open(folder)
    prompt = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(PROMPT).ids
    first = Decoder.open(model, threads=threads, slots=1, max_length=length)
    second = Decoder.open(model, threads=threads, slots=1, max_length=length)
    free = InProcessDirectives(first.logits_width)
    with daemon_process() as address, ConstraintClient(address) as client:
        bound = DaemonDirectives(
            client,
            lambda: client.register_vocabulary(
                "tokenizer_json",
                folder / "tokenizer.json",
                logits_width=second.logits_width,
                generation_config=folder / "generation_config.json",
            ),
        )
        with running(first, free) as free_loop, running(second, bound) as bound_loop:
            yield Unconstrained(free_loop, free, prompt), Constrained(bound_loop, bound, prompt)
        bound.close()
