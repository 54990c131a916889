"""Which browser and which warm node a session gets, and which node is warmed next; the nodes are made up."""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from remuda.base.errors import DriverUnavailable
from remuda.base.ids import SessionId
from remuda.grid.browsers import Browser
from remuda.grid.browsers.families import CHROME, FIREFOX, HEADLESS_SHELL, Family
from remuda.grid.node.assignment import LONGEST, Assignment
from remuda.grid.node.main import OPEN, WARM
from remuda.grid.orchestrator.local import choose, is_kin, next_to_warm, outdated, pick
from remuda.grid.orchestrator.nodes import OwnNode
from waiting import eventually

SESSION = SessionId("3fa85f64-5717-4562-b3fc-2c963f66afa6")


def browser(family: Family, version: str = "156.0.1.2") -> Browser:
    return Browser(family.name, version, Path("/opt/browser"), Path("/opt/driver"), version, family.names)


ALL = [browser(CHROME), browser(HEADLESS_SHELL), browser(FIREFOX)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def node(stack: ExitStack, *of: Browser, with_browser: bool = False, is_warm: bool = True) -> OwnNode:
    ours, theirs = socket.socketpair()
    stack.enter_context(ours)
    stack.enter_context(theirs)
    made = OwnNode(of or ALL[:1], 0, -1, ours, with_browser=with_browser)
    if is_warm:
        made.warm.set()
    return made


def chosen(**wanted: str) -> str | None:
    found = choose([wanted], ALL)
    return None if found is None else found[1].name


def test_a_binary_that_is_the_path_of_a_browser_names_it() -> None:
    paths = {"/opt/a": (CHROME, "140.1"), "/opt/b": (CHROME, "156.1"), "/opt/c": (HEADLESS_SHELL, "156.1")}
    browsers = [
        Browser(family.name, version, Path(path), Path("/opt/driver"), version, family.names)
        for path, (family, version) in paths.items()
    ]

    def taken(binary: str, **wish: str) -> str:
        found = choose([{"browserName": "chrome", **wish, CHROME.options: {"binary": binary}}], browsers)
        return "" if found is None else str(found[1].binary)

    assert [taken(path) for path in paths] == list(paths)
    assert taken("/opt/elsewhere") == "/opt/a"
    assert taken("/opt/b", browserVersion="140") == "/opt/a"
    assert taken("/opt/b", browserName="firefox") == ""


def test_browsers_of_the_same_version_are_told_apart_by_name() -> None:
    names = ["chrome", "chrome-headless-shell", "firefox"]

    assert [chosen(browserName=name, browserVersion="156") for name in names] == names
    assert chosen(browserName="chromium") == "chrome"


def test_the_first_wish_that_fits_the_platform_is_granted() -> None:
    wanted = [
        {"platformName": "windows", "pageLoadStrategy": "none"},
        {"platformName": "linux", "pageLoadStrategy": "eager"},
    ]

    assert choose(wanted, ALL) == (1, ALL[0])


def test_who_asks_for_no_browser_gets_the_preferred_one() -> None:
    assert chosen() == "chrome"


def test_a_browser_that_is_not_here_is_not_chosen() -> None:
    assert chosen(browserName="safari") is None
    assert chosen(browserName="firefox", browserVersion="1") is None


def test_a_plain_wish_gets_a_browser_that_runs_already(stack: ExitStack) -> None:
    driver, early = node(stack), node(stack, with_browser=True)

    assert pick([driver, early], ALL[0], plain=True) is early


def test_a_special_wish_only_gets_a_node_without_a_browser(stack: ExitStack) -> None:
    driver, early = node(stack), node(stack, with_browser=True)

    assert pick([early, driver], ALL[0], plain=False) is driver
    assert pick([early], ALL[0], plain=False) is None


def test_a_browser_that_is_still_starting_is_left_alone(stack: ExitStack) -> None:
    driver, starting = node(stack), node(stack, with_browser=True, is_warm=False)

    assert pick([starting, driver], ALL[0], plain=True) is driver
    assert pick([starting], ALL[0], plain=True) is None


def test_a_warm_node_is_of_one_browser_only(stack: ExitStack) -> None:
    warm = [node(stack), node(stack, with_browser=True)]

    assert pick(warm, ALL[1], plain=True) is None
    assert pick(warm, ALL[2], plain=False) is None


def test_a_warm_driver_serves_every_browser_that_it_can_start(stack: ExitStack) -> None:
    driver, early = node(stack, *ALL[:2]), node(stack, *ALL[:2], with_browser=True)

    assert pick([early, driver], ALL[1], plain=True) is driver
    assert pick([early], ALL[1], plain=True) is None
    assert pick([driver], ALL[2], plain=True) is None


def test_browsers_are_kin_whose_driver_is_started_the_same_way() -> None:
    chrome, shell, firefox = ALL
    other = Browser("chrome", "140", Path("/opt/old"), Path("/opt/old-driver"), "140", CHROME.names)

    assert is_kin(chrome, shell)
    assert not is_kin(chrome, firefox)
    assert not is_kin(chrome, other)


def test_a_driver_is_warmed_first_and_then_as_many_browsers_as_were_asked_for(stack: ExitStack) -> None:
    warm: list[OwnNode] = []
    order = []

    while (with_browser := next_to_warm(warm, browsers=2)) is not None:
        order.append(with_browser)
        warm.append(node(stack, with_browser=with_browser))

    assert order == [False, True, True]


def test_by_default_no_browser_is_warmed(stack: ExitStack) -> None:
    assert next_to_warm([], browsers=0) is False
    assert next_to_warm([node(stack)], browsers=0) is None


async def test_a_node_says_when_it_is_warm_and_when_its_session_is_open() -> None:
    ours, theirs = socket.socketpair()
    end_of_life, alive = os.pipe()
    listener = OwnNode(ALL[:1], 0, end_of_life, ours, with_browser=False)
    watching = asyncio.create_task(listener.watch())

    theirs.send(WARM)
    await eventually(listener.warm.is_set)
    listener.assign(Assignment(SESSION, 1, 2))
    assert Assignment.decode(theirs.recv(LONGEST)) == Assignment(SESSION, 1, 2)
    assert listener.is_starting
    theirs.send(OPEN)
    await eventually(listener.opened.is_set)

    assert not listener.is_starting
    assert not listener.gone.is_set()
    theirs.close()
    os.close(alive)
    await asyncio.wait_for(watching, 10)
    assert listener.gone.is_set()


async def test_whoever_waits_for_a_node_hears_of_its_death(stack: ExitStack) -> None:
    ours, theirs = socket.socketpair()
    stack.enter_context(theirs)
    end_of_life, alive = os.pipe()
    dying = OwnNode(ALL[:1], 0, end_of_life, ours, with_browser=True)
    watching = asyncio.create_task(dying.watch())

    os.close(alive)
    await asyncio.wait_for(watching, 10)

    assert dying.warm.is_set()
    assert dying.opened.is_set()


def test_a_node_that_has_just_died_takes_no_session(stack: ExitStack) -> None:
    ours, theirs = socket.socketpair()
    stack.enter_context(ours)
    theirs.close()
    dead = OwnNode(ALL[:1], 0, -1, ours, with_browser=False)

    with pytest.raises(DriverUnavailable):
        dead.assign(Assignment(SESSION, 0))

    assert dead.session is None


def test_a_warm_node_is_outdated_when_its_certificate_was_replaced(stack: ExitStack) -> None:
    before, now = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old, new, plain = node(stack), node(stack), node(stack)
    old.tls, new.tls = before, now

    assert outdated([old, new], now) == [old]
    assert outdated([plain], None) == []
