"""Which web pages may talk to the gateway."""

from collections.abc import Callable

import pytest

from remuda.base.errors import Forbidden
from remuda.base.hosts import is_loopback
from remuda.fleet.relay import Request
from remuda.fleet.relay.head import read_head
from remuda.gateway.origin import OriginRule


def is_allowed(
    rule: OriginRule,
    *,
    host: str,
    origin: str | None = None,
    check: Callable[[OriginRule, Request], None] = OriginRule.check,
) -> bool:
    line = f"Origin: {origin}\r\n" if origin is not None else ""
    head = read_head(f"GET / HTTP/1.1\r\nHost: {host}\r\n{line}\r\n".encode("latin-1"))
    try:
        check(rule, Request(head, head.method, head.target, "127.0.0.1"))
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    "host", ["localhost:4444", "127.0.0.1:4444", "[::1]:4444", "192.168.1.2", "x.localhost", ""]
)
def test_a_client_that_is_no_page_may_come_in(host: str) -> None:
    assert is_allowed(OriginRule(), host=host)


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "http://127.0.0.1:4444", "https://[::1]", "http://a.localhost"]
)
def test_a_page_of_this_machine_may_come_in(origin: str) -> None:
    assert is_allowed(OriginRule(), host="localhost:4444", origin=origin)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "null",
        "",
        "nonsense",
        "http://[",
        "http://localhost, http://evil.example",
        "chrome-extension://abc",
    ],
)
def test_a_foreign_page_may_not(origin: str) -> None:
    assert not is_allowed(OriginRule(), host="localhost:4444", origin=origin)


def test_no_page_may_do_what_is_for_programs_unless_its_origin_is_configured() -> None:
    def may(rule: OriginRule, origin: str | None) -> bool:
        return is_allowed(rule, host="localhost:4444", origin=origin, check=OriginRule.check_program)

    assert may(OriginRule(), None)
    assert not may(OriginRule(), "http://localhost:4444")
    assert not may(OriginRule(), "null")
    assert may(OriginRule(["http://localhost:3000"]), "http://LOCALHOST:3000")


def test_a_page_that_rebinds_its_name_to_loopback_may_not() -> None:
    assert not is_allowed(OriginRule(), host="evil.example:4444", origin="http://evil.example:4444")
    assert not is_allowed(OriginRule(), host="evil.example:4444")


def test_a_configured_origin_may_come_in() -> None:
    rule = OriginRule(["https://Grid.example/"])

    assert is_allowed(rule, host="127.0.0.1:4444", origin="https://grid.example")
    assert is_allowed(rule, host="grid.example")
    assert not is_allowed(rule, host="127.0.0.1:4444", origin="http://grid.example")


def test_bound_to_a_public_address_its_own_pages_may_come_in() -> None:
    rule = OriginRule(is_bound_to_loopback=False)

    assert is_allowed(rule, host="grid.example:4444", origin="http://grid.example:4444")
    assert is_allowed(rule, host="grid.example:4444")
    assert not is_allowed(rule, host="grid.example:4444", origin="http://evil.example:4444")


def test_loopback_is_recognised() -> None:
    assert all(is_loopback(name) for name in ("localhost", "127.0.0.1", "127.1.2.3", "::1"))
    assert not any(is_loopback(name) for name in ("", "0.0.0.0", "192.168.0.1", "localhost.example"))
