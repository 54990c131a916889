"""Which challenge a 401 has."""

import pytest

from remuda.base.errors import Unauthorized
from remuda.fleet.challenge import challenge_for

BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"user-agent": "selenium/4.27.0 (java linux)", "accept": "application/json; charset=utf-8"},
        {"user-agent": "Wget/1.21.3", "accept": "*/*"},
    ],
)
def test_a_program_is_offered_basic_first(headers: dict[str, str]) -> None:
    # Java's HttpClient, and so Selenium's, reads no challenge but the first, and answers to Basic only.
    assert challenge_for(headers.get) == 'Basic realm="remuda", Bearer realm="remuda"'


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"user-agent": BROWSER, "accept": "*/*"}, id="a fetch by plain HTTP"),
        pytest.param({"user-agent": BROWSER, "accept": "image/webp,*/*"}, id="a picture by plain HTTP"),
        pytest.param({"user-agent": BROWSER, "accept": "text/event-stream"}, id="a stream by plain HTTP"),
        pytest.param({"user-agent": "kiosk", "sec-fetch-mode": "cors"}, id="a fetch to loopback or by TLS"),
        pytest.param({"user-agent": "kiosk", "origin": "http://herd.example"}, id="a form by plain HTTP"),
        pytest.param({"user-agent": "kiosk", "accept": "text/html,*/*"}, id="a person"),
    ],
)
def test_a_browser_is_not_offered_basic_whatever_makes_it_ask(headers: dict[str, str]) -> None:
    assert challenge_for(headers.get) == 'Bearer realm="remuda"'


def test_where_it_is_not_known_what_asks_basic_is_not_offered() -> None:
    assert Unauthorized().headers()["WWW-Authenticate"] == 'Bearer realm="remuda"'
