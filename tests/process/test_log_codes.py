"""Every code of a session's log: real roles and browsers get there, and who the document names writes it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import psutil
import pytest

import grids
from deployments import (
    DEADLINE,
    Client,
    Deployment,
    has_ended,
    is_open,
    node_of,
    open_client,
    open_deployment,
)
from installed import BROWSERS, needs_browser
from processes import children_of, name_of
from remuda.base.ids import OrchestratorId, SessionId
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, node_beat, read_meta
from remuda.grid.slots import Slots
from remuda.grid.timeouts import Timeouts
from remuda.keyspace import grid
from remuda.keyspace.log_codes import BY_CODE
from remuda.store import Store
from remuda.store.commands import stream_entries
from waiting import eventually

pytestmark = [
    pytest.mark.xdist_group("log codes"),
    needs_browser,
]

IDLE = "idle-orchestrator"
"""One that has slots for a browser that nobody else has, and does nothing with them."""


@dataclass
class Scene:
    """Where a scenario plays."""

    store: Store
    client: Client
    deployment: Deployment

    async def limit(self, **seconds: float) -> None:
        await grids.set_timeouts(self.store, **seconds)

    async def refused(self, browser: str) -> SessionId:
        """The session of a client that is told that it gets none."""
        before = set(await grids.all_sessions(self.store))
        assert (await self.client.ask(browserName=browser)).error == "500 session not created"
        return await self.latest(before)

    async def latest(self, before: set[SessionId]) -> SessionId:
        """The session that was not there before."""
        (session,) = await eventually(lambda: self._new(before), DEADLINE)
        return session

    async def _new(self, before: set[SessionId]) -> set[SessionId]:
        return set(await grids.all_sessions(self.store)) - before

    async def ask_and(self, browser: str, leave: Callable[[SessionId], Awaitable[object]]) -> SessionId:
        """A session whose client does something, or somebody else does, while it waits."""
        before = set(await grids.all_sessions(self.store))
        asking = asyncio.create_task(self.client.ask(browserName=browser))
        session = await self.latest(before)
        await leave(session)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        return session


Walk = Callable[[Scene], Awaitable[SessionId]]

# How a session gets to each code


async def straight_on(scene: Scene) -> SessionId:
    session = await scene.client.open()
    await scene.client.close(session)
    return session


async def with_a_browser_that_nobody_has(scene: Scene) -> SessionId:
    return await scene.refused("netscape")


async def without_a_free_slot(scene: Scene) -> SessionId:
    await scene.limit(queue=0.2)
    return await scene.refused("slotless")


async def with_an_orchestrator_that_does_nothing(scene: Scene) -> SessionId:
    await scene.limit(scheduling=0.2)
    return await scene.refused("idle")


async def with_a_node_that_never_comes(scene: Scene) -> SessionId:
    await scene.limit(nodeStartup=0.2)

    async def schedule(session: SessionId) -> None:
        sessions, owner = Sessions(scene.store), OrchestratorId(IDLE)
        await eventually(lambda: scene.store.exists(grid.SESSION_SLOT(session)))
        assert await sessions.move(session, State.PENDING, code="SCHED", orchestrator=owner)
        await eventually(lambda: has_failed(scene.store, session), DEADLINE)

    return await scene.ask_and("idle", schedule)


async def has_failed(store: Store, session: SessionId) -> bool:
    return await Sessions(store).state(session) is State.TERMINATED


async def with_a_client_that_leaves(scene: Scene) -> SessionId:
    async def leave(session: SessionId) -> None:
        await eventually(lambda: is_queued(scene.store, session))

    return await scene.ask_and("slotless", leave)


async def is_queued(store: Store, session: SessionId) -> bool:
    return "QUEUED" in await grids.codes_of(store, session)


async def that_its_orchestrator_cannot_start(scene: Scene) -> SessionId:
    session = await grids.new_session(scene.store, [{"browserName": "netscape"}])
    owner = OrchestratorId(scene.deployment.orchestrator)
    assert await Slots(scene.store).claim(session, [owner]) is not None
    return session


async def whose_client_falls_silent(scene: Scene) -> SessionId:
    session = await scene.client.open()
    await scene.limit(sessionTermination=0.5)
    return session


async def whose_driver_dies(scene: Scene) -> SessionId:
    session = await scene.client.open()
    node = await node_of(scene.store, session, scene.deployment)
    (driver,) = [each for each in children_of(node) if name_of(each).endswith("driver")]
    driver.kill()
    return session


async def whose_driver_takes_too_long(scene: Scene) -> SessionId:
    return await scene.refused("chrome")


async def whose_client_hangs_up(scene: Scene) -> SessionId:
    session = await scene.client.open()
    async with page_of(scene.client, session) as evaluate:
        script = {"script": "window.finish = arguments[0]", "args": []}
        waiting = asyncio.create_task(scene.client.call("POST", f"/session/{session}/execute/async", script))
        await eventually(lambda: evaluate("'finish' in window"), DEADLINE)
        waiting.cancel()
        await logged(scene.store, session, "CLOST")
        await evaluate("finish()")
    await scene.client.close(session)
    return session


@asynccontextmanager
async def page_of(client: Client, session: SessionId) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """Evaluates JavaScript in the session's page, past its driver, which does one command at a time."""
    async with client.websocket(f"/session/{session}/se/cdp") as socket:

        async def ask(method: str, **params: Any) -> Any:
            session_id = {"sessionId": params.pop("within")} if "within" in params else {}
            await socket.send_json({"id": 1, "method": method, "params": params, **session_id})
            while "id" not in (message := await socket.receive_json(timeout=DEADLINE)):
                pass  # An event.
            return message["result"]

        targets = (await ask("Target.getTargets"))["targetInfos"]
        (page,) = [target["targetId"] for target in targets if target["type"] == "page"]
        within = (await ask("Target.attachToTarget", targetId=page, flatten=True))["sessionId"]

        async def evaluate(expression: str) -> Any:
            found = await ask("Runtime.evaluate", expression=expression, within=within)
            return found["result"].get("value")

        yield evaluate


async def with_options_that_are_left_out(scene: Scene) -> SessionId:
    options: Any = {"args": ["--no-sandbox", "--enable-features=OfTomorrow"]}
    session = await scene.client.open(**{"goog:chromeOptions": options})
    (told,) = [entry for _, entry in await entries_of(scene.store, session) if entry.get("code") == "IGNORED"]
    assert read_meta(told["meta"]) == {"message": "--no-sandbox, --enable-features=OfTomorrow"}
    await scene.client.close(session)
    return session


async def whose_recording_fails(scene: Scene) -> SessionId:
    session = await scene.client.open("chrome", **{"se:recordVideo": True})
    for process in scene.deployment.processes():
        if name_of(process) == "ffmpeg":
            process.kill()
    await logged(scene.store, session, "RFAILURE")
    await scene.client.close(session)
    return session


async def whose_client_tells_of_its_test(scene: Scene) -> SessionId:
    session = await scene.client.open()
    event = {"eventType": "test:step", "payload": {}}
    assert (await scene.client.call("POST", f"/session/{session}/se/event", event)).status == 200
    await scene.client.close(session)
    return session


async def whose_first_node_dies(scene: Scene) -> SessionId:
    while True:
        before = set(await grids.all_sessions(scene.store))
        asking = asyncio.create_task(scene.client.open())
        session = await scene.latest(before)
        node = await eventually(lambda: noted_node(scene, session), DEADLINE)  # noqa: B023  # awaited here
        assert node
        node.suspend()
        await eventually(lambda: is_handed_over(scene, session), DEADLINE)  # noqa: B023
        if not await scene.store.exists(grid.SESSION_UPSTREAM(session)):
            node.kill()
            await scene.client.close(await asking)
            return session
        node.resume()  # It was too fast for us.
        await scene.client.close(await asking)


async def noted_node(scene: Scene, session: SessionId) -> psutil.Process | None:
    noted = await scene.store.hget(grid.ORCHESTRATOR_NODES(scene.deployment.orchestrator), session)
    return psutil.Process(int(noted.split()[0])) if noted else None


async def is_handed_over(scene: Scene, session: SessionId) -> bool:
    return session not in await scene.store.lrange(grid.ORCHESTRATOR_PENDING(scene.deployment.orchestrator))


async def whose_node_has_gone(scene: Scene) -> SessionId:
    session, sessions = await grids.new_session(scene.store), Sessions(scene.store)
    await sessions.move(session, State.PENDING, code="SCHED", orchestrator=OrchestratorId(IDLE))
    await sessions.open(session, upstream={"host": "127.0.0.1", "port": 1, "driverSessionID": ""}, actual={})
    await sessions.move(session, State.ALIVE, code="NALIVE")
    node_beat(session).write(scene.store)

    assert (await scene.client.title(session)).error == "404 invalid session id"

    await logged(scene.store, session, "NLOST")
    await sessions.move(session, State.TERMINATED, code="TERM")
    return session


WALKS: dict[Walk, str] = {
    straight_on: "QUEUED NALLOC SCHED PENDING BOOT DSTART DALIVE LSINIT NALIVE CLOSED HALT",
    with_a_browser_that_nobody_has: "QUNAVAILABLE",
    without_a_free_slot: "QUEUED QTIMEOUT",
    with_a_client_that_leaves: "QUEUED CLEFT",
    with_an_orchestrator_that_does_nothing: "QUEUED NALLOC OTIMEOUT",
    with_a_node_that_never_comes: "QUEUED NALLOC SCHED PENDING NTIMEOUT",
    that_its_orchestrator_cannot_start: "NALLOC SCHED STARTFAIL",
    whose_client_falls_silent: "NALIVE STIMEOUT HALT",
    whose_driver_dies: "NALIVE DFAILURE TERM HALT",
    whose_client_hangs_up: "NALIVE CLOST CLOSED HALT",
    with_options_that_are_left_out: "DALIVE IGNORED LSINIT CLOSED HALT",
    whose_recording_fails: "NALIVE RFAILURE CLOSED HALT",
    whose_client_tells_of_its_test: "NALIVE EVENT CLOSED HALT",
    whose_first_node_dies: "SCHED RESCHED NALIVE CLOSED HALT",
    whose_node_has_gone: "NALIVE NLOST TERM",
}
"""The codes that each session must have, each component's in this order."""

SLUGGISH_WALK = "BOOT DSTART DTIMEOUT TERM HALT"


@contextmanager
def open_roles() -> Iterator[Deployment]:
    with open_deployment() as deployment:
        for role in ("gateway", "manager", "orchestrator"):
            deployment.run(role)
        yield deployment
        deployment.stop()


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with open_roles() as deployment:
        yield deployment


@asynccontextmanager
async def open_scene(deployment: Deployment) -> AsyncIterator[Scene]:
    async with Store(deployment.redis_url) as store:
        await eventually(lambda: is_open(store), DEADLINE)
        async with open_client(store) as client:
            yield Scene(store, client, deployment)


@pytest.fixture
async def scene(deployment: Deployment) -> AsyncIterator[Scene]:
    async with open_scene(deployment) as scene:
        await grids.advertise(scene.store, IDLE, "idle::1")
        await grids.own_slots(scene.store, IDLE, 4)
        await grids.advertise(scene.store, "full", "slotless::1")
        yield scene
        await scene.limit(**msgspec.to_builtins(Timeouts()))


@pytest.fixture
async def sluggish_scene() -> AsyncIterator[Scene]:
    """One where no driver ever starts fast enough."""
    with open_deployment() as deployment:
        async with Store(deployment.redis_url) as store:
            await grids.set_timeouts(store, driverStartup=0.001)
        deployment.run("gateway", "manager", "orchestrator")
        async with open_scene(deployment) as scene:
            yield scene
        deployment.stop()


async def logged(store: Store, session: SessionId, code: str) -> None:
    """Waits until the code is in the session's log."""

    async def is_there() -> bool:
        return code in await grids.codes_of(store, session)

    await eventually(is_there, DEADLINE)


async def entries_of(store: Store, session: SessionId) -> list[tuple[str, dict[str, Any]]]:
    return stream_entries(await store.xrange(grid.SESSION_LOG(session)))


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.__name__)
async def test_a_session(scene: Scene, walk: Walk) -> None:
    await check_walk(scene, walk, WALKS[walk])


async def test_a_session_whose_driver_takes_too_long(sluggish_scene: Scene) -> None:
    await check_walk(sluggish_scene, whose_driver_takes_too_long, SLUGGISH_WALK)


async def check_walk(scene: Scene, walk: Walk, codes_expected: str) -> None:
    expected = codes_expected.split()

    session = await walk(scene)

    await logged(scene.store, session, expected[-1])
    entries = await entries_of(scene.store, session)
    for _, entry in entries:
        declared = BY_CODE[entry["code"]]
        assert (entry["component"], entry["level"]) == (declared.component, declared.level)
    codes = [entry["code"] for _, entry in entries]
    for component in ("manager", "orchestrator", "node", "proxy"):
        wanted = [code for code in expected if BY_CODE[code].component == component]
        assert [code for code in codes if code in wanted] == wanted
    if set(codes) & {"CLOSED", "STIMEOUT", "DFAILURE", "DTIMEOUT", "STARTFAIL"}:
        await eventually(lambda: has_ended(scene.store, session), DEADLINE)


# Nodes wait with the driver of the first browser running, which may be that of others as well.
COLD = [name for name, found in BROWSERS.items() if found.driver != next(iter(BROWSERS.values())).driver]


@pytest.mark.skipif(not COLD, reason="only one driver here, which is kept warm")
async def test_a_driver_is_alive_when_it_is_and_not_before(scene: Scene) -> None:
    session = await scene.client.open(COLD[0])
    await scene.client.close(session)

    at = {entry["code"]: number for number, entry in await entries_of(scene.store, session)}
    moments = [int(at[code].partition("-")[0]) for code in ("BOOT", "DSTART", "DALIVE", "LSINIT")]
    assert moments == sorted(moments)
    assert moments[1] < moments[2]


def test_every_code_is_walked_through() -> None:
    assert {code for codes in (*WALKS.values(), SLUGGISH_WALK) for code in codes.split()} == set(BY_CODE)
