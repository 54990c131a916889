"""Where internal ports listen, and what the rest of the herd is told about it."""

import socket

import pytest

from remuda.base.errors import Misconfigured
from remuda.base.hosts import InternalHosts, internal_hosts, open_listener

ELSEWHERE = "192.0.2.7"  # RFC 5737: nobody's.


@pytest.mark.parametrize(
    ("listen", "advertise", "own", "expected"),
    [
        # Nothing is said: loopback, or the address towards a Redis that is elsewhere.
        ("", "", "", ("127.0.0.1", "127.0.0.1")),
        ("", "", "10.0.0.2", ("10.0.0.2", "10.0.0.2")),
        # All addresses: others are told one of them.
        ("0.0.0.0", "", "10.0.0.2", ("0.0.0.0", "10.0.0.2")),
        ("::", "", "fd00::2", ("::", "fd00::2")),
        ("10.1.1.1", "", "10.0.0.2", ("10.1.1.1", "10.1.1.1")),
        # What is advertised is not this machine's own address: a router passes it on.
        ("", ELSEWHERE, "10.0.0.2", ("0.0.0.0", ELSEWHERE)),
        ("", "node7.example", "", ("0.0.0.0", "node7.example")),
        ("", "2001:db8::7", "", ("::", "2001:db8::7")),
        ("", "127.0.0.3", "10.0.0.2", ("127.0.0.3", "127.0.0.3")),
        ("", "localhost", "", ("127.0.0.1", "localhost")),
        ("10.1.1.1", "node7.example", "10.0.0.2", ("10.1.1.1", "node7.example")),
    ],
)
def test_what_is_not_said_follows_from_the_rest(
    listen: str, advertise: str, own: str, expected: tuple[str, str]
) -> None:
    assert internal_hosts(listen, advertise, own=own) == InternalHosts(*expected)


def test_an_address_that_cannot_be_listened_on_is_named() -> None:
    with pytest.raises(Misconfigured, match=rf"Cannot listen on {ELSEWHERE}:0: Cannot assign"):
        open_listener(ELSEWHERE)


def test_a_port_is_shared_only_by_those_who_say_so() -> None:
    with open_listener("127.0.0.1", shared=True) as first:
        port = first.getsockname()[1]

        with open_listener("127.0.0.1", port, shared=True) as second:
            assert second.getsockname()[1] == port
        with pytest.raises(Misconfigured, match="in use"):
            open_listener("127.0.0.1", port)


def test_internal_ports_can_have_an_ipv6_address() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with open_listener("::1") as listener:
        assert listener.family is socket.AF_INET6
