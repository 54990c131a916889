"""The dashboard's pages and files: what they are sent with, and what is not sent."""

import re

import pytest

from remuda.fleet.origin import EVERY_SCOPE, Origin, Scope
from remuda.store import Store
from remuda.web.files import DIRECTORY
from web_states import visiting

VENDORED = next(path.name for path in (DIRECTORY / "vendor").glob("*.js"))


@pytest.mark.parametrize("path", ["/", "/api/docs"])
async def test_a_page_may_only_load_what_comes_from_here(store: Store, path: str) -> None:
    async with visiting(store) as client, client.get(path) as response:
        page = await response.text()

        assert response.status == 200
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"https?://", page)
        assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/status", "/nothing"])
async def test_a_browser_that_comes_by_tls_is_to_do_so_again(store: Store, path: str, is_known: bool) -> None:
    asked = {}
    async with visiting(store) as client:
        for scheme in ("http", "https"):
            scopes = EVERY_SCOPE if is_known else frozenset[Scope]()
            origin = Origin(address="10.0.0.7", scheme=scheme, host="herd.example", scopes=scopes)
            headers = {**dict(origin.headers()), "Accept": "text/html"}
            async with client.get(path, headers=headers) as response:
                asked[scheme] = response.headers.get("Strict-Transport-Security")

    assert asked == {"http": None, "https": "max-age=31536000"}


@pytest.mark.parametrize("path", ["/", "/ui", "/api/docs"])
async def test_everything_a_page_names_is_there(store: Store, path: str) -> None:
    async with visiting(store) as client:
        async with client.get(path) as response:
            names = re.findall(r'(?:src|href)="(/[^"]+)"', await response.text())

        for name in names:
            async with client.get(name) as response:
                assert response.status == 200, name


async def test_every_module_imports_what_is_there(store: Store) -> None:
    async with visiting(store) as client:
        for script in DIRECTORY.glob("*.js"):
            for name in re.findall(r'from "([^"]+)"', script.read_text()):
                async with client.get(name) as response:
                    assert response.status == 200, (script.name, name)
                    assert response.headers["Content-Type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize(
    ("name", "kept"),
    [("app.js", "no-cache"), (f"vendor/{VENDORED}", "public, max-age=31536000, immutable")],
)
async def test_a_file_is_sent_once(store: Store, name: str, kept: str) -> None:
    async with visiting(store) as client:
        async with client.get(f"/static/{name}") as first:
            tag = first.headers["ETag"]
        async with client.get(f"/static/{name}", headers={"If-None-Match": tag}) as second:
            body = await second.read()

        assert first.headers["Cache-Control"] == kept
        assert (second.status, body) == (304, b"")


@pytest.mark.parametrize(
    "name",
    ["", "nothing.js", "../api.py", "..%2fapi.py", "%2e%2e/api.py", "/etc/passwd", "vendor", "app.js%00"],
)
async def test_a_file_that_is_not_among_them_is_not_found(store: Store, name: str) -> None:
    async with visiting(store) as client, client.get(f"/static/{name}") as response:
        assert response.status == 404


async def test_the_vendored_library_comes_with_its_licences() -> None:
    names = {path.name for path in (DIRECTORY / "vendor").iterdir()}

    assert {"LICENSE.htm", "LICENSE.preact", "README.md"} <= names
