"""A real browser on a page of the herd's."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains

from clients import options_for
from installed import BROWSERS, LIGHTEST
from waiting import eventually

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TEXT = "const found = document.querySelector(arguments[0]); return found ? found.innerText : ''"
CLICK = "const found = document.querySelector(arguments[0]); found?.click(); return Boolean(found)"
FILL = (
    "const found = document.querySelector(arguments[0]);"
    "if (found) found.value = arguments[1]; return Boolean(found)"
)
AXE = Path(__file__).parent / "acceptance/node/node_modules/axe-core/axe.min.js"
# What is right is not listed element by element, which takes a fifth of the time.
RUN_AXE = """
    const done = arguments[arguments.length - 1]
    axe.run(document, {resultTypes: ["violations"]}).then(found => done(found.violations))
"""
# Colours do not depend on the width, nor the layout on the colours.
LOOKS = [("light", 1300), ("dark", 400)]
# Also of scripts: axe-core takes a second on an idle machine, and a busy one gives it little of a processor.
DEADLINE = 60.0


class Page:
    """What a person sees and does. The browser is asked in a thread: the page is served by this loop."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    async def open(self, url: str) -> None:
        await asyncio.to_thread(self._driver.get, url)

    async def goes_back(self) -> None:
        # Not by a script: a script whose page goes away may be answered with a time-out.
        await asyncio.to_thread(self._driver.back)

    async def run(self, script: str, *args: str) -> Any:
        return await asyncio.to_thread(self._driver.execute_script, script, *args)

    async def wait_for(self, script: str, *args: str) -> Any:
        """What the script gives to the last of its arguments."""
        return await asyncio.to_thread(self._driver.execute_async_script, script, *args)

    async def sees(self, words: str, *, at: str = "body") -> None:
        """Waits until the words stand there."""

        async def is_there() -> bool:
            return words in await self.run(TEXT, at)

        try:
            await eventually(is_there, DEADLINE)
        except AssertionError:
            found = {"there": await self.run(TEXT, at), "on the page": await self.run(TEXT, "body")}
            raise AssertionError(f"no {words!r} in {found}, console: {await self.complaints()}") from None

    async def looks(self, *, scheme: str, width: int) -> None:
        """Shows the page in a colour scheme and a width."""
        scheme_feature = {"name": "prefers-color-scheme", "value": scheme}
        # A colour that is still changing has no contrast to speak of.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self._tell("Emulation.setEmulatedMedia", features=[scheme_feature, still])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await self._tell("Emulation.setDeviceMetricsOverride", **size)

    async def looks_usual(self) -> None:
        """Takes back what `looks` has set."""
        await self._tell("Emulation.setEmulatedMedia", features=[])
        await self._tell("Emulation.clearDeviceMetricsOverride")

    async def violations(self) -> list[str]:
        """What axe-core finds wrong with the page, with the elements that it means."""
        if not await self.run("return 'axe' in window"):
            await self.run(AXE.read_text())
        found = await self.wait_for(RUN_AXE)
        return [
            f"{each['id']}: {node['html'][:150]} {node['any'][0]['message'] if node['any'] else ''}"
            for each in found
            for node in each["nodes"]
        ]

    async def violations_in_all_looks(self) -> dict[str, list[str]]:
        """The same in both colour schemes, wide and narrow, by scheme; empty if there are none."""
        found = {}
        for scheme, width in LOOKS:
            await self.looks(scheme=scheme, width=width)
            found[scheme] = await self.violations()
        await self.looks_usual()
        return {scheme: wrong for scheme, wrong in found.items() if wrong}

    async def presses(self, *keys: str) -> None:
        await asyncio.to_thread(lambda: ActionChains(self._driver).send_keys(*keys).perform())

    async def cookies(self) -> list[dict[str, Any]]:
        """The cookies that the page's host has set, also those that no script sees."""
        return list(await asyncio.to_thread(self._driver.get_cookies))

    async def forget_cookies(self) -> None:
        await self._tell("Network.clearBrowserCookies")

    async def is_gone(self, selector: str) -> None:
        """Waits until there is no such element."""
        await eventually(lambda: self.run("return !document.querySelector(arguments[0])", selector), DEADLINE)

    async def lacks(self, *urls: str) -> None:
        """Lets no request for these URLs, with `*` for anything, leave the browser; without any, all do."""
        await self._tell("Network.enable")
        await self._tell("Network.setBlockedURLs", urls=urls)

    async def _tell(self, method: str, **parameters: Any) -> None:
        await asyncio.to_thread(self._driver.execute_cdp_cmd, method, parameters)

    async def clicks(self, selector: str) -> None:
        await eventually(lambda: self.run(CLICK, selector), DEADLINE)

    async def fills(self, selector: str, value: str) -> None:
        """Writes into a field, once it is there."""
        await eventually(lambda: self.run(FILL, selector, value), DEADLINE)

    async def complaints(self) -> list[Any]:
        """What the browser has written to its console since the last time."""
        return list(await asyncio.to_thread(self._driver.get_log, "browser"))


@contextmanager
def viewing_browser(profile: Path, *flags: str, display: str = "") -> Iterator[webdriver.Chrome]:
    """A browser with a profile that nobody has used; with a window if it gets a display."""
    name = "chrome" if display else LIGHTEST
    installed = BROWSERS.get(name)
    if installed is None:
        pytest.skip("no Chromium here: run make setup")
    options = options_for(name)
    options.binary_location = str(installed.binary)
    for flag in (*FLAGS, *flags, f"--user-data-dir={profile}", *([] if display else ["--headless=new"])):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    environ = {**os.environ, "DISPLAY": display}
    browser = webdriver.Chrome(options=options, service=Service(str(installed.driver), env=environ))
    browser.set_script_timeout(DEADLINE)
    try:
        yield browser
    finally:
        browser.quit()
