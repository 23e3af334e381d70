"""Prints envoy.yaml with other addresses: `python render.py --listen HOST:PORT --replica HOST:PORT ... > my.yaml`.

Only the lines marked "# render: ..." change, so what is printed is the commented file beside this one. Needs nothing
but Python.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

TEMPLATE = Path(__file__).with_name("envoy.yaml")
_SOCKET = re.compile(r"address: [^ ,{]+, port_value: \d+")
_MARK = re.compile(r"# render: (\w+)$")
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Prints envoy.yaml with other addresses, each HOST:PORT.")
    parser.add_argument("--listen", default="127.0.0.1:50050", help="where clients connect to [%(default)s]")
    parser.add_argument("--admin", default="127.0.0.1:9901", help="Envoy's own pages; on loopback [%(default)s]")
    parser.add_argument("--replica", action="append", required=True, help="a constraintd; once each")
    options = parser.parse_args()
    try:
        print(rendered(options.listen, options.admin, options.replica), end="")
    except ValueError as error:
        parser.error(str(error))


def rendered(listen: str, admin: str, replicas: Sequence[str]) -> str:
    """The config for these addresses, each `host:port` or `[v6]:port`. Raises ValueError for one that is not."""
    if len(set(replicas)) != len(replicas):
        raise ValueError("a replica is named twice")
    lines: list[str] = []
    replicas_written = False
    for line in TEMPLATE.read_text().splitlines():
        mark = _MARK.search(line)
        if mark is None:
            lines.append(line)
        elif mark[1] != "replica":
            lines.append(_with_socket(line, {"listen": listen, "admin": admin}[mark[1]]))
        elif not replicas_written:
            lines += [_with_socket(line, replica) for replica in replicas]
            replicas_written = True
    return "\n".join(lines) + "\n"


def _with_socket(line: str, address: str) -> str:
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 0 < int(parts["port"]) < 65_536:
        raise ValueError(f"{address!r} is no address: HOST:PORT is expected")
    host = parts["host"]
    quoted = f'"{host[1:-1]}"' if host.startswith("[") else host
    return _SOCKET.sub(f"address: {quoted}, port_value: {int(parts['port'])}", line)


if __name__ == "__main__":
    main()
