"""Stock Playwright clients take browsers from the front door, in every way that they know."""

import sys
from pathlib import Path

import pytest
from playwright._impl._driver import compute_driver_executable
from playwright.async_api import Playwright

from herds import Herd
from programs import NODE, output_of
from readme import snippet_with
from videos import needs_ffmpeg, probe

# In one process, so that only one herd has to start a browser of each kind for them.
pytestmark = pytest.mark.xdist_group("acceptance playwright")
in_session = pytest.mark.asyncio(loop_scope="session")


def test_the_playwright_snippet_of_the_readme_works_as_it_stands(herd: Herd, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(snippet_with("playwright").replace("127.0.0.1:4444", herd.url.partition("//")[2]))

    assert output_of([sys.executable, script]) == "Hello from the herd\n"


@pytest.mark.parametrize(
    "address", ["ws://{}/", "http://{}", "ws://{}/playwright/{}", "http://{}/playwright/{}"]
)
@pytest.mark.parametrize("name", ["chromium", "firefox"])
@in_session
async def test_a_stock_client_drives_a_page(
    herd: Herd, playwright: Playwright, name: str, address: str
) -> None:
    url = address.format(herd.url.partition("//")[2], name)
    async with await getattr(playwright, name).connect(url) as browser:
        page = await browser.new_page()
        await page.goto("data:text/html,<button onclick=\"document.title='clicked'\">Go</button>")
        await page.click("button")

        assert await page.title() == "clicked"
        assert browser.browser_type.name == name


@in_session
async def test_clients_of_one_browser_do_not_see_each_other(herd: Herd, playwright: Playwright) -> None:
    url = herd.url.replace("http", "ws")
    connect = playwright.chromium.connect
    async with await connect(url) as one, await connect(url) as two:
        page = await one.new_page()
        await page.goto("data:text/html,mine")

        assert two.contexts == []
        await one.close()
        assert await (await two.new_page()).title() == ""


@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_nodes_stock_client_drives_a_page(herd: Herd, name: str) -> None:
    # The node that comes with Python's Playwright: a machine's own may be too old for the client.
    node, _ = compute_driver_executable()

    printed = output_of([node, NODE / "title.mjs", name, herd.url.replace("http", "ws")])

    assert printed == "Hello from Node\n"


@needs_ffmpeg
def test_playwrights_own_test_runner_makes_videos(herd: Herd, tmp_path: Path) -> None:
    node, _ = compute_driver_executable()
    runner = NODE / "node_modules/@playwright/test/cli.js"
    url = herd.url.replace("http", "ws")

    output_of(
        [node, runner, "test", "--config", NODE / "video"],
        PW_TEST_CONNECT_WS_ENDPOINT=url,
        OUTPUT=str(tmp_path),
    )

    videos = list(tmp_path.glob("*/*.webm"))
    assert len(videos) == 3
    assert all(probe(video).frames > 0 for video in videos)


def test_a_client_that_launches_by_way_of_selenium_gets_a_session(herd: Herd, tmp_path: Path) -> None:
    script = tmp_path / "launch.py"
    script.write_text(
        "from playwright.sync_api import sync_playwright\n"
        "with sync_playwright() as playwright:\n"
        "    browser = playwright.chromium.launch()\n"
        "    page = browser.new_page()\n"
        "    page.goto('data:text/html,<title>By way of Selenium</title>')\n"
        "    print(page.title())\n"
        "    browser.close()\n"
    )

    assert output_of([sys.executable, script], SELENIUM_REMOTE_URL=herd.url) == "By way of Selenium\n"
