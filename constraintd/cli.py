"""`constraintd`: the daemon's command line."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from constraintd import __version__, failpoints
from constraintd.config import ENVIRONMENT_PREFIX, FOREIGN_VARIABLES, Config
from constraintd.serving.cpu_budget import cpu_budget
from constraintd.serving.farewell import leave
from constraintd.serving.logs import set_up_logs
from constraintd.serving.settings import BadConfig, Loaded, load, settings_of
from constraintd.serving.settings_file import write_settings
from constraintd.serving.settings_flags import add_flags, given_flags

_SERVE_EXAMPLE = """examples:
  constraintd serve                                  # on 127.0.0.1:50051
  constraintd serve --listen unix:/run/constraintd.sock
  constraintd serve --listen 127.0.0.1:0 --max-sessions 500
  constraintd serve --listen 0.0.0.0:50051 --tls-cert tls.crt --tls-key tls.key --tokens-file tokens
"""
_CONFIG_EXAMPLE = """examples:
  constraintd config show
  CONSTRAINTD_STORE=memory constraintd config show --config constraintd.toml --max-sessions 500
"""
_TOKEN_EXAMPLE = """examples:
  constraintd token runner-a --until 2027-12-31
  constraintd token runner-a --append tokens > runner-a.token
"""

_CHECK_EXAMPLE = """examples:
  constraintd check --vocabulary tokenizer.json --kind regex --grammar date.txt --text 2026-11-29 --text tomorrow
  constraintd check --vocabulary tokenizer.json --cases cases.jsonl
"""
_COMPILE_EXAMPLE = """example:
  constraintd compile --vocabulary tokenizer.json --kind json_schema --grammar person.json
"""
_KINDS = ("json_schema", "json_object", "choice", "structural_tag", "regex", "lark", "gbnf")


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
        prog="constraintd",
        description="Holds grammars and sampler state for model runners, and says before every token which are legal.",
    )
    parser.add_argument("--version", action="version", version=f"constraintd {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="run the daemon",
        description="Runs the daemon until SIGTERM or Ctrl-C; prints `listening on ADDRESS` when it is ready.",
        epilog=_SERVE_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_settings(serve)
    serve.set_defaults(run=_serve)
    _add_config(commands)
    _add_token(commands)
    _add_check(commands)
    _add_compile(commands)
    return parser


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = commands.add_parser(
        "check",
        help="say whether texts satisfy a grammar, and where and why not",
        description="Walks texts through a grammar's masks, token by token, and says which are accepted.",
        epilog=_CHECK_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_grammar_options(check)
    check.add_argument("--text", action="append", metavar="TEXT", help="a text to check; may be given several times")
    check.add_argument(
        "--cases",
        type=Path,
        metavar="FILE",
        help="instead of one grammar, JSON lines {id, kind, grammar, start?, triggers?, passing, failing, expect?}; "
        "prints a JSON line for each",
    )
    check.set_defaults(run=_lazily("constraintd.check.command", "run_check"))


def _add_compile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compile_ = commands.add_parser(
        "compile",
        help="say what is enforced of a grammar",
        description="Compiles one grammar and shows, keyword by keyword, what is enforced of a JSON Schema.",
        epilog=_COMPILE_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_grammar_options(compile_)
    compile_.set_defaults(run=_lazily("constraintd.check.command", "run_compile"))


def _add_grammar_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vocabulary",
        type=Path,
        required=True,
        metavar="FILE",
        help="tokenizer.json, a SentencePiece *.model, *.tiktoken, tekken*.json or a token table",
    )
    parser.add_argument("--kind", choices=_KINDS, help="the grammar's kind")
    parser.add_argument("--grammar", type=Path, metavar="FILE", help="the grammar's source (JSON for JSON kinds)")
    parser.add_argument("--start", default="", metavar="RULE", help="gbnf: the rule to begin with [root]")
    parser.add_argument(
        "--eog",
        type=int,
        action="append",
        metavar="ID",
        help="end-of-generation id [from the config files beside FILE]",
    )
    parser.add_argument("--width", type=int, metavar="N", help="width of the logits [from config.json beside FILE]")
    parser.add_argument("--policy", choices=["strict", "approximate"], default="strict", help="[%(default)s]")
    parser.add_argument(
        "--property-order",
        choices=["any", "declared"],
        default="any",
        help="order of a JSON Schema's properties in the output",
    )
    parser.add_argument("--whitespace", choices=["bounded", "compact", "natural"], default="bounded", help="in JSON")
    parser.add_argument("--formats-are-annotations", action="store_true", help="don't assert known formats")
    parser.add_argument("--address", metavar="TARGET", help="ask the daemon there: unix:/path or host:port")


def _lazily(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """The command, imported when it runs: --help answers at once."""

    def run(options: argparse.Namespace) -> int:
        chosen: Callable[[argparse.Namespace], int] = getattr(import_module(module), name)
        return chosen(options)

    return run


def _add_settings(parser: argparse.ArgumentParser) -> None:
    tables = {"limits": "what the daemon takes at most; clients read them with GetServerInfo"}
    add_flags(parser, Config, tables=tables, prefix=ENVIRONMENT_PREFIX)


def _add_config(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    config = commands.add_parser("config", help="show the settings in force", description="Shows settings.")
    actions = config.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser(
        "show",
        help="print every setting, and where its value comes from",
        description="Prints the config that `serve` would run with, as a file for --config, each setting with where "
        "its value comes from; no secrets.",
        epilog=_CONFIG_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_settings(show)
    show.set_defaults(run=_show_config)


def _add_token(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    token = commands.add_parser(
        "token",
        help="make a token, and its line for --tokens-file",
        description="Makes a token: prints it, for its bearer, and the line that tells a server of it (a hash).",
        epilog=_TOKEN_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    token.add_argument("name", metavar="NAME", help="whose it is; stands in the logs")
    token.add_argument("--until", metavar="TIME", help="when it expires, such as 2027-01-31 or 2027-01-31T12:00:00Z")
    token.add_argument("--append", metavar="FILE", help="add the line to this file, and print the token alone")
    token.set_defaults(run=_lazily("constraintd.server.token_command", "run_token"))


def _load(options: argparse.Namespace) -> Loaded[Config]:
    return load(
        Config,
        prefix=ENVIRONMENT_PREFIX,
        flags=given_flags(options, Config),
        environment=os.environ,
        file=options.config,
        foreign=FOREIGN_VARIABLES,
    )


def _show_config(options: argparse.Namespace) -> int:
    try:
        loaded = _load(options)
    except BadConfig as error:
        return _complain(error)
    print(write_settings(settings_of(Config), loaded.values, loaded.origins), end="")
    return 0


def _serve(options: argparse.Namespace) -> int:
    try:
        config = _load(options).config(prefix=ENVIRONMENT_PREFIX)
    except BadConfig as error:
        return _complain(error)
    set_up_logs(config.log_format, config.log_level)
    if config.failpoints:
        failpoints.enable(config.failpoints)
    _bound_threads()
    from constraintd.grammar.native_memory import settle_malloc
    from constraintd.grammar.sandbox import HelperSandbox, NoSandbox, SandboxUnavailable
    from constraintd.server.stacks import deepen_stacks

    settle_malloc()
    # The event loop waits so long for the GIL where another thread works in Python, such as one that compiles a GBNF;
    # by default it is 5 ms.
    sys.setswitchinterval(0.0005)
    deepen_stacks(4 * config.limits.compile_stack_bytes)
    sandbox = HelperSandbox() if config.sandbox else NoSandbox()
    try:
        # Before gRPC is there: it comes up meanwhile, and inherits nothing of it.
        sandbox.start()
    except SandboxUnavailable as error:
        return _complain(error)
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from constraintd.errors import StoreUnavailable
    from constraintd.server.daemon import serve
    from constraintd.serving.listener import CannotListen
    from constraintd.stores import BadStore

    try:
        asyncio.run(serve(config, sandbox, ready=lambda addresses: print("listening on", *addresses, flush=True)))
    except (BadConfig, CannotListen, BadStore, StoreUnavailable) as error:
        return _complain(error)
    finally:
        sandbox.close()
    return 0


def _bound_threads() -> None:
    """Native libraries take a thread for each CPU of the machine, also where the container may use one."""
    for variable in ("RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, str(cpu_budget()))


def _complain(error: Exception) -> int:
    print(f"constraintd: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    program()
