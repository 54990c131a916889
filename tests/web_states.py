"""States of the grid to look at, written by the parts that write them in earnest, but without a browser."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import msgspec

from configs import make_config
from credentials import OPERATOR, herd_headers
from granted import id_of_token
from remuda.accounts.tokens import Tokens
from remuda.base.errors import AlreadyExists, UpstreamUnavailable
from remuda.base.ids import OrchestratorId, SessionId, SlotId, new_id
from remuda.cli.rooms import ROOMS
from remuda.fleet.origin import DEFAULT_ACCOUNT, Origin, Scope
from remuda.fleet.relay import Address
from remuda.fleet.role import Role
from remuda.fleet.room import Room, Surroundings
from remuda.fleet.route import Route
from remuda.fleet.secret import HerdSecret
from remuda.gateway.directory import Viewer
from remuda.gateway.door import Door
from remuda.grid.capabilities import Capabilities, Offer
from remuda.grid.model import State
from remuda.grid.omission import encode_request
from remuda.grid.orchestrator.provisioner import Note, OnGone
from remuda.grid.orchestrator.role import Orchestrator
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.slots import Slots
from remuda.keyspace import grid
from remuda.storage.model import StorageId
from remuda.store import Store
from remuda.web.api import Api

CHROME = Offer("chrome", "130.0.6723.91", "linux")
FIREFOX = Offer("firefox", "128.3.1", "linux")


class NoBrowsers:
    """A provisioner that offers browsers and starts none."""

    kind = "local"

    def __init__(self, *offers: Offer) -> None:
        self._offers = offers or (CHROME,)

    async def start(self, on_gone: OnGone) -> list[Offer]:
        return list(self._offers)

    async def provision(self, session: SessionId, wanted: list[Capabilities], note: Note) -> None: ...

    async def adopt(self, session: SessionId, noted: str) -> bool:
        return False

    def has_node(self, session: SessionId) -> bool:
        return True

    def find_stopped(self) -> list[SessionId]:
        return []

    async def end(self, session: SessionId) -> None: ...

    async def stop(self) -> None: ...


def orchestrator(store: Store, name: str = "ranch", *offers: Offer, slots: int = 2) -> Orchestrator:
    """An orchestrator that registers and takes no sessions by itself."""
    return Orchestrator(store, NoBrowsers(*offers), orchestrator_id=OrchestratorId(name), slots=slots)


@asynccontextmanager
async def running(*roles: Role) -> AsyncIterator[None]:
    """Starts the roles, and stops them in the opposite order. They serve nothing meanwhile."""
    started: list[Role] = []
    try:
        for role in roles:
            started.insert(0, role)
            await role.start()
        yield
    finally:
        for role in started:
            await role.stop()


class SessionWriter:
    """Leads sessions through their life, as manager, orchestrator and node would."""

    def __init__(self, store: Store, account: str = DEFAULT_ACCOUNT) -> None:
        self._store = store
        self._account = account
        self.sessions = Sessions(store)

    async def queue(self, **capabilities: Any) -> SessionId:
        """A new session."""
        session = SessionId(new_id())
        await self.sessions.create(
            session,
            requested=encode_request([capabilities]),
            origin=Origin(account=self._account, address="10.0.0.7"),
            user_agent="selenium/4.27.0 (python linux)",
        )
        await self.sessions.log(session, "QUEUED")
        return session

    async def claim(self, name: str = "ranch", **capabilities: Any) -> tuple[SessionId, SlotId]:
        """A new session that holds a slot."""
        session = await self.queue(**capabilities)
        slot = await Slots(self._store).claim(session, [OrchestratorId(name)])
        assert slot is not None
        return session, slot

    async def schedule(self, name: str = "ranch", **capabilities: Any) -> SessionId:
        """A new session whose node is starting."""
        session, _ = await self.claim(name, **capabilities)
        owner = OrchestratorId(name)
        assert await self.sessions.move(session, State.PENDING, code="SCHED", orchestrator=owner)
        return session

    async def serve(self, name: str = "ranch", **capabilities: Any) -> SessionId:
        """A new session that its client uses."""
        offer = FIREFOX if capabilities.get("browserName") == "firefox" else CHROME
        session = await self.schedule(name, **capabilities)
        actual = {
            "browserName": offer.browser,
            "browserVersion": offer.version,
            "platformName": offer.platform,
            "goog:chromeOptions": {"debuggerAddress": "localhost:40001"},
        }
        async with self._store.transaction() as transaction:
            node_beat(session).write(transaction)
            transaction.hset(grid.SESSION_CAPABILITIES(session), {"actual": msgspec.json.encode(actual)})
        for code in ("BOOT", "DSTART", "DALIVE", "LSINIT"):
            await self.sessions.log(session, code)
        assert await self.sessions.move(session, State.ALIVE, code="NALIVE")
        return session

    async def end(self, session: SessionId, *, code: str = "CLOSED", **meta: Any) -> None:
        """The session's end, with its slot given back."""
        assert await self.sessions.move(session, State.TERMINATED, code=code, **meta)
        await Slots(self._store).release(session)


def new_api(store: Store, *rooms: Room) -> Api:
    """The api role of a herd with all rooms, and these."""
    return Api(Surroundings(store, make_config(), (*ROOMS, *rooms)))


def all_groups() -> Sequence[tuple[Room, Sequence[Route]]]:
    """Every route of the api role, by room."""

    async def declare() -> Sequence[tuple[Room, Sequence[Route]]]:
        return new_api(Store("redis://127.0.0.1:1")).groups

    return asyncio.run(declare())


def all_routes() -> Sequence[Route]:
    """Every route of the api role."""
    return [route for _, routes in all_groups() for route in routes]


@asynccontextmanager
async def serving(api: Api) -> AsyncIterator[str]:
    """The URL of the role, which serves meanwhile."""
    async with running(api):
        task = asyncio.create_task(api.serve(), name="serve api")
        try:
            yield f"http://{api.address}"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class OnlyApi:
    """A directory in which there is nothing but an api role."""

    def __init__(self, api: Api) -> None:
        host, _, port = api.address.rpartition(":")
        self._address = Address(host, int(port))

    def find_api(self) -> Address:
        return self._address

    def find_manager(self) -> Address:
        raise UpstreamUnavailable

    def find_node(self, session: SessionId, viewer: Viewer) -> Address:
        raise UpstreamUnavailable

    def is_known(self, session: SessionId, viewer: Viewer) -> bool:
        return False

    def find_storage(self, storage: StorageId) -> Address:
        raise UpstreamUnavailable

    def forget(self, address: Address, *, may_run: bool) -> None: ...


@asynccontextmanager
async def front_of(api: Api, store: Store) -> AsyncIterator[str]:
    """The URL of a front door to the role, which serves meanwhile: a browser can show no credential."""
    secret = HerdSecret(store)
    await secret.read()
    async with serving(api):
        door = Door(OnlyApi(api), secret=secret)
        server = await asyncio.get_running_loop().create_server(door.relay.protocol, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            door.relay.close()


@asynccontextmanager
async def visiting(store: Store) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of an api role that serves meanwhile."""
    async with serving(new_api(store)) as url, herd_client(store, url) as client:
        yield client


@asynccontextmanager
async def herd_client(
    store: Store, url: str, origin: Origin = OPERATOR
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client at an internal port, to which it is the herd; it asks for whom the origin says."""
    async with aiohttp.ClientSession(url, headers=await herd_headers(store, origin)) as client:
        yield client


@asynccontextmanager
async def account_client(
    store: Store, url: str, account: str, *scopes: Scope
) -> AsyncIterator[aiohttp.ClientSession]:
    """The same for a client of an account, whose token is good for these scopes; by default for its use."""
    granted = frozenset(scopes or (Scope.USE,))
    with suppress(AlreadyExists):
        await Tokens(store).create("ci", account=account, scopes=granted)
    token_id = await id_of_token(store, account)
    origin = Origin(account=account, address="10.0.0.8", token="ci", token_id=token_id, scopes=granted)
    async with herd_client(store, url, origin) as client:
        yield client


async def get(client: aiohttp.ClientSession, path: str, *, method: str = "GET") -> tuple[int, Any]:
    """Status and JSON of an answer."""
    async with client.request(method, path) as response:
        return response.status, msgspec.json.decode(await response.read())
