"""The workers of `remuda up`: each browser's are started when its first client waits, and more of them when
clients still wait then.

An idle Chromium with its driver takes 210 MB, as much as all the rest of the herd, and a Firefox 560 MB and
four seconds of CPU. A first client waits one second for them, unless `playwright_eager` names the browser.
"""

import os
from functools import partial

from remuda.base.config import Config
from remuda.base.errors import Misconfigured
from remuda.base.ids import RoleId, WorkerId, new_id
from remuda.fleet.room import Crew, Demand, Growth
from remuda.playwright.browsers import servable
from remuda.playwright.demand import keep_announcing, until_crowded, until_idle, until_wanted
from remuda.playwright.driver import served_version
from remuda.playwright.model import OWN, ServedBrowser, browser_of, browsers_of
from remuda.playwright.registry import bury
from remuda.playwright.room import PlaywrightConfig, are_browsers_own
from remuda.store import Store


def worker_demand(config: Config) -> Demand:
    """The workers that `remuda up` starts, of all browsers that Playwright finds here."""
    options = config[PlaywrightConfig]
    here = {browser_of(launch.browser) for launch in servable(config)}
    eager = browsers_of(options.playwright_eager)
    if missing := {browser.engine for browser in eager} - here:
        raise Misconfigured(f"Playwright found no {', '.join(sorted(missing))} here: see `remuda doctor`")
    if are_browsers_own(config):
        eager = {browser.own for browser in eager}
    if not options.playwright_workers:
        return Demand()
    # Those of one's own too: a client may ask for one whatever the default is.
    browsers = sorted({*here, *(browser.own for browser in here)})
    crews = [_crew_of(browser, options, is_eager=browser in eager) for browser in browsers]
    return Demand(crews=crews, announce=partial(keep_announcing, starter=new_id(), browsers=browsers))


def _crew_of(browser: ServedBrowser, options: PlaywrightConfig, *, is_eager: bool) -> Crew:
    async def wanted(store: Store) -> None:
        if not is_eager:
            await until_wanted(store, browser)

    async def idle(store: Store, role: RoleId) -> None:
        await until_idle(store, browser, WorkerId(role), lasting=options.playwright_spare_idle)

    async def bury_worker(store: Store, role: RoleId) -> None:
        await bury(store, browser, WorkerId(role))

    most = max(options.playwright_workers, options.playwright_max_workers or os.cpu_count() or 1)
    return Crew(
        role="worker",
        args=["--browser", browser.engine, "--isolation", OWN if browser.is_own else "shared"],
        count=options.playwright_workers,
        # Where its port is given, the next must wait until it is free.
        hands_over=not options.playwright_port,
        wanted=wanted,
        bury=bury_worker,
        growth=Growth(
            # Not where their port is given: it is taken.
            most=0 if options.playwright_port else most - options.playwright_workers,
            crowded=partial(until_crowded, browser=browser, version=served_version()),
            idle=idle,
        ),
    )
