"""What a client shows of who it is: read from its head, and in nothing that goes on."""

import base64

import pytest

from remuda.fleet.relay import Address, Forward, Request
from remuda.fleet.relay.head import Shown, read_head
from remuda.fleet.relay.rewrite import onward

TOKEN = "rmd_secret-of_the-ranch"
OTHER = "rmd_another"


def basic(text: str) -> str:
    return f"Authorization: Basic {base64.b64encode(text.encode()).decode()}"


def read(target: str, *headers: str) -> Request:
    lines = "".join(f"{header}\r\n" for header in headers)
    head = read_head(f"GET {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode())
    return Request(head, head.method, head.target, "127.0.0.1")


def everything_that_goes_on(request: Request) -> bytes:
    plans = (Forward(Address("a", 1)), Forward(Address("a", 1), headers=[("X-Remuda-Account", "ranch")]))
    heads = [onward(request, plan) for plan in plans]
    return b"".join([*heads, request.head.onward, request.head.line, request.target.encode()])


@pytest.mark.parametrize(
    ("target", "header"),
    [
        ("/a", f"Authorization: Bearer {TOKEN}"),
        ("/a", f"authorization: bearer  {TOKEN} "),
        ("/a", basic(f"anybody:{TOKEN}")),
        ("/a", basic(f":{TOKEN}")),
        (f"/a?token={TOKEN}", "X: y"),
        (f"/a?token={TOKEN.replace('_', '%5F')}", "X: y"),
        (f"/a?%74oken={TOKEN}", "X: y"),
        (f"/a?token={TOKEN}&token={OTHER}", "X: y"),
        (f"/a?token={OTHER}", f"Authorization: Bearer {TOKEN}"),
        (f"/a?token={TOKEN}", "Authorization: Negotiate abc"),
    ],
)
def test_a_token_is_read_and_taken_off(target: str, header: str) -> None:
    request = read(target, header)

    assert request.head.shown == Shown(token=TOKEN)
    assert request.target == "/a"
    passed_on = everything_that_goes_on(request)
    assert not any(part in passed_on for part in (TOKEN.encode(), OTHER.encode(), b"uthorization", b"oken="))


def test_the_rest_of_the_query_stays_as_it_was() -> None:
    request = read(f"/a?b=%20c&token={TOKEN}&&d&ticket=t.t&e=f+g")

    assert request.target == "/a?b=%20c&&d&e=f+g"
    assert request.head.shown == Shown(token=TOKEN, ticket="t.t")


@pytest.mark.parametrize("target", ["/a?", "/a?b", "/a?tokens=1&ticketing=2", "/a?b=token=1"])
def test_a_query_that_shows_nothing_is_left_alone(target: str) -> None:
    request = read(target)

    assert (request.target, request.head.shown) == (target, Shown())


@pytest.mark.parametrize(
    "cookies",
    [
        "remuda_login=rmdc_c",
        "a=b; remuda_login=rmdc_c; c=d",
        'remuda_login="rmdc_c"',
        "remuda_login=rmdc_c; remuda_login=rmdc_d",
        # Another host of the domain can set the one, but not the other.
        "remuda_login=rmdc_planted; __Host-remuda_login=rmdc_c",
    ],
)
def test_a_login_is_read_and_no_cookie_goes_on(cookies: str) -> None:
    request = read("/a", f"Cookie: {cookies}")

    assert request.head.shown == Shown(cookie="rmdc_c")
    assert b"ookie" not in everything_that_goes_on(request)


def test_of_contradicting_tokens_the_header_counts_and_none_goes_on() -> None:
    other = "rmd_" + "o" * 43

    request = read(f"/a?token={other}&token={other}x&b=c", f"Authorization: Bearer {TOKEN}")

    assert request.head.shown.token == TOKEN
    assert b"rmd_" not in everything_that_goes_on(request)
    two = read("/a", f"Authorization: Bearer {TOKEN}", f"Authorization: Bearer {other}")
    assert two.head.shown.token not in (TOKEN, other)
    assert b"rmd_" not in everything_that_goes_on(two)


@pytest.mark.parametrize("given", ["Basic !!!", "Basic YWJj"])
def test_what_is_no_token_is_not_taken_for_one(given: str) -> None:
    assert read("/a", f"Authorization: {given}").head.shown.token in ("!!!", "")


def test_nothing_that_a_client_claims_to_be_goes_on() -> None:
    claims = (
        "X-Forwarded-For: 1.2.3.4",
        "x-forwarded-proto: https",
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Whatever: a",
        "Forwarded: for=1.2.3.4",
        "X-Remuda-Account: rich",
        "x-remuda-scopes: admin",
        "Proxy-Authorization: Basic abc",
    )

    request = read("/a", *claims, "X-Mine: stays")

    assert request.head.onward == b"GET /a HTTP/1.1\r\nHost: a\r\nX-Mine: stays\r\n\r\n"
    assert onward(request, Forward(Address("a", 1), headers=[("X-Remuda-Account", "ranch")])) == (
        b"GET /a HTTP/1.1\r\nHost: a\r\nX-Mine: stays\r\nX-Remuda-Account: ranch\r\n\r\n"
    )


def test_a_page_that_was_opened_with_a_token_does_not_spread_it() -> None:
    request = read("/a", f"Referer: http://herd:4444/sessions?a=b&token={TOKEN}")

    assert TOKEN.encode() not in everything_that_goes_on(request)
    assert b"Referer: http://b/?a" in everything_that_goes_on(read("/a", "Referer: http://b/?a"))
