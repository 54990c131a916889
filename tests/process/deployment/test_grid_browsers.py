"""Every browser beside Chromium, through real roles: it is what was asked for, it works, and nothing of it is
left, however it ends."""

from collections.abc import Iterator
from typing import Any

import aiohttp
import psutil
import pytest

from deployments import DEADLINE, Client, Deployment, Reply, assert_ended, node_of, working_deployment
from installed import BROWSERS
from processes import children_of, family, name_of
from remuda.base.ids import SessionId
from remuda.grid.browsers import FAMILIES
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

OTHERS = [
    pytest.param(name, marks=pytest.mark.skipif(name not in BROWSERS, reason=f"no {each.title} here"))
    for name, each in FAMILIES.items()
    if name != "chrome"
]
# WebKitGTK's driver speaks no BiDi.
SPEAK_BIDI = FAMILIES.keys() - {"MiniBrowser"}
# Those that start fast enough to be started again for each kind of death.
QUICK = [param for param in OTHERS if param.values[0] != "firefox"]

pytestmark = [
    pytest.mark.xdist_group("grid browsers"),
    pytest.mark.skipif(
        len(BROWSERS.keys() - {"chrome"}) == 0, reason="no other browser here: run make setup"
    ),
]


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with working_deployment(["gateway", "manager", "orchestrator"]) as deployment:
        yield deployment


async def test_exactly_the_usable_browsers_are_offered(store: Store, deployment: Deployment) -> None:
    offered = await store.smembers(grid.ORCHESTRATOR_BROWSERS(deployment.orchestrator))

    assert set(offered) == {f"{each.name}::{each.version}" for each in BROWSERS.values()}


@pytest.mark.parametrize("name", OTHERS)
async def test_a_session_has_the_browser_that_it_asked_for_with_all_that_this_one_has(
    store: Store, client: Client, deployment: Deployment, name: str
) -> None:
    reply = await client.ask(browserName=name, **({"webSocketUrl": True} if name in SPEAK_BIDI else {}))
    assert reply.status == 200, reply.value
    session, actual = SessionId(reply.value["sessionId"]), reply.value["capabilities"]

    assert actual["browserName"] == name
    assert BROWSERS[name].version.startswith(actual["browserVersion"])
    assert await shows(client, session)
    if name in SPEAK_BIDI:
        url = actual["webSocketUrl"]
        answers = [await tree(each) for each in (url, f"{url}/se/bidi")]
        assert [answer["result"]["contexts"][0]["children"] for answer in answers] == [[], []]
    if not FAMILIES[name].is_chromium:
        reply = await client.call("GET", f"/clipboard/{session}")
        assert reply.error == "404 unknown command"
        assert reply.value["message"] == f"{name} has no DevTools to connect to"
    node = await node_of(store, session, deployment)
    was = family(node)
    assert await client.close(session) == Reply(200, None)

    assert (await assert_ended(store, client, session, was))[-2:] == ["CLOSED", "HALT"]
    assert not list(deployment.temporary.glob(f"remuda-{node.pid}-*"))


async def shows(client: Client, session: SessionId) -> bool:
    """Whether the browser loads a page and says its title."""
    page = {"url": "data:text/html,<title>page</title>"}
    assert (await client.call("POST", f"/session/{session}/url", page)).status == 200
    return await client.title(session) == Reply(200, "page")


async def tree(url: str) -> Any:
    """What the browser says over BiDi that it shows."""
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await socket.send_json({"id": 1, "method": "browsingContext.getTree", "params": {}})
        while True:
            answer = await socket.receive_json(timeout=DEADLINE)
            if answer.get("id") == 1:
                return answer


@pytest.mark.parametrize("name", OTHERS)
async def test_of_a_killed_node_nothing_is_left(
    store: Store, client: Client, deployment: Deployment, name: str
) -> None:
    session = await client.open(name)
    node = await node_of(store, session, deployment)
    was = family(node)
    assert len(was) > 2

    node.kill()

    assert (await assert_ended(store, client, session, was))[-1] == "TERM"
    await eventually(lambda: not list(deployment.temporary.glob(f"remuda-{node.pid}-*")), DEADLINE)


@pytest.mark.parametrize("name", QUICK)
async def test_a_killed_driver_ends_the_session_and_takes_the_browser_with_it(
    store: Store, client: Client, deployment: Deployment, name: str
) -> None:
    session = await client.open(name)
    node = await node_of(store, session, deployment)
    was = family(node)

    driver_of(node, name).kill()

    assert (await assert_ended(store, client, session, was))[-3:] == ["DFAILURE", "TERM", "HALT"]


@pytest.mark.parametrize("name", OTHERS)
async def test_a_browser_that_crashes_ends_its_session(
    store: Store, client: Client, deployment: Deployment, name: str
) -> None:
    session = await client.open(name)
    node = await node_of(store, session, deployment)
    was = family(node)

    (browser,) = driver_of(node, name).children()
    browser.kill()

    assert (await assert_ended(store, client, session, was))[-3:] == ["DFAILURE", "TERM", "HALT"]


def driver_of(node: psutil.Process, name: str) -> psutil.Process:
    # The kernel keeps the first 15 characters of a name.
    driver = BROWSERS[name].driver.name[:15]
    (found,) = [each for each in children_of(node) if name_of(each)[:15] == driver]
    return found


FORBIDDEN = [
    ("chrome-headless-shell", {"goog:chromeOptions": {"args": ["--user-data-dir=/tmp/x"]}}),
    ("firefox", {"moz:firefoxOptions": {"args": ["-profile", "/tmp/x"]}}),
    ("firefox", {"moz:firefoxOptions": {"env": {"LD_PRELOAD": "/tmp/x.so"}}}),
]


@pytest.mark.parametrize(("name", "capabilities"), FORBIDDEN)
async def test_what_names_a_path_of_this_machine_is_refused_in_words(
    client: Client, name: str, capabilities: dict[str, Any]
) -> None:
    if name not in BROWSERS:
        pytest.skip(f"no {FAMILIES[name].title} here")

    reply = await client.ask(browserName=name, **capabilities)

    assert reply.error == "400 invalid argument"
    assert "this machine; leave it out" in reply.value["message"]


async def test_two_browsers_of_one_version_are_told_apart(client: Client) -> None:
    names = [name for name in ("chrome", "chrome-headless-shell") if name in BROWSERS]
    if len({BROWSERS[name].version for name in names}) != 1 or len(names) != 2:
        pytest.skip("no two browsers of one version here")

    for name in names:
        reply = await client.ask(browserName=name, browserVersion=BROWSERS[name].version)
        assert reply.value["capabilities"]["browserName"] == name
        await client.close(SessionId(reply.value["sessionId"]))
