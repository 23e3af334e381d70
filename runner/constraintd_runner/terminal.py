"""`constraintd-runner generate`: one generation, streamed to the terminal."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any, TextIO

from constraintd_client import (
    ConstraintLike,
    SamplerConfig,
    SamplerStage,
    Tls,
    ToolAnswer,
    choice,
    gbnf,
    json_object,
    json_schema,
    lark,
    min_p,
    regex,
    sampler_config,
    structural_tag,
    temperature,
    tool_calls,
    top_k,
    top_p,
)
from constraintd_client.errors import Cancelled, ConstraintdError, Unavailable
from constraintd_client.generation import Generation, GenerationClient

FAILED = 1
INCOMPLETE = 3
INTERRUPTED = 130


def generate(options: argparse.Namespace) -> int:
    """Runs the generation that the command line asks for; gives the exit status (see `generate --help`)."""
    try:
        constraint = _constraint(options)
        sampler = _sampler(options)
        client = _client_of(options)
    except (OSError, ValueError) as error:
        return _complain(str(error))
    with client:
        generation = client.generate(_prompt(options), constraint=constraint, sampler=sampler)
        previous = signal.signal(signal.SIGINT, lambda *_: generation.cancel())
        try:
            return _stream(generation, options)
        finally:
            signal.signal(signal.SIGINT, previous)


def _client_of(options: argparse.Namespace) -> GenerationClient:
    """Raises OSError for a file that can't be read, ValueError for a token that would travel in the clear."""
    tls = Tls(ca=options.ca, cert=options.cert, key=options.key) if options.ca or options.cert or options.key else None
    return GenerationClient(options.runner, tls=tls, token=options.token_file)


def _stream(generation: Generation, options: argparse.Namespace) -> int:
    try:
        for piece in generation:
            if not options.calls_only:
                sys.stdout.write(piece)
                sys.stdout.flush()
    except Cancelled:
        _end_line(options)
        return INTERRUPTED
    except Unavailable as error:
        _end_line(options)
        hint = "" if error.reason else f"; start one with `constraintd-runner serve --listen {options.runner} ...`"
        return _complain(f"{error}{hint}")
    except ConstraintdError as error:
        _end_line(options)
        return _complain(str(error))
    _end_line(options)
    if generation.tool_answer is not None:
        _print_calls(generation.tool_answer, sys.stdout if options.calls_only else sys.stderr)
    finish = generation.finish
    if options.verbose:
        print(_summary(generation), file=sys.stderr)
    if generation.tool_answer is not None and generation.tool_answer.malformed:
        _complain(f"a tool call was cut off; raise --max-tokens: {generation.tool_answer.malformed}")
        return INCOMPLETE
    if finish is not None and finish.constraint_incomplete:
        _complain(f"the text ended ({finish.reason}) before the constraint was satisfied; raise --max-tokens")
        return INCOMPLETE
    return 0


def _end_line(options: argparse.Namespace) -> None:
    if not options.calls_only:
        print(file=sys.stdout)


def _print_calls(answer: ToolAnswer, to: TextIO) -> None:
    for call in answer.calls:
        line = {"id": call.id, "name": call.name, "arguments": call.arguments}
        print(json.dumps(line, ensure_ascii=False), file=to)


def _summary(generation: Generation) -> str:
    finish, usage = generation.finish, generation.usage
    if finish is None or usage is None:
        return "no summary"
    rate = usage.completion_tokens / (usage.decode_us / 1e6) if usage.decode_us else 0.0
    return (
        f"{finish.reason}: {usage.prompt_tokens} + {usage.completion_tokens} tokens, "
        f"prompt {usage.prefill_us / 1e3:.0f} ms, {rate:.1f} tokens/s, "
        f"waited {usage.mask_wait_us / 1e3:.1f} ms for masks, "
        f"{usage.wire_bytes} bytes on the wire, seed {generation.seed}"
    )


def _prompt(options: argparse.Namespace) -> Any:
    if options.prompt is not None:
        return options.prompt
    system = [{"role": "system", "content": options.system}] if options.system is not None else []
    return [*system, {"role": "user", "content": options.chat}]


def _constraint(options: argparse.Namespace) -> ConstraintLike:
    if options.tools is not None:
        return tool_calls(
            options.tools.read_bytes(),
            choice=options.tool_choice or "auto",
            format=options.tool_format or "hermes",
            single=options.single,
        )
    if options.tool_choice or options.tool_format or options.single or options.calls_only:
        raise ValueError("--tool-choice, --tool-format, --single and --calls-only go with --tools FILE")
    if options.gbnf is not None:
        return gbnf(options.gbnf.read_bytes())
    if options.structural_tag is not None:
        return structural_tag(options.structural_tag.read_bytes())
    if options.schema is not None:
        return json_schema(options.schema.read_bytes())
    if options.json:
        return json_object()
    if options.regex is not None:
        return regex(options.regex)
    if options.choice is not None:
        return choice(options.choice)
    if options.lark is not None:
        return lark(options.lark.read_bytes())
    return None


def _sampler(options: argparse.Namespace) -> SamplerConfig:
    stages: list[SamplerStage] = []
    if options.temperature == 0:
        # Greedy ends the chain, and what the others keep always includes its choice.
        stages = [temperature(0.0)]
    else:
        for value, stage in (
            (options.temperature, temperature),
            (options.top_k, top_k),
            (options.top_p, top_p),
            (options.min_p, min_p),
        ):
            if value is not None:
                stages.append(stage(value))
    return sampler_config(*stages, seed=options.seed, max_tokens=options.max_tokens, stop_strings=options.stop)


def _complain(message: str) -> int:
    print(f"constraintd-runner: {message}", file=sys.stderr)
    return FAILED
