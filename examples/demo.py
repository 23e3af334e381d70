"""A real language model writes valid structure, with the masks coming from a separate daemon.

Fetches the model once, starts the daemon and the runner as two processes, streams three constrained generations
through the runner's gRPC API, and checks each result without either of them. Then it generates the first one again,
kills the daemon in the middle of it, then the runner, and sees it go on. `make demo` runs it.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jsonschema
from constraintd_client import (
    ConstraintdError,
    ConstraintLike,
    GenerationClient,
    Usage,
    json_schema,
    lark,
    regex,
    sampler_config,
    temperature,
    top_p,
)
from constraintd_runner.model.fetch import fetch_smollm2

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "occupation": {"type": "string", "minLength": 1, "maxLength": 60},
        "languages": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 1, "maxItems": 3},
        "retired": {"type": "boolean"},
    },
    "required": ["name", "age", "occupation", "languages", "retired"],
    "additionalProperties": False,
}
WEATHER_CALL = {
    "type": "object",
    "properties": {
        "name": {"const": "get_weather"},
        "arguments": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 1, "maxLength": 30},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
TOOL_CALL = f"""start: "<tool_call>\\n" call "\\n</tool_call>"
call: %json {json.dumps(WEATHER_CALL)}
"""
DATE = r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"


def check_person(text: str) -> None:
    """Raises if the text is not a person."""
    jsonschema.validate(json.loads(text), PERSON)


def check_tool_call(text: str) -> None:
    """Raises if the text is not one call of get_weather between its markers."""
    call = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", text, re.DOTALL)
    if call is None:
        raise ValueError("the markers are missing")
    jsonschema.validate(json.loads(call[1]), WEATHER_CALL)


def check_date(text: str) -> None:
    """Raises if the text is not a date."""
    if not re.fullmatch(DATE, text):
        raise ValueError("not YYYY-MM-DD")
    datetime.date.fromisoformat(text)


@dataclass(frozen=True, slots=True)
class Scene:
    """One generation of the demo."""

    title: str
    question: str
    constraint: ConstraintLike
    check: Callable[[str], None]


SCENES = (
    Scene(
        "a person, by JSON Schema",
        "Invent a person who lives in Lisbon. Answer in JSON with name, age, occupation, languages and retired.",
        json_schema(PERSON),
        check_person,
    ),
    Scene(
        "a tool call, by a Lark grammar around a JSON Schema",
        "What is the weather like in Paris today? Call get_weather with the city and the unit.",
        lark(TOOL_CALL),
        check_tool_call,
    ),
    Scene(
        "a date, by regex",
        "On which date did humans first walk on the Moon? Answer with the date only, as YYYY-MM-DD.",
        regex(DATE),
        check_date,
    ),
)


class Program:
    """One of the two programs, in a with statement: running, until it is killed or the block ends."""

    def __init__(self, name: str, module: str, *arguments: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._command = [sys.executable, "-m", module, *arguments]
        self._child: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._child is not None
        return self._child.pid

    def __enter__(self) -> Program:
        self.start()
        return self

    def start(self) -> None:
        """Starts it, and waits until it listens."""
        with self.log.open("a") as stderr:
            self._child = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self._child.stdout is not None
        if not self._child.stdout.readline():
            raise SystemExit(f"the {self.name} did not start:\n{self.log.read_text()}")

    def kill(self) -> None:
        """kill -9."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()

    def __exit__(self, *_: object) -> None:
        assert self._child is not None
        self._child.terminate()
        try:
            self._child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._child.kill()


def play(
    client: GenerationClient, scene: Scene, title: str, at: Mapping[int, Callable[[str], None]] | None = None
) -> tuple[str, Usage]:
    """Streams one generation to the terminal; its text and what it took. Raises ConstraintdError.

    `at` says what is to be done behind how many pieces; it is told the text so far.
    """
    print(f"\n\x1b[1m{title}\x1b[0m\n\x1b[2m{scene.question}\x1b[0m")
    sampler = sampler_config(temperature(0.6), top_p(0.9), seed=7, max_tokens=200)
    generation = client.generate(
        [{"role": "user", "content": scene.question}],
        constraint=scene.constraint,
        sampler=sampler,
        timeout=120,
        resumable=True,
    )
    shown = ""
    for count, piece in enumerate(generation):
        print(piece, end="", flush=True)
        shown += piece
        if at and count in at:
            at[count](shown)
    assert generation.finish is not None
    assert generation.usage is not None
    print(f"\n\x1b[2m[{generation.finish.reason.lower().replace('_', ' ')}]\x1b[0m")
    return generation.text, generation.usage


def survives(client: GenerationClient, daemon: Program, runner: Program, expected: str) -> bool:
    """Plays the first scene once more while both programs are killed; whether nothing shows.

    The daemon's death changes nothing at all. The next runner computes the text so far in one forward pass, where the
    first one took it token by token: what follows is rounded differently, and may differ in words, never in form.
    """
    kept: list[str] = []

    def kill(program: Program) -> Callable[[str], None]:
        def act(shown: str) -> None:
            print(f"\x1b[33m[kill -9 the {program.name}]\x1b[0m", end="", flush=True)
            kept.append(shown)
            program.kill()
            program.start()

        return act

    try:
        text, _ = play(client, SCENES[0], "the same person, through two deaths", {8: kill(daemon), 20: kill(runner)})
        SCENES[0].check(text)
    except (ConstraintdError, ValueError, jsonschema.ValidationError) as error:
        print(f"\n\x1b[31mfailed: {error}\x1b[0m\n{runner.log.read_text()[-2000:]}")
        return False
    if not (expected.startswith(kept[1]) and text.startswith(kept[1])):
        print("\x1b[31mnot the text that it was\x1b[0m")
        return False
    print("\x1b[32mvalid, and nothing of it lost\x1b[0m")
    return True


def main() -> int:
    """Plays all scenes; 0 if every result was valid."""
    folder = fetch_smollm2()
    rows: list[tuple[str, Usage]] = []
    with tempfile.TemporaryDirectory(prefix="constraintd-demo-") as scratch:
        daemon, runner = (f"unix:{scratch}/{name}.sock" for name in ("daemon", "runner"))
        logs = [Path(scratch) / f"{name}.log" for name in ("daemon", "runner")]
        with (
            Program(
                "daemon",
                "constraintd.cli",
                *("serve", "--listen", daemon, "--store", f"sqlite:{scratch}/sessions.sqlite"),
                log=logs[0],
            ) as daemon_program,
            Program(
                "runner",
                "constraintd_runner.cli",
                *("serve", "--model", str(folder), "--daemon", daemon, "--listen", runner),
                log=logs[1],
            ) as runner_program,
            GenerationClient(runner) as client,
        ):
            print(
                f"daemon (process {daemon_program.pid}) holds the grammars; "
                f"runner (process {runner_program.pid}) holds the model"
            )
            texts = []
            for scene in SCENES:
                try:
                    text, usage = play(client, scene, scene.title)
                    scene.check(text)
                except ConstraintdError as error:
                    print(f"\n\x1b[31mfailed: {error}\x1b[0m\n{logs[1].read_text()[-2000:]}")
                except (ValueError, jsonschema.ValidationError) as error:
                    print(f"\x1b[31minvalid: {error}\x1b[0m")
                else:
                    print("\x1b[32mvalid\x1b[0m")
                    rows.append((scene.title.partition(",")[0], usage))
                    texts.append(text)
            survived = bool(texts) and survives(client, daemon_program, runner_program, texts[0])
    print(f"\n{'':14}{'tokens':>8}{'tok/s':>8}{'mask wait p50':>16}{'p99':>11}{'wire bytes a step':>20}")
    for name, usage in rows:
        rate = usage.completion_tokens / (usage.decode_us / 1e6)
        print(
            f"{name:14}{usage.completion_tokens:>8}{rate:>8.1f}{usage.mask_wait_us_p50:>13.0f} us"
            f"{usage.mask_wait_us_p99:>8.0f} us{usage.wire_bytes / usage.completion_tokens:>20,.0f}"
        )
    print(f"\n{len(rows)} of {len(SCENES)} valid, checked independently of daemon and runner")
    return 0 if len(rows) == len(SCENES) and survived else 1


if __name__ == "__main__":
    sys.exit(main())
