"""`constraintd`: the daemon's command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields

from constraintd import __version__
from constraintd.config import Config, Limits

_SERVE_EXAMPLE = """examples:
  constraintd serve                                  # on 127.0.0.1:50051
  constraintd serve --listen unix:/run/constraintd.sock
  constraintd serve --listen 127.0.0.1:0 --max-sessions 500
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    return _serve(options)


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
    return parser


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # gRPC's poller inherits these; without them a fork later would trip over its threads.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from constraintd.server.daemon import CannotListen, serve

    config = Config(
        listen=tuple(options.listen or Config().listen),
        limits=Limits(**{field.name: getattr(options, field.name) for field in fields(Limits)}),
        drain_seconds=options.drain_seconds,
    )
    try:
        asyncio.run(serve(config, ready=lambda addresses: print("listening on", *addresses, flush=True)))
    except CannotListen as error:
        print(f"constraintd: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
