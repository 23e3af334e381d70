"""`python -m benchmarks NAME [--json] [--plot FILE] [options of the benchmark]`."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from types import ModuleType

import benchmarks
from benchmarks.form import show_progress, table


def main() -> int:
    """Runs one benchmark; gives the exit status."""
    found = {module.NAME: module for module in _modules()}
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures one thing and prints its figures.",
        epilog="benchmarks:\n" + "\n".join(f"  {name:22} {module.SUMMARY}" for name, module in found.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", choices=list(found), metavar="NAME", help="which benchmark; see below")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and end")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plot", metavar="FILE", help="also draw the samples into FILE (.png or .svg)")
    options, rest = parser.parse_known_args()
    if options.list or options.name is None:
        parser.print_help()
        return 0
    module = found[options.name]
    own = argparse.ArgumentParser(prog=f"python -m benchmarks {options.name}", description=module.SUMMARY)
    if hasattr(module, "add_options"):
        module.add_options(own)
    result = module.run(show_progress, **vars(own.parse_args(rest)))
    print(json.dumps(result.as_json(module.NAME)) if options.json else table(module.NAME, result))
    if options.plot:
        from benchmarks.plot import draw

        draw(module.NAME, result, options.plot)
    return 0


def _modules() -> list[ModuleType]:
    modules = [importlib.import_module(f"benchmarks.{info.name}") for info in pkgutil.iter_modules(benchmarks.__path__)]
    return [module for module in modules if hasattr(module, "NAME")]


if __name__ == "__main__":
    sys.exit(main())
