"""`constraintd`: the daemon's command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from constraintd import __version__, failpoints
from constraintd.config import Config, Limits

_SERVE_EXAMPLE = """examples:
  constraintd serve                                  # on 127.0.0.1:50051
  constraintd serve --listen unix:/run/constraintd.sock
  constraintd serve --listen 127.0.0.1:0 --max-sessions 500
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
    serve.add_argument(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="unix:/path or host:port (port 0: any free one); may be given several times [127.0.0.1:50051]",
    )
    serve.add_argument(
        "--drain-seconds",
        type=float,
        default=Config().drain_seconds,
        metavar="S",
        help="how long running calls may finish after SIGTERM [%(default)s]",
    )
    serve.add_argument(
        "--store",
        default=_default_store(),
        metavar="STORE",
        help="where sessions are kept: memory, sqlite:PATH (one daemon a file) or redis://HOST:PORT/DB (many daemons) "
        "[%(default)s]",
    )
    serve.add_argument(
        "--durability",
        choices=["relaxed", "strict"],
        default=Config().durability,
        help="sqlite: an answered step survives the daemon's death (relaxed), or power loss too (strict) [%(default)s]",
    )
    serve.add_argument("--failpoints", default="", metavar="SPEC", help=argparse.SUPPRESS)
    serve.add_argument(
        "--no-sandbox",
        dest="sandbox",
        action="store_false",
        help="compile grammars without trying them in a process of their own first: only if you trust all of them",
    )
    serve.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    limits = serve.add_argument_group("limits", "what the daemon takes at most; clients read them with GetServerInfo")
    for field in fields(Limits):
        limits.add_argument(
            "--" + field.name.replace("_", "-"),
            type=type(field.default),
            default=field.default,
            metavar="N",
            help="[%(default)s]",
        )
    serve.set_defaults(run=_serve)
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
    check.set_defaults(run=_lazily("run_check"))


def _add_compile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compile_ = commands.add_parser(
        "compile",
        help="say what is enforced of a grammar",
        description="Compiles one grammar and shows, keyword by keyword, what is enforced of a JSON Schema.",
        epilog=_COMPILE_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_grammar_options(compile_)
    compile_.set_defaults(run=_lazily("run_compile"))


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


def _lazily(name: str) -> Callable[[argparse.Namespace], int]:
    """The command, imported when it runs: --help answers at once."""

    def run(options: argparse.Namespace) -> int:
        from constraintd.check import command

        chosen: Callable[[argparse.Namespace], int] = getattr(command, name)
        return chosen(options)

    return run


def _default_store() -> str:
    """A file of the user's own, where such files belong (XDG base directory specification)."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return f"sqlite:{home}/constraintd/sessions.sqlite"


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config = Config(
        listen=tuple(options.listen or Config().listen),
        limits=Limits(**{field.name: getattr(options, field.name) for field in fields(Limits)}),
        drain_seconds=options.drain_seconds,
        sandbox=options.sandbox,
        store=options.store,
        durability=options.durability,
        failpoints=options.failpoints,
    )
    if config.failpoints:
        failpoints.enable(config.failpoints)
    from constraintd.grammar.native_memory import settle_malloc
    from constraintd.grammar.sandbox import HelperSandbox, NoSandbox, SandboxUnavailable
    from constraintd.server.stacks import deepen_stacks

    settle_malloc()
    # The event loop waits this long for the GIL where a grammar is being read or prepared in Python; under a hostile
    # load the steps' p99 went from 1.4 times the quiet one to 1.1 times, against the default of 5 ms.
    sys.setswitchinterval(0.0005)
    deepen_stacks(4 * config.limits.compile_stack_bytes)
    sandbox = HelperSandbox() if config.sandbox else NoSandbox()
    try:
        # Before gRPC is there: it comes up meanwhile, and inherits nothing of it.
        sandbox.start()
    except SandboxUnavailable as error:
        print(f"constraintd: {error}", file=sys.stderr)
        return 1
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from constraintd.errors import StoreUnavailable
    from constraintd.server.daemon import CannotListen, serve
    from constraintd.stores import BadStore

    try:
        asyncio.run(serve(config, sandbox, ready=lambda addresses: print("listening on", *addresses, flush=True)))
    except (CannotListen, BadStore, StoreUnavailable) as error:
        print(f"constraintd: {error}", file=sys.stderr)
        return 1
    finally:
        sandbox.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
