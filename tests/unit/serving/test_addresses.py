"""Which addresses others can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from constraintd.serving.addresses import check_exposure, is_local, socket_path
from constraintd.serving.settings import BadConfig


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:1", "127.9.9.9:0", "localhost:1", "[::1]:1", "ipv4:127.0.0.1:1", "ipv6:[::1]:1", "unix:/a", "unix:a",
     "unix:///a", "unix-abstract:a"],
)  # fmt: skip
def test_these_stay_on_this_machine(address: str) -> None:
    assert is_local(address)
    check_exposure([address], tls=False, tokens=False, insecure=False)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1]:1", "daemon:50051", "localhost.example:1", ":50051", "50051", "",
     "127.0.0.1.example:1", "dns:///localhost.example:1", "::1:1x", "127.0.0.1 :1"],
)  # fmt: skip
def test_these_may_be_reached_by_others_and_need_tls_or_a_word(address: str) -> None:
    assert not is_local(address)
    with pytest.raises(BadConfig, match="--insecure"):
        check_exposure(["unix:/a", address], tls=False, tokens=False, insecure=False)
    with pytest.raises(BadConfig, match="in the clear"):
        check_exposure([address], tls=False, tokens=True, insecure=False)
    check_exposure([address], tls=True, tokens=False, insecure=False)
    check_exposure([address], tls=False, tokens=False, insecure=True)


def test_a_unix_socket_has_a_file_unless_it_is_an_abstract_one() -> None:
    assert socket_path("unix:/a/b") == socket_path("unix:///a/b") == Path("/a/b")
    assert socket_path("unix:a") == Path("a")
    assert socket_path("unix-abstract:a") is socket_path("127.0.0.1:1") is None
