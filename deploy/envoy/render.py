"""Prints envoy.yaml with other addresses: `python render.py --listen HOST:PORT --replica HOST:PORT ... > my.yaml`.

Only the lines marked "render" change, so what is printed is the commented file beside this one. Needs nothing
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
# A line that is a comment, or something else, unless its option is given.
_OPTIONAL = re.compile(r"^(?P<indent> *).*?# render (?P<option>tls|probe): (?P<line>.*)$")
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_PATH = re.compile(r"/[A-Za-z0-9._/-]+")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Prints envoy.yaml with other addresses, each HOST:PORT.")
    parser.add_argument("--listen", default="127.0.0.1:50050", help="where clients connect to [%(default)s]")
    parser.add_argument("--admin", default="127.0.0.1:9901", help="Envoy's own pages; on loopback [%(default)s]")
    parser.add_argument("--replica", action="append", required=True, help="a constraintd; once each")
    parser.add_argument(
        "--tls",
        metavar="FILE",
        help="take TLS from clients: an SDS file with the secret `constraintd`, such as "
        "deploy/kustomize/overlays/replicas/envoy/tls.yaml [plaintext]",
    )
    parser.add_argument("--probe", metavar="HOST:PORT", help="where to answer GET /ready [nowhere]")
    options = parser.parse_args()
    try:
        print(rendered(options.listen, options.admin, options.replica, tls=options.tls, probe=options.probe), end="")
    except ValueError as error:
        parser.error(str(error))


def rendered(
    listen: str, admin: str, replicas: Sequence[str], *, tls: str | None = None, probe: str | None = None
) -> str:
    """The config for these addresses, each `host:port` or `[v6]:port`. Raises ValueError for one that is not, and for
    a `tls` file that is no absolute path of plain characters.
    """
    if len(set(replicas)) != len(replicas):
        raise ValueError("a replica is named twice")
    values = _values(tls, probe)
    lines: list[str] = []
    replicas_written = False
    for line in TEMPLATE.read_text().splitlines():
        mark, optional = _MARK.search(line), _OPTIONAL.match(line)
        if optional is not None:
            filled = values.get(optional["option"])
            lines.append(line if filled is None else optional["indent"] + _filled(optional["line"], filled))
        elif mark is None:
            lines.append(line)
        elif mark[1] != "replica":
            lines.append(_with_socket(line, {"listen": listen, "admin": admin}[mark[1]]))
        elif not replicas_written:
            lines += [_with_socket(line, replica) for replica in replicas]
            replicas_written = True
    return "\n".join(lines) + "\n"


def _values(tls: str | None, probe: str | None) -> dict[str, dict[str, str]]:
    """What stands for the capital words in the lines of each option that is given."""
    values: dict[str, dict[str, str]] = {}
    if tls is not None:
        if not _PATH.fullmatch(tls):
            raise ValueError(f"{tls!r} is no absolute path of a file")
        values["tls"] = {"TLS_FILE": tls}
    if probe is not None:
        host, port = _split(probe)
        values["probe"] = {"PROBE_HOST": host, "PROBE_PORT": port}
    return values


def _filled(line: str, values: dict[str, str]) -> str:
    for word, value in values.items():
        line = line.replace(word, value)
    return line


def _with_socket(line: str, address: str) -> str:
    host, port = _split(address)
    return _SOCKET.sub(f"address: {host}, port_value: {port}", line)


def _split(address: str) -> tuple[str, str]:
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 0 < int(parts["port"]) < 65_536:
        raise ValueError(f"{address!r} is no address: HOST:PORT is expected")
    host = parts["host"]
    return (f'"{host[1:-1]}"' if host.startswith("[") else host), str(int(parts["port"]))


if __name__ == "__main__":
    main()
