"""A real browser on the dashboard of a herd that asks for tokens: login, one's own sessions, and accounts."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from clients import options_for
from herds import Herd, new_herd
from pages import DEADLINE, Page, viewing_browser
from remuda.accounts.first import FILE
from remuda.fleet.relay.head import LOGIN_COOKIE
from remuda.fleet.uses import Uses
from remuda.store import Store
from screens import desktop, needs_xvfb
from videos import needs_ffmpeg
from waiting import eventually
from web_states import SessionWriter

WRONG = "This token is not valid: it is wrong, or it was revoked."
OUTSIDE = "Log in to Remuda"
BY_NAME = "http://herd.example"
"""Where the herd is for a browser that gets there by plain HTTP and a name. Only to loopback and by TLS do
browsers say what kind of request they make (Sec-Fetch-*)."""
# None of these is answered before a dialog that the browser opens for it is closed.
ASK_EVERYWHERE = """
    const done = arguments[arguments.length - 1]
    const fetched = ["/api/whoami", "/api/nowhere", "/json/version", "/session/x", "/storage/x/y/z"].map(
        async (path) => (await fetch(path)).status)
    const posted = ["/session", "/graphql"].map(async (path) => (await fetch(path, {
        method: "POST", body: "{}", headers: {"Content-Type": "application/json"},
    })).status)
    const shown = ["/storage/x/y/a.png", "/api/openapi.json"].map((src) => new Promise((gone) =>
        Object.assign(new Image(), {src, onerror: () => gone(401)})))
    const watched = new Promise((gone) => new EventSource("/api/live").onerror = () => gone(401))
    const talked = new Promise((gone) =>
        new WebSocket("ws://" + location.host + "/session").onerror = () => gone(401))
    Promise.all([...fetched, ...posted, ...shown, watched, talked]).then(done)
"""
OPEN_ACCOUNTS = "for (const each of document.querySelectorAll('.account')) each.open = true"

pytestmark = pytest.mark.xdist_group("dashboard access")


@pytest.fixture(scope="module")
def herd() -> Iterator[Herd]:
    """A herd that asks for tokens, with an account that has limits."""
    with new_herd("--auth", "on", "--slots", "1", environ={"REMUDA_ALLOW_ORIGINS": BY_NAME}) as herd:
        ask(herd, "PATCH", "/api/accounts/web-team", {"sessions": 10, "rate": 60})
        yield herd


@pytest.fixture
async def store(herd: Herd) -> AsyncIterator[Store]:
    """The herd's own Redis."""
    async with Store(herd.redis_url) as store:
        yield store


def admin_token(herd: Herd) -> str:
    return (herd.data / FILE).read_text().strip()


def ask(herd: Herd, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
    """Status and JSON of the answer to a program with this token, or to an operator's."""
    headers = {"Authorization": f"Bearer {token or admin_token(herd)}", "Content-Type": "application/json"}
    status, answer, _ = herd.request(method, path, None if body is None else json.dumps(body), **headers)
    return status, answer


def new_token(herd: Herd, name: str, *, account: str = "web-team", scopes: Sequence[str] = ()) -> str:
    wanted = {"name": name, "account": account, "scopes": scopes}
    status, answer = ask(herd, "POST", "/api/tokens", wanted)
    assert status == 200, answer
    return str(answer["token"])


async def log_in(page: Page, token: str) -> None:
    """Types the token where the keyboard is when the page opens."""
    await page.sees(OUTSIDE)
    await eventually(lambda: page.run("return document.activeElement.id === 'token'"), DEADLINE)
    await page.presses(token, Keys.ENTER)


async def test_a_wrong_token_is_refused_and_a_right_one_leads_to_the_page_that_was_asked_for(
    herd: Herd, page: Page
) -> None:
    await page.open(f"{herd.url}/?from=mail#access")
    await log_in(page, "rmd_" + "x" * 43)
    await page.sees(WRONG, at="#problem")
    assert await page.cookies() == []

    # The wrong token is marked, so that typing replaces it.
    await log_in(page, admin_token(herd))

    await page.sees("web-team", at="#accounts")
    await page.sees("default / admin", at=".person")
    assert (await page.run("return location.href")).endswith("/?from=mail#access")
    [cookie] = await page.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (LOGIN_COOKIE, True, "Strict")
    assert await page.run("return document.cookie") == ""


@pytest.fixture
def window(herd: Herd, tmp_path: Path) -> Iterator[Page]:
    """A page in a browser with a window: only such a browser opens dialogs of its own."""
    resolving = f"--host-resolver-rules=MAP herd.example {herd.url.removeprefix('http://')}"
    with desktop() as display, viewing_browser(tmp_path, resolving, display=display) as browser:
        yield Page(browser)


@needs_xvfb
async def test_a_browser_never_opens_a_dialog_of_its_own_to_ask_for_a_token(herd: Herd, window: Page) -> None:
    for url in (herd.url, BY_NAME):
        await window.open(url)
        await log_in(window, "rmd_" + "x" * 43)
        await window.sees(WRONG, at="#problem")
        assert set(await window.wait_for(ASK_EVERYWHERE)) == {401}

        await log_in(window, new_token(herd, "passing"))
        await window.sees("live", at=".connection")
        assert ask(herd, "DELETE", "/api/tokens/web-team/passing")[0] == 200

        await window.sees("Your login has ended.", at=".notice")


async def test_an_account_sees_its_own_sessions_and_its_limit(herd: Herd, store: Store, page: Page) -> None:
    await SessionWriter(store, "web-team").queue(browserName="chrome", **{"se:name": "pay by card"})
    await SessionWriter(store, "other").queue(browserName="chrome", **{"se:name": "not yours"})
    await Uses(store).take("web-team", "a use")
    await page.open(f"{herd.url}/#access")

    await log_in(page, new_token(herd, "viewer"))

    await page.sees("pay by card", at="#queue")
    await page.sees("1/10", at=".figure:last-child")
    await page.sees("of your limit", at=".figure:last-child")
    await page.sees("at most 60 starts a minute", at=".figures")
    seen = await page.run("return document.body.innerText")
    for hidden in ("not yours", "Orchestrators", "Roles", "Slots", "Account", "Access", "Audit"):
        assert hidden not in seen
    await page.open("about:blank")
    await page.forget_cookies()

    await page.open(herd.url)
    await log_in(page, admin_token(herd))
    await page.sees("not yours", at="#queue")
    await page.sees("web-team", at="#queue td[data-label=Account]")
    await page.sees("gateway", at="#roles")


async def test_a_token_that_is_for_usage_only_is_shown_that_and_no_session(herd: Herd, page: Page) -> None:
    await page.open(herd.url)

    await log_in(page, new_token(herd, "biller", scopes=["usage"]))

    await page.sees("Usage", at="main h2")
    await page.sees("Log out", at=".person")
    links = await page.run("return [...document.querySelectorAll('nav a')].map((each) => each.textContent)")
    assert links == ["Usage", "API"]


async def test_a_log_out_ends_the_login_everywhere(herd: Herd, page: Page) -> None:
    await page.open(herd.url)
    await log_in(page, new_token(herd, "leaver"))
    await page.sees("live", at=".connection")
    [cookie] = await page.cookies()
    shown = {"Cookie": f"{LOGIN_COOKIE}={cookie['value']}"}
    assert herd.request("GET", "/api/whoami", **shown)[0] == 200

    await page.clicks(".person button")

    await page.sees(OUTSIDE)
    assert await page.cookies() == []
    await eventually(lambda: herd.request("GET", "/api/whoami", **shown)[0] == 401)


async def test_a_page_whose_token_was_revoked_says_so_and_leads_to_the_login(herd: Herd, page: Page) -> None:
    await page.open(herd.url)
    await log_in(page, new_token(herd, "revoked"))
    await page.sees("live", at=".connection")

    assert ask(herd, "DELETE", "/api/tokens/web-team/revoked")[0] == 200

    await page.sees("Your login has ended.", at=".notice")
    await page.is_gone("main *")
    assert await page.violations_in_all_looks() == {}
    await page.clicks(".notice button")
    await page.sees(OUTSIDE)


async def test_a_dialog_has_the_keyboard_as_soon_as_it_is_there(herd: Herd, page: Page) -> None:
    await page.open(f"{herd.url}/#access")
    await log_in(page, admin_token(herd))
    await page.sees("New token", at="#accounts")

    has_keyboard = await page.wait_for(
        """
        const done = arguments[arguments.length - 1];
        const look = () => {
            const dialog = document.querySelector("dialog");
            if (dialog) done(dialog.matches(":modal"));
        };
        new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
        document.querySelector("#accounts .main").click();
        """
    )

    assert has_keyboard


async def test_an_operator_makes_a_token_and_revokes_it(herd: Herd, page: Page) -> None:
    await page.open(f"{herd.url}/#access")
    await log_in(page, admin_token(herd))

    await page.clicks("#accounts .main")
    await page.sees("New token", at="dialog")
    await page.presses("nightly", Keys.TAB, "crawler", Keys.ENTER)
    await page.sees("it is shown only this once", at="dialog")
    token = await page.run("return document.querySelector('dialog code').innerText")
    # Escape comes easily, and the token would be lost.
    await page.presses(Keys.ESCAPE)
    await page.clicks("dialog .main")
    await page.is_gone("dialog")

    assert ask(herd, "GET", "/api/whoami", token=token)[1]["scopes"] == ["use"]
    await page.sees("token.create", at="#audit")
    await page.run(OPEN_ACCOUNTS)
    await page.clicks("[aria-label='Revoke nightly']")
    await page.sees("Revoke nightly of crawler?", at="dialog")
    await page.clicks("dialog [name=end]")
    assert ask(herd, "GET", "/api/whoami", token=token)[0] == 200
    await page.clicks("dialog .danger")
    await page.is_gone("dialog")

    assert ask(herd, "GET", "/api/whoami", token=token)[0] == 401
    await page.sees("token.revoke", at="#audit tbody tr")
    await page.sees("crawler/nightly endSessions true", at="#audit tbody tr")


async def test_an_operator_sets_the_limits_of_an_account_and_deletes_it(herd: Herd, page: Page) -> None:
    new_token(herd, "only", account="brief")
    await page.open(f"{herd.url}/#access")
    await log_in(page, admin_token(herd))
    await page.sees("0 sessions in use; 1 token", at="#account-brief")

    await page.run("document.querySelector('#account-brief').open = true")
    await page.fills("#account-brief [name=sessions]", "3")
    await page.clicks("#account-brief .limits button")
    await page.sees("0 of 3 sessions in use; 1 token", at="#account-brief")
    await page.fills("#account-brief [name=sessions]", "")
    await page.clicks("#account-brief .limits button")
    await page.sees("0 sessions in use; 1 token", at="#account-brief")

    await page.clicks("#account-brief .danger")
    await page.sees("Delete the account brief?", at="dialog")
    await page.clicks("dialog .danger")

    await page.is_gone("#account-brief")
    names = [each["name"] for each in ask(herd, "GET", "/api/accounts")[1]["accounts"]]
    assert "brief" not in names


async def test_a_page_that_was_left_keeps_no_connection(herd: Herd, page: Page) -> None:
    await page.open(f"{herd.url}/#access")
    await log_in(page, admin_token(herd))

    # A browser opens six connections to a host at most.
    for _ in range(7):
        await page.sees("web-team", at="#accounts")
        await page.open("about:blank")
        await page.open(f"{herd.url}/#access")

    await page.sees("web-team", at="#accounts")
    await page.open("about:blank")
    await page.goes_back()
    await page.sees("live", at=".connection")


async def test_what_is_refused_is_said_where_it_was_asked_for(herd: Herd, page: Page) -> None:
    await page.open(f"{herd.url}/#access")
    await log_in(page, admin_token(herd))
    await page.run("document.querySelector('#account-default')?.setAttribute('open', '')")

    await page.clicks("[aria-label='Revoke admin']")
    await page.sees("You are logged in with it", at="dialog")
    await page.clicks("dialog .danger")

    await page.sees("is the last admin token that does not expire", at="dialog .problem")


@needs_ffmpeg
async def test_a_video_is_shared_with_those_who_have_no_token(herd: Herd, page: Page) -> None:
    token = new_token(herd, "recorder")
    options = options_for(**{"se:recordVideo": True})
    address = herd.url.replace("//", f"//recorder:{token}@")
    client = await asyncio.to_thread(webdriver.Remote, address, options=options)
    try:
        await page.open(f"{herd.url}/#session/{client.session_id}")
        await log_in(page, token)
        await page.clicks("button.share")
        await page.sees("Whoever has this URL can see the video until", at="div.share")
        url = await page.run("return document.querySelector('div.share code').innerText")
        # A session that ends before its encoder has begun leaves no video.
        video = herd.data / "storage" / str(client.session_id) / "video.mp4"
        await eventually(video.exists, DEADLINE)
    finally:
        await asyncio.to_thread(client.quit)

    with await asyncio.to_thread(urlopen, url) as answer:
        assert answer.headers["Content-Type"] == "video/mp4"


# A person who is logged in visits a page that acts in that person's name. To a browser another port of the
# same host is the same site, so the cookie goes along: that it is SameSite=Strict does not help here.
FORM = """
<!doctype html>
<form method="post" action="{url}/api/tokens" enctype="text/plain">
  <input name='{{"name": "foreign", "account": "web-team", "scopes": ["admin"], "x": "' value='"}}'>
</form>
"""
FETCH = """
const [url, done] = arguments;
const body = JSON.stringify({name: "foreign", account: "web-team", scopes: ["admin"]});
const path = `${url}/api/tokens`;
const options = {method: "POST", credentials: "include", body};
const tell = (answer) => answer.type;
const json = {...options, headers: {"Content-Type": "application/json"}};
Promise.all([
  fetch(path, {...options, mode: "no-cors"}).then(tell, () => "failed"),
  fetch(path, json).then(tell, () => "failed"),
  fetch(path, {credentials: "include"}).then(tell, () => "failed"),
]).then(done);
"""


@contextmanager
def foreign_page(text: str) -> Iterator[str]:
    """The URL of a page that is not the herd's, on the same host."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=partial(server.serve_forever, poll_interval=0.05), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def test_a_page_elsewhere_cannot_act_in_the_name_of_who_is_logged_in(herd: Herd, page: Page) -> None:
    await page.open(herd.url)
    await log_in(page, admin_token(herd))
    await page.sees("live", at=".connection")

    with foreign_page(FORM.format(url=herd.url)) as url:
        await page.open(url)
        # The cookie is there to be sent, or this would prove nothing.
        assert [each["name"] for each in await page.cookies()] == [LOGIN_COOKIE]
        fetched = await page.wait_for(FETCH, herd.url)
        await page.run("document.forms[0].submit()")
        await page.sees(f"Requests from {url} are not allowed here")

    assert fetched == ["opaque", "failed", "failed"]
    assert "foreign" not in str(ask(herd, "GET", "/api/tokens"))


async def test_axe_finds_nothing_wrong_with_the_login_and_the_accounts(herd: Herd, page: Page) -> None:
    new_token(herd, "short-lived")
    found: dict[str, Mapping[str, list[str]]] = {}

    async def look(view: str) -> None:
        found[view] = await page.violations_in_all_looks()

    await page.open(f"{herd.url}/#access")
    await page.sees(OUTSIDE)
    await look("login")
    await log_in(page, "rmd_wrong")
    await page.sees(WRONG)
    await look("login refused")
    await log_in(page, admin_token(herd))
    await page.sees("web-team", at="#accounts")
    await page.run(OPEN_ACCOUNTS)
    await page.sees("token.create", at="#audit")
    await look("access")
    await page.clicks("#accounts .main")
    await page.sees("New token", at="dialog")
    await look("new token")
    await page.presses(Keys.ESCAPE)
    await page.is_gone("dialog")
    await page.clicks("[aria-label='Revoke short-lived']")
    await page.sees("Revoke short-lived of web-team?", at="dialog")
    await look("revoke")
    await page.presses(Keys.ESCAPE)
    await page.clicks("nav a")
    await page.sees("Sessions")
    await look("overview")

    assert {view: wrong for view, wrong in found.items() if wrong} == {}
    assert [
        each for each in await page.complaints() if "401" not in each["message"] and each["level"] != "DEBUG"
    ] == []
