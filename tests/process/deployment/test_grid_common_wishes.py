"""What common clients tell their browsers, said to real ones: they start, and do as they are told."""

from collections.abc import Iterator
from typing import Any

import pytest

from common_wishes import CHROMIUM_ARGS, CHROMIUM_PREFS, SELENIUMBASE
from deployments import Client, Deployment, working_deployment
from installed import BROWSERS
from remuda.base.ids import SessionId

pytestmark = pytest.mark.xdist_group("grid common wishes")

# With these it shows no page, or not the one that it is sent to.
APART = ("--app=", "--headless", "--host-", "--proxy-", "--kiosk", "--guest", "--incognito", "--no-proxy")


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with working_deployment(["gateway", "manager", "orchestrator"]) as deployment:
        yield deployment


async def opened(client: Client, wanted: dict[str, Any]) -> Any:
    """The capabilities of a session that shows a page."""
    reply = await client.ask(**wanted)
    assert reply.status == 200, reply.value
    session = SessionId(reply.value["sessionId"])
    page = {"url": "data:text/html,<title>page</title>"}
    assert (await client.call("POST", f"/session/{session}/url", page)).status == 200
    assert (await client.title(session)).value == "page"
    agent = {"script": "return navigator.userAgent", "args": []}
    told = await client.call("POST", f"/session/{session}/execute/sync", agent)
    await client.close(session)
    return {**reply.value["capabilities"], "agent": told.value}


@pytest.mark.parametrize("browser", SELENIUMBASE)
async def test_seleniumbase_gets_its_browser(client: Client, browser: str) -> None:
    if browser not in BROWSERS:
        pytest.skip(f"no {browser} here")

    actual = await opened(client, dict(SELENIUMBASE[browser]))

    assert actual["browserName"] == browser
    assert "download.default_directory" in actual["remuda:ignored"] or browser == "firefox"


@pytest.mark.skipif("chrome-headless-shell" not in BROWSERS, reason="no headless shell here")
async def test_a_chromium_takes_all_that_passes_and_is_the_one_that_binary_names(client: Client) -> None:
    args = [arg for args in CHROMIUM_ARGS.values() for arg in args if not arg.strip().startswith(APART)]
    options = {
        "args": [*args, "--user-agent=Agent/1.0"],
        "prefs": dict(CHROMIUM_PREFS),
        "binary": "/opt/elsewhere/chrome-headless-shell",
        "excludeSwitches": ["enable-automation", "enable-logging"],
        "mobileEmulation": {"deviceMetrics": {"width": 360, "height": 640, "pixelRatio": 3.0}},
    }

    actual = await opened(client, {"browserName": "chrome", "goog:chromeOptions": options})

    assert actual["browserName"] == "chrome-headless-shell"
    assert actual["agent"] == "Agent/1.0"
    assert {"--no-sandbox", "--single-process", "binary in goog:chromeOptions"} <= set(
        actual["remuda:ignored"]
    )
