"""Kills the real runner, and the daemon behind it, under callers whose generations outlive them.

    python -m tests.fault.real_runner --kills 20 --store sqlite --seed 1

A tiny random decoder, three kinds of process: whoever dies, each caller must get, in the end and in one piece, the text
of an undisturbed run. Exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from constraintd_client import (
    ConstraintdError,
    GenerationClient,
    SamplerConfig,
    json_schema,
    regex,
    sampler_config,
    temperature,
)
from constraintd_client.grammars import ConstraintLike

from tests.daemon_process import daemon_process
from tests.fault.chaos import DAEMON_FLAGS, show, workplace
from tests.fault.processes import CALLERS_CHANNEL, address_of, daemon, real_runner
from tests.runner_process import runner_process
from tests.tiny_decoder import write_genai_folder

_LIFE_SECONDS = 2.0
_STUCK_SECONDS = 90.0


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """What one kind of caller asks for."""

    prompt: str
    constraint: ConstraintLike
    sampler: SamplerConfig


_PET = json_schema({"type": "object", "properties": {"pet": {"type": "string", "maxLength": 40}}, "required": ["pet"]})
WISHES = (
    Wish("A pet: ", _PET, sampler_config(temperature(1.0), seed=1, max_tokens=90)),
    Wish("Say: ", regex("[a-z ]{60,80}"), sampler_config(seed=2, max_tokens=90)),
    Wish("And: ", regex("([a-f]{3} )+"), sampler_config(temperature(0.8), seed=3, max_tokens=70)),
)


@dataclass(slots=True)
class Outcome:
    """What became of all generations."""

    texts: int = 0
    resumed: int = 0
    """Kills, of a runner or its daemon, while something ran."""
    wrong: list[str] = field(default_factory=list)
    stuck: int = 0

    @property
    def clean(self) -> bool:
        """Whether every caller got its text."""
        return not self.wrong and not self.stuck and self.texts > 0


def undisturbed_texts(model: Path) -> list[str]:
    """The wishes' texts where nothing goes wrong."""
    with daemon_process() as address, runner_process(model, address) as runner, GenerationClient(runner) as client:
        return [_text(client, wish) for wish in WISHES]


def rehearse(
    store: str, kills: int, seed: int, *, callers: int = 3, progress: Callable[[str], None] = lambda _: None
) -> Outcome:
    """One run from start to end."""
    rng = random.Random(seed)
    outcome = Outcome()
    with workplace(store) as (folder, store_name):
        model = write_genai_folder(folder / "model")
        texts = undisturbed_texts(model)
        one_daemon = daemon(folder, store_name, *DAEMON_FLAGS)
        runner = real_runner(folder, model, address_of(folder, one_daemon.name))
        stopping = threading.Event()
        threads = [
            threading.Thread(
                target=_call, args=(address_of(folder, runner.name), n, texts, outcome, stopping), daemon=True
            )
            for n in range(callers)
        ]
        try:
            one_daemon.start()
            runner.start()
            for thread in threads:
                thread.start()
            for number in range(kills):
                time.sleep(rng.uniform(0.1, _LIFE_SECONDS))
                victims = rng.choice([[one_daemon], [runner], [one_daemon, runner]])
                for victim in victims:
                    victim.kill()
                for victim in victims:
                    victim.start()
                outcome.resumed += 1
                progress(f"kill {number + 1}/{kills}, {outcome.texts} texts, {len(outcome.wrong)} wrong")
            stopping.set()
            until = time.monotonic() + _STUCK_SECONDS
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            outcome.stuck = sum(thread.is_alive() for thread in threads)
        finally:
            runner.kill()
            one_daemon.kill()
    return outcome


def _call(address: str, first: int, texts: Sequence[str], outcome: Outcome, stopping: threading.Event) -> None:
    with GenerationClient(address, options=CALLERS_CHANNEL) as client:
        number = first
        while not stopping.is_set():
            wish, expected = WISHES[number % len(WISHES)], texts[number % len(WISHES)]
            number += 1
            try:
                text = _text(client, wish)
            except ConstraintdError as error:
                outcome.wrong.append(f"{wish.prompt!r}: {error!r}, after {error.fragment!r}")
                continue
            if text == expected:
                outcome.texts += 1
            else:
                outcome.wrong.append(f"{wish.prompt!r}: {text!r}, expected {expected!r}")


def _text(client: GenerationClient, wish: Wish) -> str:
    generation = client.generate(
        wish.prompt, constraint=wish.constraint, sampler=wish.sampler, resumable=True, resume_timeout=60.0
    )
    return "".join(generation)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="[%(default)s]")
    parser.add_argument("--store", choices=["sqlite", "redis"], default="sqlite", help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends, too
    outcome = rehearse(options.store, options.kills, options.seed, progress=show)
    print(f"\n{outcome.texts} texts, {outcome.resumed} kills, {len(outcome.wrong)} wrong, {outcome.stuck} stuck")
    for wrong in outcome.wrong[:5]:
        print(wrong)
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
