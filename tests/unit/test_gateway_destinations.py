"""Which path goes where."""

import re

import pytest

from remuda.base.errors import SessionLost, UnknownMethod
from remuda.base.ids import SessionId
from remuda.gateway import destinations
from remuda.gateway.destinations import (
    EXAMPLES,
    Backend,
    Destination,
    find_destination,
    is_for_any_page,
    speaks_cdp,
)
from remuda.storage.model import StorageId

ID = SessionId("2f1c5a34-7d5e-4c41-9b53-0d8f3a1e6c77")
STORAGE = StorageId("9d3f0f36-52c8-4d3e-9a55-6e6fa9e3a001")


@pytest.mark.parametrize(
    ("method", "target", "destination"),
    [
        ("POST", "/session", Destination(Backend.MANAGER)),
        ("POST", "/session?a=b", Destination(Backend.MANAGER)),
        ("POST", "/wd/hub/session", Destination(Backend.MANAGER, target="/session")),
        ("POST", "//session?a=b", Destination(Backend.MANAGER, target="/session?a=b")),
        ("POST", "/wd/hub//session", Destination(Backend.MANAGER, target="/session")),
        ("GET", f"//session/{ID}/url", Destination(Backend.NODE, ID, f"/session/{ID}/url")),
        ("GET", f"/wd/hub//session/{ID}/url", Destination(Backend.NODE, ID, f"/session/{ID}/url")),
        ("GET", "/healthz", Destination(Backend.PROBES, scope=None)),
        ("GET", "/readyz?a=b", Destination(Backend.PROBES, scope=None)),
        ("DELETE", f"/session/{ID}", Destination(Backend.NODE, ID)),
        ("GET", f"/session/{ID}/url", Destination(Backend.NODE, ID)),
        ("GET", f"/session/{ID}?a", Destination(Backend.NODE, ID)),
        ("GET", f"/session/{ID}/se/bidi", Destination(Backend.NODE, ID)),
        (
            "POST",
            f"/wd/hub/session/{ID}/url?a=b",
            Destination(Backend.NODE, ID, f"/session/{ID}/url?a=b"),
        ),
        ("POST", f"/session/{ID}/{'long/' * 100}", Destination(Backend.NODE, ID)),
        ("GET", f"/storage/{STORAGE}/{ID}/a.log", Destination(Backend.STORAGE, storage=STORAGE)),
        ("DELETE", f"/storage/{STORAGE}/{ID}/?a", Destination(Backend.STORAGE, storage=STORAGE)),
        (
            "GET",
            f"/shared/1.eA.0/{STORAGE}/{ID}/a.log",
            Destination(Backend.STORAGE, storage=STORAGE, scope=None),
        ),
        *(
            (
                method,
                f"/{what}/{ID}{rest}",
                Destination(Backend.NODE, ID, f"/session/{ID}/aerokube/{what}{rest}"),
            )
            for method, what, rest in (
                ("GET", "download", "/hay%20bale.bin"),
                ("DELETE", "download", "/hay.bin?a=b"),
                ("GET", "devtools", ""),
                ("GET", "devtools", "/page/4C0F"),
                ("POST", "clipboard", "?a"),
            )
        ),
        *(
            ("GET", path, Destination(Backend.PLAYWRIGHT))
            for path in (
                "/playwright",
                "/playwright/",
                "/playwright?browser=firefox",
                "/playwright/firefox",
                "/playwright/firefox/json",
                "/json",
                "/json/",
                "/json?a",
            )
        ),
        *(
            ("GET", path, Destination(Backend.CDP))
            for path in (
                *(
                    "/cdp",
                    "/cdp?a",
                    "/cdp/",
                    f"/cdp/{ID}",
                    f"/cdp/{ID}?keep=60s",
                    f"/cdp/{ID}/devtools/page/4C0F",
                ),
                *("/cdp/json/version/", "/cdp/json/version", "/cdp/json", f"/cdp/{ID}/json/list"),
                *("/json/version?a", "/json/list", "/json/new?about:blank", "/json/protocol"),
                *("/json/close/4C0F", "/json/activate/4C0F"),
            )
        ),
        *(
            ("GET", path, Destination(Backend.API, scope=None))
            for path in (
                "/",
                "/playwrights",
                "/jsonx",
                "/json/lists",
                "/json/close",
                "/cdps",
                "/cdp/other",
                f"/cdp/{ID}x",
                f"/cdp/{ID}/other",
                "/storage",
                f"/storage/{STORAGE}",
                f"/storage/{STORAGE.upper()}/{ID}/a.log",
                f"/storage/{STORAGE}x/{ID}/a.log",
                f"/x/storage/{STORAGE}/{ID}/a.log",
                "/status",
                "/ping",
                f"/logs/{ID}",
                f"/download/{ID}x/hay.bin",
                f"/download/{ID.upper()}/hay.bin",
                "/devtools/nonsense",
                "/wd/hub/status",
                "/api/sessions",
                "/metrics",
                "/graphql",
                "/se/grid/newsessionqueue",
                "/sessions",
                "/session.js",
                "/assets/session/x",
            )
        ),
    ],
)
def test_a_path_has_its_server(method: str, target: str, destination: Destination) -> None:
    assert find_destination(method, target) == destination


@pytest.mark.parametrize(
    "target",
    [
        "/session/",
        "/session/nonsense",
        "/session/nonsense/url",
        f"/session/{ID.upper()}",
        f"/session/{ID}x",
        f"/wd/hub/session/{ID[:-1]}/url",
        "/session/..%2f..%2fetc",
    ],
)
def test_an_id_that_is_none_is_a_lost_session(target: str) -> None:
    with pytest.raises(SessionLost):
        find_destination("GET", target)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
@pytest.mark.parametrize("target", ["/session", "/wd/hub/session", "/session?a"])
def test_sessions_are_only_created_by_post(method: str, target: str) -> None:
    with pytest.raises(UnknownMethod):
        find_destination(method, target)


@pytest.mark.parametrize("target", ["/session", "/session?a", "/wd/hub/session"])
def test_a_websocket_without_a_session_asks_for_one_over_bidi(target: str) -> None:
    assert find_destination("GET", target, is_upgrade=True) == Destination(Backend.BIDI)


@pytest.mark.parametrize("target", ["/", "/?browser=firefox"])
def test_a_websocket_at_the_root_is_playwrights(target: str) -> None:
    assert find_destination("GET", target, is_upgrade=True) == Destination(Backend.PLAYWRIGHT)
    assert find_destination("GET", target) == Destination(Backend.API, scope=None)


@pytest.mark.parametrize(
    ("user_agent", "headers", "target", "expected"),
    [
        ("Puppeteer 25.16.0", [], "/", True),
        ("Playwright/1.64.1 (x64; debian 12) node/24.22", ["sec-websocket-key"], "/", True),
        ("Playwright/1.64.1 (x64; debian 12) node/24.22", ["x-playwright-browser"], "/", False),
        ("Playwright/1.64.1 (x64; debian 12) python/3.11", ["x-playwright-proxy"], "/", False),
        ("Playwright/1.64.1 (x64; debian 12) python/3.11", [], "/?browser=firefox", False),
        ("Go-http-client/1.1", [], "/", False),
        ("", [], "/", False),
    ],
)
def test_a_client_at_the_root_is_known_by_what_it_sends(
    user_agent: str, headers: list[str], target: str, expected: bool
) -> None:
    assert speaks_cdp(user_agent, headers, target) is expected


def test_a_client_that_speaks_cdp_needs_no_path() -> None:
    assert find_destination("GET", "/", is_upgrade=True, is_cdp=True) == Destination(Backend.CDP)
    assert find_destination("GET", "/", is_cdp=True) == Destination(Backend.API, scope=None)
    assert find_destination("GET", "/playwright", is_upgrade=True, is_cdp=True) == Destination(
        Backend.PLAYWRIGHT
    )


@pytest.mark.parametrize("target", ["/api/live", "/playwrights", "/chromium?a=b", "/wd/hub/status"])
def test_any_other_websocket_is_the_apis_as_any_other_request_is(target: str) -> None:
    assert (
        find_destination("GET", target, is_upgrade=True)
        == find_destination("GET", target)
        == Destination(Backend.API, scope=None)
    )


def test_a_websocket_of_a_session_is_its_nodes() -> None:
    assert find_destination("GET", f"/session/{ID}/se/cdp", is_upgrade=True) == Destination(Backend.NODE, ID)


def patterns() -> dict[str, re.Pattern[str]]:
    """Every pattern by which a path is told from others."""
    bound = {name: getattr(value, "__self__", None) for name, value in vars(destinations).items()}
    return {name: value for name, value in bound.items() if isinstance(value, re.Pattern)}


@pytest.mark.parametrize("name", patterns())
def test_every_pattern_of_the_front_door_has_an_example(name: str) -> None:
    targets = [each.target.format(session=ID, storage=STORAGE) for each in EXAMPLES]

    assert any(map(patterns()[name].match, targets))


def test_every_kind_of_server_but_those_of_declared_routes_has_an_example() -> None:
    found = {
        find_destination(
            each.method, each.target.format(session=ID, storage=STORAGE), is_upgrade=each.is_upgrade
        ).backend
        for each in EXAMPLES
    }

    assert found == set(Backend) - {Backend.API, Backend.PROBES}


@pytest.mark.parametrize(
    ("target", "without_tokens", "with_tokens"),
    [
        (f"/storage/{STORAGE}/{ID}/a.log", True, False),
        (f"/shared/1.eA.0/{STORAGE}/{ID}/a.log", True, True),
        ("/api/overview", False, False),
    ],
)
def test_where_tokens_are_needed_other_pages_get_what_is_shared(
    target: str, without_tokens: bool, with_tokens: bool
) -> None:
    assert is_for_any_page("GET", target, is_auth_on=False) is without_tokens
    assert is_for_any_page("GET", target, is_auth_on=True) is with_tokens
    assert not is_for_any_page("POST", target, is_auth_on=False)
