"""A room that only these tests have: what it declares works without a change elsewhere."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import aiohttp
import pytest
from aiohttp import ClientWSTimeout, WSMsgType
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.websockets import WebSocket

from configs import make_config
from remuda.base.config import Config, HerdConfig
from remuda.base.errors import InvalidArgument, Misconfigured, Unavailable
from remuda.cli.crews import Crews
from remuda.cli.rooms import ROOMS
from remuda.cli.run import run_roles
from remuda.fleet.metrics import Metric, MetricKind, one
from remuda.fleet.role import Life, Role
from remuda.fleet.room import (
    Check,
    CheckState,
    Crew,
    Demand,
    Growth,
    OverviewPart,
    Question,
    RoleKind,
    Room,
    Surroundings,
    Topic,
    role_kinds,
)
from remuda.fleet.route import WEBSOCKET, Route, text_route
from remuda.grid.manager import Manager
from remuda.ops.doctor import examine
from remuda.ops.gc import Gc
from remuda.storage.role import Storage
from remuda.store import Store
from remuda.web.api import Api
from remuda.web.overview import Overview
from storages import JobArtifacts, asking, write_file
from waiting import eventually
from web_states import front_of, get, herd_client, new_api, orchestrator, running, serving

DEADLINE = ClientWSTimeout(ws_receive=20.0, ws_close=20.0)
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class RideArtifacts(JobArtifacts):
    """A kind of owner that no real room has."""

    name = "ride"


class Farrier(Role):
    """Does nothing."""

    name = "farrier"


async def shoe() -> Counter[str]:
    return Counter(shod=4)


async def forge() -> str:
    return "hot"


async def count_nails(_on: Surroundings) -> int:
    return 12


async def count_lost(_on: Surroundings) -> int:
    raise LookupError("Nobody has counted them")


def look_at_anvil(config: Config) -> list[Check]:
    return [Check("anvil", CheckState.OK, f"stands in {config[HerdConfig].data}")]


class Order(Struct):
    """What a horse needs."""

    horse: str
    shoes: Annotated[int, Meta(ge=1, le=4)] = 4


class PumpQuery(Struct):
    """How often the bellows are pumped."""

    strokes: int = 1


class Bill(Struct):
    """What it costs."""

    total: int


class ForgeOverview(Struct):
    """What the dashboard shows of the forge."""

    degrees: int


class Forge:
    """Serves what the toy room declares."""

    def __init__(self) -> None:
        self.degrees = 900
        self.is_watched = False

    async def order(self, request: Request, order: Order) -> Bill:
        return Bill(total=order.shoes * 10)

    async def watch(self, _request: Request) -> AsyncIterator[bytes]:
        return self._sparks()

    async def _sparks(self) -> AsyncIterator[bytes]:
        self.is_watched = True
        try:
            yield b"spark\n"
            await asyncio.Event().wait()
        finally:
            self.is_watched = False

    async def pump(self, websocket: WebSocket, query: PumpQuery) -> None:
        if query.strokes == 0:
            raise InvalidArgument("Pump at least once.")
        await websocket.accept()
        self.is_watched = True
        try:
            for _ in range(query.strokes):
                await websocket.send_text(f"{await websocket.receive_text()} whoosh")
            if query.strokes == 2:
                raise Unavailable("The bellows are torn.")
        finally:
            self.is_watched = False

    async def overview(self, _limited_to: str | None) -> ForgeOverview:
        self.degrees += 1
        return ForgeOverview(self.degrees)

    def room(self) -> Room:
        return Room(
            name="forge",
            routes=lambda _: [
                Route("POST", "/forge/orders", "Order shoes", self.order, Bill, body=Order, max_body=100),
                Route("GET", "/forge/live", "Sparks", self.watch, "text/plain"),
                Route(WEBSOCKET, "/forge/bellows", "Pump", self.pump, "text/plain", query=PumpQuery),
            ],
            overview=lambda _: OverviewPart(ForgeOverview, self.overview, lambda _: ForgeOverview(0)),
            check_readiness=self.check_readiness,
        )

    async def check_readiness(self, _on: Surroundings) -> str:
        if self.degrees < 1000:
            raise Unavailable("The forge is cold.")
        return "A horse can be shod."


TOY = Room(
    name="toy",
    roles=[
        RoleKind(name="farrier", make=lambda _: Farrier()),
        RoleKind(name="loner", make=lambda _: Farrier(), needs_own_process=True),
    ],
    routes=lambda _: [text_route("/forge", "How the forge is", "text/plain", forge)],
    sweeps=lambda _: {"hooves": shoe},
    owners=lambda _: [RideArtifacts()],
    metrics=lambda: [
        Metric("toy_nails", MetricKind.GAUGE, (), "Nails in the box", (), count_nails, one),
        Metric("toy_lost", MetricKind.GAUGE, (), "Shoes that were lost", (), count_lost, one),
    ],
    questions=lambda: [Question(Topic.RECORDING, look_at_anvil)],
)
HOUSE = (*ROOMS, TOY)


async def test_no_two_rooms_declare_the_same_name(store: Store) -> None:
    on = Surroundings(store, make_config(), ROOMS)
    declared = Counter[object](("role", kind.name) for room in ROOMS for kind in room.roles)
    for room in ROOMS:
        declared.update(("sweep", name) for name in room.sweeps(on))
        declared.update(("route", route.method, route.path) for route in room.routes(on))
        declared.update(("metric", metric.name) for metric in room.metrics())
        declared.update(("owner", owner.name) for owner in room.owners(on))
        declared.update(("option", each.name) for section in room.config for each in fields(section))

    assert [name for name, count in declared.items() if count > 1] == []


def test_every_role_of_a_room_can_be_run() -> None:
    assert role_kinds(HOUSE)["farrier"] is TOY.roles[0]
    with pytest.raises(Misconfigured, match=r"There is no role 'smith'; the roles are .*, farrier, loner"):
        run_roles(["smith"], make_config(), rooms=HOUSE)


def test_a_role_that_needs_its_own_process_shares_none() -> None:
    with pytest.raises(Misconfigured, match="A loner needs a process of its own"):
        run_roles(["farrier", "loner"], make_config(), rooms=HOUSE)


async def test_the_gc_does_the_sweeps_of_a_room(store: Store) -> None:
    gc = role_kinds(HOUSE)["gc"].make(Surroundings(store, make_config(), HOUSE))
    assert isinstance(gc, Gc)

    assert (await gc.run_once())["shod"] == 4


async def test_the_api_serves_the_routes_of_a_room_and_describes_them(store: Store) -> None:
    api = role_kinds(HOUSE)["api"].make(Surroundings(store, make_config(), HOUSE))
    assert isinstance(api, Api)

    async with serving(api) as url, herd_client(store, url) as client:
        async with client.get("/forge") as response:
            assert await response.text() == "hot"
        async with client.get("/api/openapi.json") as response:
            assert (await response.json())["paths"]["/forge"]["get"]["summary"] == "How the forge is"


async def test_the_api_reads_a_body_that_a_route_declares(store: Store) -> None:
    api = new_api(store, Forge().room())

    async with serving(api) as url, herd_client(store, url) as client:
        async with client.post("/forge/orders", json={"horse": "Bess", "shoes": 2}) as response:
            assert await response.json() == {"total": 20}
        async with client.get("/api/openapi.json") as response:
            document = await response.json()

    described = document["paths"]["/forge/orders"]["post"]["requestBody"]["content"]["application/json"]
    assert described == {"schema": {"$ref": "#/components/schemas/Order"}}
    assert document["components"]["schemas"]["Order"]["properties"]["shoes"]["maximum"] == 4


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b'{"horse": "Bess", "shoes": 5}', "$.shoes"),
        (b'{"shoes": 4}', "`horse`"),
        (b"no JSON", "Order in JSON"),
        (b'{"horse": "%s"}' % (b"x" * 100), "longer than 100 bytes"),
    ],
)
async def test_a_wrong_body_is_refused_with_the_field_that_is_wrong(
    store: Store, body: bytes, wrong: str
) -> None:
    async with (
        serving(new_api(store, Forge().room())) as url,
        herd_client(store, url) as client,
        client.post("/forge/orders", data=body) as response,
    ):
        assert response.status == 400
        problem = (await response.json())["error"]

    assert problem["code"] == "invalid_argument"
    assert wrong in problem["message"]


async def test_a_stream_of_a_room_ends_with_its_viewer_and_with_the_api(store: Store) -> None:
    forge = Forge()
    api = new_api(store, forge.room())

    async with serving(api) as url, herd_client(store, url) as client:
        async with client.get("/forge/live") as response:
            assert await response.content.readline() == b"spark\n"
            assert response.headers["Cache-Control"] == "no-store"
        await eventually(lambda: not forge.is_watched)

        async with client.get("/forge/live") as response:
            assert await response.content.readline() == b"spark\n"
            async with asyncio.timeout(20.0):
                await api.drain()
                assert await response.content.read() == b""
        assert not forge.is_watched


@asynccontextmanager
async def front_door(store: Store, *rooms: Room) -> AsyncIterator[tuple[Role, aiohttp.ClientSession]]:
    """The api and a client of a herd with these rooms too, through its gateway."""
    on = Surroundings(store, make_config(port=0, gateway_drain=1), (*ROOMS, *rooms))
    api, gateway = (role_kinds(on.rooms)[name].make(on) for name in ("api", "gateway"))
    life = Life(store, [api, gateway])
    living = asyncio.create_task(life.run(), name="live")
    try:
        await eventually(lambda: gateway.address)
        async with aiohttp.ClientSession(f"http://{gateway.address}") as client:
            yield api, client
    finally:
        life.ask_stop_at_once()
        await living


async def test_a_websocket_of_a_room_is_served_at_the_front_door(store: Store) -> None:
    async with (
        front_door(store, Forge().room()) as (api, client),
        client.ws_connect("/forge/bellows?strokes=9", timeout=DEADLINE) as socket,
    ):
        await socket.send_str("one")
        assert await socket.receive_str() == "one whoosh"

        await api.drain()

        assert (await socket.receive()).data == 1012


async def test_a_websocket_of_a_room_is_described_and_closed_when_its_handler_returns(store: Store) -> None:
    api = new_api(store, Forge().room())

    async with serving(api) as url, herd_client(store, url) as client:
        async with client.ws_connect("/forge/bellows", timeout=DEADLINE) as socket:
            await socket.send_str("one")
            assert await socket.receive_str() == "one whoosh"
            end = await socket.receive()
            assert (end.type, end.data) == (WSMsgType.CLOSE, 1000)
        async with client.get("/api/openapi.json") as response:
            described = (await response.json())["paths"]["/forge/bellows"]["get"]

    assert described["summary"] == "Pump"
    assert described["responses"]["101"]["content"] == {"text/plain": {}}
    assert [each["name"] for each in described["parameters"]] == ["strokes"]


async def test_a_websocket_ends_with_the_api(store: Store) -> None:
    forge = Forge()
    api = new_api(store, forge.room())

    async with serving(api) as url, herd_client(store, url) as client:
        async with client.ws_connect("/forge/bellows", timeout=DEADLINE) as socket:
            await eventually(lambda: forge.is_watched)
            async with asyncio.timeout(20.0):
                await api.drain()
            end = await socket.receive()
            assert (end.type, end.data) == (WSMsgType.CLOSE, 1012)
        assert not forge.is_watched


async def test_a_websocket_ends_when_its_client_leaves(store: Store) -> None:
    forge = Forge()
    async with serving(new_api(store, forge.room())) as url, herd_client(store, url) as client:
        async with client.ws_connect("/forge/bellows", timeout=DEADLINE):
            await eventually(lambda: forge.is_watched)

        await eventually(lambda: not forge.is_watched)


async def test_an_error_of_a_websocket_that_is_open_closes_it_with_the_reason(store: Store) -> None:
    async with (
        serving(new_api(store, Forge().room())) as url,
        herd_client(store, url) as client,
        client.ws_connect("/forge/bellows?strokes=2", timeout=DEADLINE) as socket,
    ):
        for _ in range(2):
            await socket.send_str("on")
            await socket.receive_str()
        end = await socket.receive()

    assert (end.data, end.extra) == (1013, "The bellows are torn.")


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/forge/bellows?strokes=0", 400, "Pump at least once."),
        ("/forge/bellows?strokes=many", 400, "$.strokes"),
        ("/api/live", 404, "There is no WebSocket at /api/live: Playwright connects to"),
        ("/playwrights", 404, "/playwright/<browser>"),
        ("/chromium?a=b", 404, "at /chromium:"),
    ],
)
async def test_a_websocket_that_is_refused_hears_why(
    store: Store, path: str, status: int, message: str
) -> None:
    async with (
        front_of(new_api(store, Forge().room()), store) as url,
        aiohttp.ClientSession(url) as client,
        client.get(path, headers=UPGRADE) as response,
    ):
        assert response.status == status
        assert message in (await response.json())["error"]["message"]


async def test_a_web_page_of_elsewhere_gets_no_websocket(store: Store) -> None:
    async with (
        front_of(new_api(store, Forge().room()), store) as url,
        aiohttp.ClientSession(url) as client,
        client.get("/forge/bellows", headers={**UPGRADE, "Origin": "http://elsewhere.example"}) as response,
    ):
        assert response.status == 403


async def test_a_path_of_a_websocket_says_so_to_others(store: Store) -> None:
    async with (
        serving(new_api(store, Forge().room())) as url,
        herd_client(store, url) as client,
        client.get("/forge/bellows") as response,
    ):
        assert (response.status, response.headers["Upgrade"]) == (426, "websocket")


async def test_the_overview_shows_what_a_room_shows(store: Store) -> None:
    api = new_api(store, Forge().room())

    async with serving(api) as url, herd_client(store, url) as client:
        _, overview = await get(client, "/api/overview")
        _, document = await get(client, "/api/openapi.json")

    assert overview["degrees"] == 901
    assert list(overview) == list(document["components"]["schemas"]["Overview"]["properties"])


async def test_the_overview_of_a_room_is_news_only_if_more_than_time_has_changed(store: Store) -> None:
    overview = Overview(Surroundings(store, make_config(), [Forge().room()]))

    first, second = await overview.read(None), await overview.read(None)

    assert first != second
    assert overview.without_time(first) == overview.without_time(second)


async def test_the_herd_is_ready_when_every_room_is(store: Store) -> None:
    forge = Forge()
    async with (
        running(Manager(store), orchestrator(store)),
        serving(new_api(store, forge.room())) as url,
        herd_client(store, url) as client,
    ):
        cold = await get(client, "/readyz")
        forge.degrees = 1000
        hot = await get(client, "/readyz")

    assert (cold[0], cold[1]["error"]["message"]) == (503, "The forge is cold.")
    assert hot == (200, {"ready": True, "message": "A session can be created. A horse can be shod."})


async def test_the_storage_keeps_what_belongs_to_a_room(store: Store, tmp_path: Path) -> None:
    write_file(tmp_path, "ride_1", body=b"hello")
    on = Surroundings(store, make_config(storage=str(tmp_path)), HOUSE)
    storage = role_kinds(HOUSE)["storage"].make(on)
    assert isinstance(storage, Storage)

    async with running(storage), asking(storage, "ride_1/a.log") as answer:
        assert await answer.read() == b"hello"


async def test_the_metrics_of_a_room_are_scraped_without_those_that_fail(store: Store) -> None:
    api = role_kinds(HOUSE)["api"].make(Surroundings(store, make_config(), HOUSE))
    assert isinstance(api, Api)

    async with serving(api) as url, herd_client(store, url) as client, client.get("/metrics") as response:
        text = await response.text()

    assert "# HELP toy_nails Nails in the box\n# TYPE toy_nails gauge\ntoy_nails 12\n" in text
    assert "\ntoy_lost " not in text


async def test_the_doctor_asks_the_questions_of_a_room_and_of_no_other(tmp_path: Path) -> None:
    config = make_config(port=0, data=tmp_path)

    checks = await examine(config, [TOY])

    assert [check.name for check in checks[:3]] == ["python", "anvil", "redis"]
    assert checks[1].found == f"stands in {tmp_path}"
    assert not {"browser", "playwright", "protection"} & {check.name for check in checks}


def test_no_two_rooms_have_a_role_of_the_same_name() -> None:
    names = [kind.name for room in ROOMS for kind in room.roles]

    assert len(names) == len(set(names))


async def test_no_two_rooms_show_a_field_of_the_same_name(store: Store) -> None:
    on = Surroundings(store, make_config(), ROOMS)
    names = [field for room in ROOMS if room.overview for field in room.overview(on).kind.__struct_fields__]

    assert len({"at", "version", "roles", *names}) == len(names) + 3


async def test_what_a_room_needs_on_demand_is_started_when_it_is_wanted(redis_url: str) -> None:
    wanted, ready = asyncio.Event(), asyncio.Event()
    buried: list[str] = []

    async def bury(_store: Store, role: str) -> None:
        buried.append(role)

    async def until_wanted(_store: Store) -> None:
        await wanted.wait()

    # A process that ends at once, in bad order, since there is no such role.
    crew = Crew(role="no-such-role", count=2, wanted=until_wanted, bury=bury)
    room = Room(name="toy", demand=lambda _: Demand(crews=[crew]))
    crews = Crews(make_config(redis=redis_url), [room])
    running = asyncio.create_task(crews.keep_running(after=ready))
    await asyncio.wait_for(crews.announced.wait(), 30)
    ready.set()

    assert [child.pid for child in crews.children] == [0, 0]
    wanted.set()
    await eventually(lambda: len(buried) >= 2, 30)

    assert all(child.pid for child in crews.children)
    running.cancel()
    await asyncio.wait([running])


async def test_a_crew_grows_one_by_one_while_clients_wait_and_shrinks_when_they_are_gone(
    redis_url: str,
) -> None:
    crowd, idle = asyncio.Semaphore(0), asyncio.Event()
    dismissed: list[str] = []

    async def until_wanted(_store: Store) -> None:
        return

    async def until_crowded(_store: Store) -> None:
        await crowd.acquire()

    async def until_idle(_store: Store, role: str) -> None:
        await idle.wait()
        dismissed.append(role)

    async def bury(_store: Store, _role: str) -> None:
        return

    growth = Growth(most=2, crowded=until_crowded, idle=until_idle)
    crew = Crew(role="gc", wanted=until_wanted, bury=bury, growth=growth)
    room = Room(name="toy", demand=lambda _: Demand(crews=[crew]))
    crews = Crews(make_config(redis=redis_url), [room])
    ready = asyncio.Event()
    ready.set()
    running = asyncio.create_task(crews.keep_running(after=ready))
    first, *further = crews.children

    await asyncio.wait_for(first.ready.wait(), 30)
    assert [child.pid for child in further] == [0, 0]
    crowd.release()
    await asyncio.wait_for(further[0].ready.wait(), 30)
    assert further[1].pid == 0
    crowd.release()
    await asyncio.wait_for(further[1].ready.wait(), 30)

    roles = sorted(child.role for child in further)
    idle.set()
    await eventually(lambda: not any(child.ready.is_set() for child in further), 30)
    assert sorted(dismissed) == roles
    assert first.ready.is_set()

    # They come back, if need be.
    idle.clear()
    crowd.release()
    await eventually(lambda: [child.ready.is_set() for child in further].count(True) == 1, 30)
    running.cancel()
    await asyncio.wait([running])
    for child in crews.children:
        await child.stop(asyncio.Event())
