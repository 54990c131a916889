"""What the acceptance tests of a process share: a herd, the census at its end, a browser to look at it."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from selenium import webdriver

from herds import Herd, new_herd
from installed import LIGHTEST
from pages import Page, viewing_browser
from remuda.store import Store
from remuda.store.census import Stranger, take_census

# Playwright's first client of a browser waits for it to start, which takes long on a busy machine.
PATIENT = {"REMUDA_PLAYWRIGHT_WAIT": "120"}


@pytest.fixture(scope="session")
def herd() -> Iterator[Herd]:
    """A whole herd with two slots. When the tests are through, its Redis holds only what is declared."""
    with new_herd("--slots", "2", environ=PATIENT) as herd:
        yield herd
        assert asyncio.run(_census(herd)) == []


@pytest.fixture(scope="session")
def light_herd() -> Iterator[Herd]:
    """The same without a whole Chromium, for clients that cannot say which one they want."""
    chromium = {} if LIGHTEST == "chrome" else {"REMUDA_CHROMIUM": "/none"}
    with new_herd("--slots", "2", environ={**PATIENT, **chromium}) as herd:
        yield herd
        assert asyncio.run(_census(herd)) == []


async def _census(herd: Herd) -> list[Stranger]:
    async with Store(herd.redis_url) as store:
        return await take_census(store)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A browser that the tests of one module look with."""
    with viewing_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
async def page(chromium: webdriver.Chrome) -> AsyncIterator[Page]:
    """An empty page; the one before is gone, and with it what it had to say and who was logged in."""
    page = Page(chromium)
    await page.open("about:blank")
    await page.forget_cookies()
    await page.complaints()
    yield page
    await page.open("about:blank")
