"""Which path goes where."""

import pytest

from remuda.base.errors import SessionLost, UnknownCommand, UnknownMethod
from remuda.base.ids import SessionId
from remuda.gateway.routes import Kind, Route, find_route, is_webdriver, speaks_cdp
from remuda.storage.model import StorageId

ID = SessionId("2f1c5a34-7d5e-4c41-9b53-0d8f3a1e6c77")
STORAGE = StorageId("9d3f0f36-52c8-4d3e-9a55-6e6fa9e3a001")


@pytest.mark.parametrize(
    ("method", "target", "route"),
    [
        ("POST", "/session", Route(Kind.MANAGER)),
        ("POST", "/session?a=b", Route(Kind.MANAGER)),
        ("POST", "/wd/hub/session", Route(Kind.MANAGER, target="/session")),
        ("DELETE", f"/session/{ID}", Route(Kind.NODE, ID)),
        ("GET", f"/session/{ID}/url", Route(Kind.NODE, ID)),
        ("GET", f"/session/{ID}?a", Route(Kind.NODE, ID)),
        ("GET", f"/session/{ID}/se/bidi", Route(Kind.NODE, ID)),
        ("POST", f"/wd/hub/session/{ID}/url?a=b", Route(Kind.NODE, ID, f"/session/{ID}/url?a=b")),
        ("POST", f"/session/{ID}/{'long/' * 100}", Route(Kind.NODE, ID)),
        ("GET", f"/storage/{STORAGE}/{ID}/a.log", Route(Kind.STORAGE, storage=STORAGE)),
        ("DELETE", f"/storage/{STORAGE}/{ID}/?a", Route(Kind.STORAGE, storage=STORAGE)),
        *(
            (method, f"/{what}/{ID}{rest}", Route(Kind.NODE, ID, f"/session/{ID}/aerokube/{what}{rest}"))
            for method, what, rest in (
                ("GET", "download", "/hay%20bale.bin"),
                ("DELETE", "download", "/hay.bin?a=b"),
                ("GET", "devtools", ""),
                ("GET", "devtools", "/page/4C0F"),
                ("POST", "clipboard", "?a"),
            )
        ),
        *(
            ("GET", path, Route(Kind.PLAYWRIGHT))
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
            ("GET", path, Route(Kind.CDP))
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
            ("GET", path, Route(Kind.API))
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
                "/healthz",
                "/graphql",
                "/se/grid/newsessionqueue",
                "/sessions",
                "/session.js",
                "/assets/session/x",
            )
        ),
    ],
)
def test_a_path_has_its_server(method: str, target: str, route: Route) -> None:
    assert find_route(method, target) == route


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
        find_route("GET", target)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD"])
@pytest.mark.parametrize("target", ["/session", "/wd/hub/session", "/session?a"])
def test_sessions_are_only_created_by_post(method: str, target: str) -> None:
    with pytest.raises(UnknownMethod):
        find_route(method, target)


@pytest.mark.parametrize("target", ["/session", "/session?a", "/wd/hub/session"])
def test_a_websocket_without_a_session_asks_for_one_over_bidi(target: str) -> None:
    assert find_route("GET", target, is_upgrade=True) == Route(Kind.BIDI)


@pytest.mark.parametrize("target", ["/", "/?browser=firefox"])
def test_a_websocket_at_the_root_is_playwrights(target: str) -> None:
    assert find_route("GET", target, is_upgrade=True) == Route(Kind.PLAYWRIGHT)
    assert find_route("GET", target) == Route(Kind.API)


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
    assert find_route("GET", "/", is_upgrade=True, is_cdp=True) == Route(Kind.CDP)
    assert find_route("GET", "/", is_cdp=True) == Route(Kind.API)
    assert find_route("GET", "/playwright", is_upgrade=True, is_cdp=True) == Route(Kind.PLAYWRIGHT)


@pytest.mark.parametrize("target", ["/api/live", "/playwrights", "/chromium?a=b", "/wd/hub/status"])
def test_a_websocket_where_nobody_takes_one_hears_where_they_are(target: str) -> None:
    with pytest.raises(UnknownCommand, match="/playwright/<browser>") as caught:
        find_route("GET", target, is_upgrade=True)

    assert f"at {target.partition('?')[0]}:" in caught.value.message
    assert find_route("GET", target) == Route(Kind.API)


def test_a_websocket_of_a_session_is_its_nodes() -> None:
    assert find_route("GET", f"/session/{ID}/se/cdp", is_upgrade=True) == Route(Kind.NODE, ID)


def test_webdriver_paths_are_known() -> None:
    assert all(is_webdriver(path) for path in ("/session", f"/session/{ID}/url", "/wd/hub/status"))
    assert not any(is_webdriver(path) for path in ("/", "/sessions", "/api/session", "/wd/hubs"))
