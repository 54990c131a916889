"""Stock clients with tokens, over HTTP and over TLS; and that no token is to be found anywhere afterwards."""

import asyncio
import json
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from urllib.parse import urlsplit

import aiohttp
import pytest
from playwright._impl._driver import compute_driver_executable
from playwright.async_api import Error, async_playwright
from selenium import webdriver
from selenium.webdriver.remote.client_config import ClientConfig

from clients import options_for
from herds import DEADLINE, REMUDA, Herd, new_herd
from installed import LIGHTEST
from programs import NODE, output_of
from remuda.base.ids import new_id

pytestmark = pytest.mark.xdist_group("access clients")

ACCOUNT = "web-team"
OTHER = "other-team"
PATIENCE_MS = DEADLINE * 1000


@dataclass(frozen=True)
class Shared:
    """A herd that needs tokens, one for each of two accounts, and what clients need to trust it."""

    herd: Herd
    token: str
    foreign: str
    trust: Mapping[str, str]
    """Variables by which clients know the certificate."""

    @property
    def address(self) -> str:
        return urlsplit(self.herd.url).netloc

    @property
    def is_tls(self) -> bool:
        return self.herd.url.startswith("https")

    @property
    def tls(self) -> ssl.SSLContext | bool:
        return ssl.create_default_context(cafile=self.trust["SSL_CERT_FILE"]) if self.is_tls else True

    def url(self, *, token: str = "", scheme: str = "http") -> str:
        """The front door with a token as the password; `ws` has it in the query."""
        secure = "s" if self.is_tls else ""
        if scheme == "ws":
            return f"ws{secure}://{self.address}/?token={token or self.token}"
        return f"http{secure}://anna:{token or self.token}@{self.address}"

    def run(self, *words: str) -> str:
        """What a command prints, on the machine of the herd: it needs no token there."""
        where = ["--server", self.herd.url, "--data", str(self.herd.data)]
        return _run([*words, *where], self.trust)


def _run(words: list[str], environ: Mapping[str, str]) -> str:
    ended = subprocess.run(
        [*REMUDA, *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module", params=["http", "tls"])
def shared(request: pytest.FixtureRequest, certificates: Path) -> Iterator[Shared]:
    """A herd over HTTP, then one over TLS. When the tests are through, none of the tokens is found in it."""
    args, trust = ["--auth", "on", "--slots", "2"], {}
    if request.param == "tls":
        cert, key = str(certificates / "cert.pem"), str(certificates / "key.pem")
        args += ["--tls-cert", cert, "--tls-key", key]
        trust = {"SSL_CERT_FILE": cert, "REQUESTS_CA_BUNDLE": cert, "NODE_EXTRA_CA_CERTS": cert}
    with ExitStack() as stack:
        traces, url = stack.enter_context(_collector())
        environment = {
            "REMUDA_PLAYWRIGHT_WAIT": "120",
            "REMUDA_LOG_LEVEL": "debug",
            "REMUDA_OTLP_ENDPOINT": url,
        }
        herd = stack.enter_context(new_herd(*args, environ=environment))
        made = Shared(herd, "", "", trust)
        tokens = [made.run("token", "create", "ci", "--account", each).strip() for each in (ACCOUNT, OTHER)]
        with pytest.MonkeyPatch.context() as environ:
            for name, value in trust.items():
                environ.setenv(name, value)
            shared = Shared(herd, tokens[0], tokens[1], trust)
            yield shared
            # Whichever tests were run: there is one session to be traced.
            drive(shared).quit()
        assert traces.tell_of(b"create session"), herd.log()
        assert _find(herd, tokens, b"".join(traces.taken)) == []


class Traces:
    """What a herd has sent as traces."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self._changed = Condition()

    def take(self, body: bytes) -> None:
        with self._changed:
            self.taken.append(body)
            self._changed.notify_all()

    def tell_of(self, name: bytes) -> bool:
        """Whether they do, now or before the deadline: they come every few seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: any(name in each for each in self.taken), DEADLINE)


@contextmanager
def _collector() -> Iterator[tuple[Traces, str]]:
    """What the herd sends as traces, and where to."""
    traces = Traces()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            traces.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield traces, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _find(herd: Herd, tokens: list[str], traces: bytes) -> list[str]:
    """Where one of the tokens is: in the traces, the log, what Redis has written, or any file of the herd."""
    # Everything that Redis was ever told is in its append-only file, also what it has deleted since.
    files = [each for each in herd.data.parent.rglob("*") if each.is_file() and each.name != "admin.token"]
    assert any(each.suffix == ".aof" for each in files)
    secrets = [*tokens, (herd.data / "admin.token").read_text().strip()]
    contents = [("traces", traces), *((each.name, each.read_bytes()) for each in files)]
    return [
        f"{name}: {before[-200:]!r}"
        for name, content in contents
        for secret in secrets
        for before, found, _ in [content.partition(secret.encode())]
        if found
    ]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def drive(shared: Shared, token: str = "") -> webdriver.Remote:
    config = ClientConfig(remote_server_addr=shared.url(token=token), timeout=int(DEADLINE))
    return webdriver.Remote(
        command_executor=shared.url(token=token), options=options_for(), client_config=config
    )


def test_the_first_start_prints_an_admin_token_once_and_keeps_it(shared: Shared) -> None:
    kept = shared.herd.data / "admin.token"

    printed = [line for line in shared.herd.lines if kept.read_text().strip() in line]

    assert len(printed) == 1
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_a_selenium_client_uses_its_token_and_the_websocket_it_is_told(shared: Shared) -> None:
    driver = await asyncio.to_thread(drive, shared)
    try:
        await asyncio.to_thread(driver.get, "data:text/html,<title>mine</title>")
        title = await asyncio.to_thread(lambda: driver.title)
        url = driver.capabilities["se:cdp"]
        async with aiohttp.ClientSession() as web, web.ws_connect(url, ssl=shared.tls) as socket:
            await socket.send_json({"id": 1, "method": "Browser.getVersion"})
            answer = await socket.receive_json(timeout=DEADLINE)
    finally:
        await asyncio.to_thread(driver.quit)

    assert title == "mine"
    assert "product" in answer["result"]
    assert url.startswith("wss://" if shared.is_tls else "ws://")
    assert shared.token not in json.dumps(driver.capabilities)


async def test_another_account_finds_no_such_session(shared: Shared) -> None:
    driver = await asyncio.to_thread(drive, shared)
    try:
        async with aiohttp.ClientSession(shared.herd.url, headers=bearer(shared.foreign)) as stranger:
            answers = []
            for session in (str(driver.session_id), new_id()):
                async with stranger.get(f"/session/{session}/title", ssl=shared.tls) as response:
                    answers.append((response.status, (await response.text()).replace(session, "")))
    finally:
        await asyncio.to_thread(driver.quit)

    assert answers[0] == answers[1]
    assert answers[0][0] == 404


@pytest.mark.parametrize("client", ["selenium.mjs", "title.mjs"])
def test_node_clients_use_a_token(shared: Shared, client: str) -> None:
    node, _ = compute_driver_executable()
    args = [LIGHTEST, shared.url()] if client == "selenium.mjs" else ["chromium", shared.url(scheme="ws")]

    assert output_of([node, NODE / client, *args], **shared.trust) == "Hello from Node\n"


async def test_playwright_clients_use_a_token(shared: Shared) -> None:
    plain = shared.url(scheme="ws").partition("?")[0]
    async with async_playwright() as playwright:
        by_query = await playwright.chromium.connect(shared.url(scheme="ws"), timeout=PATIENCE_MS)
        page = await by_query.new_page()
        await page.goto("data:text/html,<title>mine</title>")
        title = await page.title()
        await by_query.close()
        by_header = await playwright.chromium.connect(
            plain, headers=bearer(shared.token), timeout=PATIENCE_MS
        )
        version = by_header.version
        await by_header.close()
        over_cdp = await playwright.chromium.connect_over_cdp(shared.url(scheme="ws"), timeout=PATIENCE_MS)
        contexts = len(over_cdp.contexts)
        await over_cdp.close()

    assert title == "mine"
    assert version
    assert contexts == 1


async def test_a_playwright_client_without_a_token_reads_what_it_lacks(shared: Shared) -> None:
    async with async_playwright() as playwright:
        with pytest.raises(Error, match="A token is needed"):
            await playwright.chromium.connect(shared.url(scheme="ws").partition("?")[0], timeout=PATIENCE_MS)


def test_puppeteer_uses_a_token(shared: Shared) -> None:
    node, _ = compute_driver_executable()

    printed = output_of([node, NODE / "puppeteer.mjs", "endpoint", shared.url(scheme="ws")], **shared.trust)

    assert printed == "Hello from Puppeteer\n"


def test_the_command_line_works_elsewhere_with_server_and_token(shared: Shared) -> None:
    environ = {**shared.trust, "REMUDA_SERVER": shared.herd.url, "REMUDA_TOKEN": shared.token}

    assert "slots" in _run(["status"], environ).lower()
