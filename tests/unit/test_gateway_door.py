"""The door: who gets a request, and with which heads."""

from collections.abc import Awaitable

import pytest

from remuda.base.errors import Forbidden, InvalidArgument, SessionLost
from remuda.base.ids import SessionId
from remuda.fleet.origin import Origin
from remuda.fleet.relay import Address, Forward, Request
from remuda.fleet.relay.head import read_head
from remuda.gateway.directory import Viewer
from remuda.gateway.door import Door
from remuda.gateway.journal import MAX_NOTES
from remuda.gateway.proxies import TrustedProxies
from remuda.storage.model import StorageId

ID = "2f1c5a34-7d5e-4c41-9b53-0d8f3a1e6c77"
STORAGE_ID = "9d3f0f36-52c8-4d3e-9a55-6e6fa9e3a001"
MANAGER, NODE, API, STORAGE = (Address("127.0.0.1", port) for port in (1, 2, 3, 4))


class Places:
    """A directory that finds the node only when awaited."""

    def __init__(self) -> None:
        self.forgotten: list[Address] = []

    def find_manager(self) -> Address:
        return MANAGER

    def find_node(self, session: SessionId, viewer: Viewer) -> Address | Awaitable[Address]:
        return self._look_up(session) if self.forgotten else NODE

    async def _look_up(self, session: SessionId) -> Address:
        raise SessionLost

    def is_known(self, session: SessionId, viewer: Viewer) -> bool:
        return viewer.sees("ranch")

    def find_api(self) -> Address:
        return API

    def find_storage(self, storage: StorageId) -> Address:
        assert storage == STORAGE_ID
        return STORAGE

    def forget(self, address: Address, *, may_run: bool) -> None:
        self.forgotten.append(address)


def request(line: str, *headers: str) -> Request:
    lines = "".join(f"{header}\r\n" for header in headers)
    head = read_head(f"{line} HTTP/1.1\r\nHost: localhost:4444\r\n{lines}\r\n".encode())
    return Request(head, head.method, head.target, "10.0.0.9")


def passed_on(planned: object) -> Origin:
    """The origin that whoever serves the request is told."""
    assert isinstance(planned, Forward)
    return Origin.read({name.lower(): value for name, value in planned.headers}.get, address="")


def test_a_command_goes_to_its_node_as_it_came() -> None:
    assert Door(Places()).route(request(f"GET /session/{ID}/url")) == Forward(NODE)


def test_the_prefix_of_old_clients_is_taken_off() -> None:
    planned = Door(Places()).route(request(f"GET /wd/hub/session/{ID}/url"))

    assert planned == Forward(NODE, f"/session/{ID}/url")


@pytest.mark.parametrize(("line", "address"), [("POST /session", MANAGER), ("GET /", API)])
def test_manager_and_api_learn_who_asked(line: str, address: Address) -> None:
    planned = Door(Places()).route(request(line))

    assert isinstance(planned, Forward)
    assert planned.address == address
    assert dict(planned.headers) == {
        "X-Forwarded-For": "10.0.0.9",
        "X-Forwarded-Host": "localhost:4444",
        "X-Forwarded-Proto": "http",
        "X-Remuda-Account": "default",
        "X-Remuda-Login": "",
        "X-Remuda-Scopes": "admin archive usage use",
        "X-Remuda-Token": "",
        "X-Remuda-Token-Id": "",
        "X-Remuda-Until": "0",
    }


@pytest.mark.parametrize("line", ["POST /session", "GET /"])
def test_behind_a_trusted_proxy_manager_and_api_learn_what_the_client_sees(line: str) -> None:
    told = ("X-Forwarded-Proto: https", "X-Forwarded-Host: herd.example", "X-Forwarded-For: 203.0.113.7")
    door = Door(Places(), proxies=TrustedProxies("10.0.0.0/24"))

    origin = passed_on(door.route(request(line, *told)))

    assert (origin.url, origin.address) == ("https://herd.example", "203.0.113.7")


@pytest.mark.parametrize("trusted", ["", "10.0.1.0/24"])
def test_what_any_other_client_says_of_whence_it_comes_is_dropped(trusted: str) -> None:
    told = ("X-Forwarded-Proto: https", "X-Forwarded-Host: evil.example", "X-Forwarded-For: 203.0.113.7")
    door = Door(Places(), proxies=TrustedProxies(trusted))

    origin = passed_on(door.route(request("POST /session", *told)))

    assert (origin.url, origin.address) == ("http://localhost:4444", "10.0.0.9")


def test_the_same_head_means_something_else_if_a_trusted_proxy_sends_it() -> None:
    door = Door(Places(), proxies=TrustedProxies("10.0.0.0/24"))
    asked = request("POST /session", "X-Forwarded-Host: herd.example")
    urls = []

    for client in ("10.0.0.9", "10.0.1.9", "10.0.0.9"):
        asked.client = client
        urls.append(passed_on(door.route(asked)).url)

    assert urls == ["http://herd.example", "http://localhost:4444", "http://herd.example"]


def test_a_page_may_come_in_under_the_name_that_a_trusted_proxy_has() -> None:
    page = ("Origin: https://herd.example", "X-Forwarded-Proto: https", "X-Forwarded-Host: herd.example")

    door = Door(Places(), proxies=TrustedProxies("10.0.0.0/24"))

    assert isinstance(door.route(request("POST /session", *page)), Forward)
    with pytest.raises(Forbidden):
        Door(Places()).route(request("POST /session", *page))


def test_under_tls_all_learn_that_the_client_speaks_https() -> None:
    door = Door(Places(), scheme="https")

    assert passed_on(door.route(request("POST /session"))).websocket_url == "wss://localhost:4444"


def test_a_node_that_hands_out_urls_learns_what_the_client_sees() -> None:
    door = Door(Places(), scheme="https")

    origin = passed_on(door.route(request(f"GET /wd/hub/session/{ID}/se/cdp/json/version")))

    assert origin.url == "https://localhost:4444"


async def test_an_address_that_refused_is_forgotten_and_looked_up_again() -> None:
    places = Places()
    asked = request(f"GET /session/{ID}/url")
    asked.refused = NODE

    planned = Door(places).route(asked)

    assert places.forgotten == [NODE]
    assert isinstance(planned, Awaitable)
    with pytest.raises(SessionLost):
        await planned


def test_a_foreign_page_is_turned_away() -> None:
    with pytest.raises(Forbidden):
        Door(Places()).route(request("POST /session", "Origin: http://evil.example"))


@pytest.mark.parametrize("line", ["POST /session", f"POST /wd/hub/session/{ID}/url", "POST /graphql"])
def test_a_forms_content_types_are_refused(line: str) -> None:
    with pytest.raises(InvalidArgument):
        Door(Places()).route(request(line, "Content-Type: text/plain"))


@pytest.mark.parametrize("path", [f"/clipboard/{ID}", f"/session/{ID}/aerokube/clipboard"])
def test_text_for_the_clipboard_may_have_any_type(path: str) -> None:
    planned = Door(Places()).route(request(f"POST {path}", "Content-Type: application/x-www-form-urlencoded"))

    assert isinstance(planned, Forward)


def test_a_link_elsewhere_may_lead_to_the_dashboard_only() -> None:
    link = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")

    assert isinstance(Door(Places()).route(request("GET /", *link)), Forward)
    with pytest.raises(Forbidden):
        Door(Places()).route(request(f"GET /session/{ID}/url", *link))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_any_page_may_play_an_artifact(method: str) -> None:
    line = f"{method} /storage/{STORAGE_ID}/{ID}/video.m3u8"

    planned = Door(Places()).route(request(line, "Origin: http://player.example"))

    assert isinstance(planned, Forward)
    assert planned.address == STORAGE


def test_a_foreign_page_may_not_change_an_artifact() -> None:
    line = f"DELETE /storage/{STORAGE_ID}/{ID}/video.m3u8"

    with pytest.raises(Forbidden):
        Door(Places()).route(request(line, "Origin: http://evil.example"))


async def test_a_node_that_refused_is_noted_in_its_sessions_log() -> None:
    door = Door(Places())
    for target in (f"/session/{ID}/url", f"/wd/hub/session/{ID}/url", "/status"):
        asked = request(f"GET {target}")
        asked.refused = NODE
        planned = door.route(asked)
        if isinstance(planned, Awaitable):
            with pytest.raises(SessionLost):
                await planned

    assert door.journal.take() == {(ID, "NLOST"): 2}


def test_a_client_that_left_is_noted_in_its_sessions_log() -> None:
    door = Door(Places())
    for target, status in ((f"/session/{ID}/url", 499), (f"/session/{ID}", 200), ("/session", 499)):
        door.counters.request_finished(request(f"POST {target}"), status, 1, 1)

    assert door.journal.take() == {(ID, "CLOST"): 1}


def test_only_so_many_notes_are_kept() -> None:
    door = Door(Places())
    for number in range(MAX_NOTES + 10):
        asked = request(f"GET /session/2f1c5a34-7d5e-4c41-9b53-{number:012x}/url")
        door.counters.request_finished(asked, 499, 1, 1)

    assert len(door.journal.take()) == MAX_NOTES
