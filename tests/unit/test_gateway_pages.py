"""Which web pages may talk to the gateway."""

import re
from collections.abc import Callable, Mapping

import pytest

from remuda.base.errors import Forbidden, InvalidArgument
from remuda.base.hosts import is_loopback
from remuda.fleet.relay import Request
from remuda.fleet.relay.head import read_head
from remuda.gateway.pages import PageRule, check_content_type


def is_allowed(
    rule: PageRule,
    *,
    host: str,
    origin: str | None = None,
    check: Callable[[PageRule, Request], None] = PageRule.check,
    headers: Mapping[str, str] | None = None,
) -> bool:
    named = {"Host": host, **({} if origin is None else {"Origin": origin})}
    named |= headers or {}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    head = read_head(f"GET / HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
    try:
        check(rule, Request(head, head.method, head.target, "127.0.0.1"))
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    "host", ["localhost:4444", "127.0.0.1:4444", "[::1]:4444", "192.168.1.2", "x.localhost", ""]
)
def test_a_client_that_is_no_page_may_come_in(host: str) -> None:
    assert is_allowed(PageRule(), host=host)


@pytest.mark.parametrize(
    "host", ["localhost:4444", "127.0.0.1:4444", "[::1]:4444", "192.168.1.2:4444", "localhost"]
)
def test_a_page_of_the_door_itself_may_come_in(host: str) -> None:
    assert is_allowed(PageRule(), host=host, origin=f"http://{host}")


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:8099",
        "http://localhost",
        "http://127.0.0.1:4444",
        "https://localhost:4444",
        "http://a.localhost:4444",
        "https://[::1]",
    ],
)
def test_another_page_of_this_machine_may_not(origin: str) -> None:
    assert not is_allowed(PageRule(), host="localhost:4444", origin=origin)


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
    assert not is_allowed(PageRule(), host="localhost:4444", origin=origin)


def test_no_page_may_do_what_is_for_programs_unless_its_origin_is_configured() -> None:
    def may(rule: PageRule, origin: str | None) -> bool:
        return is_allowed(rule, host="localhost:4444", origin=origin, check=PageRule.check_program)

    assert may(PageRule(), None)
    assert not may(PageRule(), "http://localhost:4444")
    assert not may(PageRule(), "null")
    assert may(PageRule(["http://localhost:3000"]), "http://LOCALHOST:3000")


def test_a_host_name_that_is_refused_is_allowed_by_what_the_message_says() -> None:
    head = read_head(b"GET /status HTTP/1.1\r\nHost: herd.example:4444\r\n\r\n")
    request = Request(head, head.method, head.target, "127.0.0.1")
    with pytest.raises(Forbidden, match=r"the host name herd\.example:4444") as refused:
        PageRule(scheme="https").check(request)

    (advised,) = re.findall(r"add (\S+) to allow_origins", refused.value.message)
    PageRule([advised], scheme="https").check(request)


def test_a_page_that_rebinds_its_name_to_loopback_may_not() -> None:
    assert not is_allowed(PageRule(), host="evil.example:4444", origin="http://evil.example:4444")
    assert not is_allowed(PageRule(), host="evil.example:4444")


HERE = "localhost:4444"
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
NO_CORS = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FRAME = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
ELSEWHERE = {"Sec-Fetch-Site": "cross-site"}


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_person_and_the_doors_own_pages_may_ask(site: str) -> None:
    assert is_allowed(PageRule(), host=HERE, headers={"Sec-Fetch-Site": site})


@pytest.mark.parametrize("rule", [PageRule(), PageRule(is_bound_to_loopback=False)])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", "none, cross-site", ""])
@pytest.mark.parametrize("way", [LINK, NO_CORS, FRAME])
def test_a_page_that_sends_no_origin_gives_itself_away(
    rule: PageRule, site: str, way: dict[str, str]
) -> None:
    assert not is_allowed(rule, host=HERE, headers={"Sec-Fetch-Site": site, **way})


@pytest.mark.parametrize(("way", "may"), [(LINK, True), (NO_CORS, False), (FRAME, False)])
def test_a_link_elsewhere_may_lead_to_a_page_but_not_into_a_frame(way: dict[str, str], *, may: bool) -> None:
    def visit(rule: PageRule, request: Request) -> None:
        rule.check(request, is_page=True)

    assert is_allowed(PageRule(), host=HERE, check=visit, headers={**ELSEWHERE, **way}) == may


def test_a_configured_page_may_have_it_in_a_frame() -> None:
    def may(referer: str) -> bool:
        rule = PageRule(["https://portal.example"])
        return is_allowed(rule, host=HERE, headers={**ELSEWHERE, **FRAME, "Referer": referer})

    assert may("https://portal.example/tests?page=1")
    assert not may("https://evil.example/https://portal.example")
    assert not may("")


FORMS = ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "Text/Plain;charset=UTF-8"]


@pytest.mark.parametrize("kind", FORMS)
def test_no_body_of_a_forms_type_is_taken(kind: str) -> None:
    with pytest.raises(InvalidArgument, match="application/json"):
        check_content_type(post(f"Content-Type: {kind}\r\n"))


@pytest.mark.parametrize("kind", ["application/json", "application/json;charset=UTF-8", "text/json", ""])
def test_what_webdriver_clients_send_is_taken(kind: str) -> None:
    check_content_type(post(f"Content-Type: {kind}\r\n"))
    check_content_type(post(""))


def post(lines: str) -> Request:
    head = read_head(f"POST /session HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
    return Request(head, head.method, head.target, "127.0.0.1")


def test_a_configured_origin_may_come_in() -> None:
    rule = PageRule(["https://Grid.example/"])

    assert is_allowed(rule, host="127.0.0.1:4444", origin="https://grid.example")
    assert is_allowed(rule, host="grid.example")
    assert not is_allowed(rule, host="127.0.0.1:4444", origin="http://grid.example")


def test_bound_to_a_public_address_its_own_pages_may_come_in() -> None:
    rule = PageRule(is_bound_to_loopback=False)

    assert is_allowed(rule, host="grid.example:4444", origin="http://grid.example:4444")
    assert is_allowed(rule, host="grid.example:4444")
    assert not is_allowed(rule, host="grid.example:4444", origin="http://evil.example:4444")


def test_loopback_is_recognised() -> None:
    assert all(is_loopback(name) for name in ("localhost", "127.0.0.1", "127.1.2.3", "::1"))
    assert not any(is_loopback(name) for name in ("", "0.0.0.0", "192.168.0.1", "localhost.example"))


def test_under_tls_the_doors_own_pages_are_those_of_https() -> None:
    rule = PageRule(scheme="https")

    assert is_allowed(rule, host="localhost:4444", origin="https://localhost:4444")
    assert not is_allowed(rule, host="localhost:4444", origin="http://localhost:4444")


def test_a_page_elsewhere_is_named_without_the_rest_of_its_url() -> None:
    lines = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nReferer: http://a.example/?token=rmd_x\r\n"
    head = read_head(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())

    with pytest.raises(Forbidden, match=r"http://a\.example are"):
        PageRule().check(Request(head, head.method, head.target, "127.0.0.1"))
