"""Where a request comes from, as the front door sees it and as it is passed on."""

import pytest

from remuda.fleet.origin import DEFAULT_ACCOUNT, Origin

CLIENT = "192.0.2.7"


def at_door(**headers: str) -> Origin:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Origin.of_client(given.get, address=CLIENT)


def from_proxy(**headers: str) -> Origin:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Origin.of_client(given.get, address=CLIENT, is_proxy=True)


def test_a_client_sees_the_herd_where_it_asks_for_it() -> None:
    origin = at_door(host="herd:4444")

    assert (origin.url, origin.websocket_url) == ("http://herd:4444", "ws://herd:4444")
    assert (origin.account, origin.address) == (DEFAULT_ACCOUNT, CLIENT)


def test_a_trusted_proxy_before_the_door_tells_what_the_client_sees() -> None:
    told = {"x_forwarded_proto": "https", "x_forwarded_host": "herd.example"}

    origin = from_proxy(host="10.0.0.1:4444", **told)

    assert (origin.url, origin.websocket_url) == ("https://herd.example", "wss://herd.example")
    assert at_door(host="10.0.0.1:4444", **told).url == "http://10.0.0.1:4444"


def test_of_several_proxies_the_first_counts() -> None:
    told = {"x_forwarded_proto": "HTTPS, http", "x_forwarded_host": "a.example, b"}

    origin = from_proxy(host="b", **told)

    assert origin.url == "https://a.example"


def test_no_header_of_a_client_changes_the_address() -> None:
    assert at_door(host="a", x_forwarded_for="10.1.1.1").address == CLIENT


def test_no_client_chooses_its_account() -> None:
    assert at_door(host="a", x_remuda_account="rich").account == DEFAULT_ACCOUNT


@pytest.mark.parametrize("host", ["", "a b", "a/b", 'a"', "a\r\nb", "a:port", "[::1", "a" * 300, "user@a"])
def test_what_cannot_be_a_host_is_not_repeated(host: str) -> None:
    assert at_door(host=host).host == "127.0.0.1"
    assert from_proxy(host="here:1", x_forwarded_host=host).host == "here:1"


@pytest.mark.parametrize("host", ["a", "a.b-c_d:65535", "127.0.0.1:1", "[::1]:4444", "[2001:db8::1]"])
def test_every_host_is_repeated_as_it_is(host: str) -> None:
    assert at_door(host=host).host == host


def test_the_next_process_reads_what_the_door_has_made() -> None:
    origin = Origin(account="ranch", address=CLIENT, scheme="https", host="herd.example")
    passed_on = {name.lower(): value for name, value in origin.headers()}

    assert Origin.read(passed_on.get, address="127.0.0.1") == origin
