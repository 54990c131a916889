"""Browsers that run before anybody asks for them: each serves one plain session, and is then replaced."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import psutil
import pytest
from selenium import webdriver

from deployments import DEADLINE, PAGE, Client, Deployment, Reply, working_deployment
from grids import all_sessions, log_of
from installed import BROWSERS
from processes import are_gone, children_of, command_of, kill, name_of
from remuda.base.ids import SessionId
from remuda.grid.browsers import FAMILIES
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

pytestmark = [
    pytest.mark.xdist_group("grid nodes"),
    pytest.mark.skipif(
        not any(FAMILIES[name].is_chromium for name in list(BROWSERS)[:1]),
        reason="the first browser here is no Chromium: run make setup",
    ),
]


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with working_deployment(["gateway", "manager", "orchestrator"], options=["--warm", "1"]) as deployment:
        yield deployment


@dataclass(frozen=True)
class Open:
    """A session, and the process of its browser."""

    session: SessionId
    browser: int


async def ask(client: Client, **capabilities: Any) -> Open:
    """A session as Selenium's client asks for it."""
    stock = webdriver.ChromeOptions().to_capabilities()
    reply = await client.ask(**{**stock, **capabilities})
    assert reply.status == 200, reply.value
    return Open(SessionId(reply.value["sessionId"]), reply.value["capabilities"]["goog:processID"])


def browsers(deployment: Deployment) -> set[int]:
    """Every browser that has a page to show."""
    found = set()
    for driver in (each for each in deployment.processes() if name_of(each) == "chromedriver"):
        found |= {each.pid for each in children_of(driver) if has_page(each)}
    return found


def has_page(browser: psutil.Process) -> bool:
    below = children_of(browser, recursive=True)
    return any("--type=renderer" in " ".join(command_of(each)) for each in below)


async def ask_until_early(client: Client, deployment: Deployment, **capabilities: Any) -> Open:
    """A session whose browser ran before; its node may need a moment more to say that it waits."""

    async def look() -> Open | Literal[False]:
        before = await eventually(lambda: browsers(deployment), DEADLINE)
        opened = await ask(client, **capabilities)
        if opened.browser in before:
            return opened
        await client.close(opened.session)
        return False

    found = await eventually(look, DEADLINE)
    assert found
    return found


async def test_each_plain_session_gets_a_browser_that_runs_already_and_no_two_the_same(
    client: Client, deployment: Deployment
) -> None:
    first = await ask_until_early(client, deployment, **{"se:name": "first"})
    assert await client.call("POST", f"/session/{first.session}/url", {"url": PAGE}) == Reply(200, None)
    assert await client.title(first.session) == Reply(200, "page")
    await client.close(first.session)
    await eventually(lambda: not psutil.pid_exists(first.browser), DEADLINE)

    second = await ask_until_early(client, deployment, pageLoadStrategy="normal")

    assert second.browser != first.browser
    assert await client.title(second.session) == Reply(200, "")
    await client.close(second.session)


async def test_a_special_session_leaves_the_waiting_browser_alone(
    client: Client, deployment: Deployment
) -> None:
    waiting = await eventually(lambda: browsers(deployment), DEADLINE)

    special = await ask(client, **{"goog:chromeOptions": {"args": ["--window-size=640,480"]}})

    assert special.browser not in waiting
    assert waiting <= browsers(deployment)
    await client.close(special.session)


@pytest.mark.skipif(
    not {"chrome", "chrome-headless-shell"} <= set(BROWSERS), reason="two browsers of one driver are needed"
)
async def test_a_warm_driver_starts_whichever_of_its_browsers_is_wanted(
    client: Client, deployment: Deployment, store: Store
) -> None:
    async def is_served_by_warm_driver() -> bool:
        reply = await client.ask(browserName="chrome-headless-shell")
        assert reply.status == 200, reply.value
        session = SessionId(reply.value["sessionId"])
        await client.close(session)
        assert reply.value["capabilities"]["browserName"] == "chrome-headless-shell"
        return "warm" in dict(await log_of(store, session))["DSTART"]

    # More than once: the driver may still be starting.
    assert await eventually(is_served_by_warm_driver, DEADLINE)


async def test_a_waiting_browser_that_dies_is_replaced(client: Client, deployment: Deployment) -> None:
    (waiting,) = await eventually(lambda: browsers(deployment), DEADLINE)

    psutil.Process(waiting).kill()

    await eventually(lambda: browsers(deployment) - {waiting}, DEADLINE)
    opened = await ask_until_early(client, deployment)
    assert opened.browser != waiting
    await client.close(opened.session)


def itself(node: psutil.Process) -> list[psutil.Process]:
    return [node]


def drivers_of(node: psutil.Process) -> list[psutil.Process]:
    return children_of(node)


def browsers_of(node: psutil.Process) -> list[psutil.Process]:
    return [browser for driver in children_of(node) for browser in children_of(driver)]


@pytest.mark.parametrize("victims_of", [itself, drivers_of, browsers_of])
async def test_a_session_whose_warm_node_dies_at_the_hand_over_gets_another(
    client: Client,
    deployment: Deployment,
    store: Store,
    victims_of: Callable[[psutil.Process], list[psutil.Process]],
) -> None:
    asking, session, node = await hand_over(client, deployment, store)

    victims = victims_of(node)
    for victim in victims:
        kill(victim)
    await eventually(lambda: are_gone(victims), DEADLINE)
    with suppress(psutil.NoSuchProcess):
        node.resume()

    opened = await asking
    assert opened.session == session
    assert (await client.title(session)).status == 200
    await client.close(session)


async def hand_over(
    client: Client, deployment: Deployment, store: Store
) -> tuple[asyncio.Task[Open], SessionId, psutil.Process]:
    """A client that waits for a session which was handed to a warm node that stands still."""
    while True:
        before = set(await all_sessions(store))
        node = await eventually(lambda: waiting_node(deployment), DEADLINE)
        assert node
        node.suspend()
        asking = asyncio.create_task(ask(client))
        session = await eventually(partial(handed_or_open, store, node, before, asking), DEADLINE)
        if isinstance(session, str):
            return asking, session, node
        node.resume()  # It had a browser, but had not yet said so: another node has the session.
        await client.close((await asking).session)


async def handed_or_open(
    store: Store, node: psutil.Process, before: set[SessionId], asking: asyncio.Task[Open]
) -> SessionId | bool:
    return await handed_to(store, node, before) or asking.done()


def waiting_node(deployment: Deployment) -> psutil.Process | None:
    """The node whose browser waits for a session."""
    for browser in browsers(deployment):
        with suppress(psutil.NoSuchProcess):
            driver = psutil.Process(browser).parent()
            return driver.parent() if driver else None
    return None


async def handed_to(store: Store, node: psutil.Process, before: set[SessionId]) -> SessionId | None:
    """The new session that this node has been given."""
    for session in set(await all_sessions(store)) - before:
        (orchestrator,) = await store.smembers(grid.ORCHESTRATORS())
        noted = await store.hget(grid.ORCHESTRATOR_NODES(orchestrator), session) or ""
        if noted.startswith(f"{node.pid} "):
            return session
    return None
