"""A whole grid in one loop whose members can be killed between any two of their steps.

Managers, orchestrators, nodes and the gc are the real ones; each talks to Redis over a connection of its own
that goes dead before its n-th command, as after a `kill -9`: nothing that it wanted to write afterwards is
written. Only the driver and its browser are fakes. Time passes where a test says so: then the beats of the
dead run out, and those of the living do not.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import aiohttp

from credentials import herd_headers
from remuda.base.confinement import Confinement
from remuda.base.ids import NodeId, OrchestratorId, SessionId, new_id
from remuda.fleet.line import Lines
from remuda.fleet.relay import Address
from remuda.grid.browsers import Browser
from remuda.grid.capabilities import Offer
from remuda.grid.manager import Manager
from remuda.grid.node import node as node_module
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.ending import Ending
from remuda.grid.node.node import Node
from remuda.grid.orchestrator.provisioner import Note, OnGone
from remuda.grid.orchestrator.role import Orchestrator
from remuda.store import Store
from remuda.store.commands import Value
from sweeping import Killed, Mortal, keys_with, sweep_all
from waiting import eventually

CHROME = Browser("chrome", "81.0", Path("/chrome"), Path("/driver"), "81.0", ("chrome",))
REQUEST = {"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}
IMMORTAL = 1 << 60
SECOND_BREATH = 0.01
SHORT_LEASE = 0.5
"""For a dead manager's places in the queue, which are not beats."""


class FakeDriver:
    """What a node asks of its driver, and a browser that is always there at once."""

    def __init__(
        self,
        name: NodeId,
        browser: Browser,
        confinement: Confinement,
        *,
        kin: Sequence[Browser] = (),
        headless: bool = True,
        with_programs: bool = False,
    ) -> None:
        self.browser = browser
        self.confinement = confinement
        self.directory = Path("/nowhere") / name
        self.address = self.bidi_address = Address("127.0.0.1", 9)
        self.prefix = ""
        self.launcher: Path | None = None
        self.is_stopped = False

    async def start(self, *, timeout: float) -> None: ...

    def choose_browser(self, number: int) -> None: ...

    async def stop(self) -> None:
        await asyncio.sleep(SECOND_BREATH)
        self.is_stopped = True

    def take_early(self) -> None: ...

    async def new_session(self, request: Any, *, timeout: float) -> tuple[str, dict[str, Any]]:
        return new_id(), {"browserName": "chrome", "browserVersion": "81.0"}

    def browser_pid(self, actual: dict[str, Any]) -> None: ...

    async def ended(self) -> int:
        return await asyncio.Event().wait()

    def tail(self) -> str:
        return ""


class Member(Mortal):
    """The connection of one member of the grid, who is dead once it is."""

    def __init__(self, url: str, beats: dict[str, "Member"]) -> None:
        super().__init__(url)
        self.lives = IMMORTAL
        self.died = asyncio.Event()
        self._beats = beats

    def _step(self) -> None:
        try:
            super()._step()
        except Killed:
            self.died.set()
            raise

    def kill(self) -> None:
        self.lives = 0
        self.died.set()

    def pack(self, args: Sequence[Value]) -> bytes:
        # Also as part of a script that makes several commands one.
        for command, key in pairwise(args):
            if command == "SET" and "heartbeat" in str(key):
                self._beats[str(key)] = self
        return super().pack(args)


class NodeProvisioner:
    """Starts nodes that live on when their orchestrator dies, and hears of their end while it lives."""

    kind = "local"

    def __init__(self, chaos: "Chaos", own: OrchestratorId) -> None:
        self._chaos = chaos
        self._own = own
        self.on_gone: OnGone

    async def start(self, on_gone: OnGone) -> list[Offer]:
        self.on_gone = on_gone
        return [Offer("chrome", "81.0", "linux")]

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]], note: Note) -> None:
        await note("a node")
        self._chaos.fork_node(self._own, session)

    async def adopt(self, session: SessionId, noted: str) -> bool:
        return self._chaos.has_node(session)

    def has_node(self, session: SessionId) -> bool:
        return self._chaos.has_node(session)

    def find_stopped(self) -> list[SessionId]:
        return []

    async def end(self, session: SessionId) -> None:
        await self._chaos.end_node(session)

    async def stop(self) -> None: ...


class Chaos:
    """The grid, its clients, and the dice that say who dies when."""

    def __init__(
        self, url: str, dice: Random, *, slots: dict[OrchestratorId, int], is_calm: bool = False
    ) -> None:
        self.slots = slots
        self._url = url
        self._dice = dice
        self._stack = AsyncExitStack()
        self._beats: dict[str, Member] = {}
        self._is_calm = is_calm
        self._managers: dict[str, Manager] = {}
        self._provisioners: dict[OrchestratorId, NodeProvisioner] = {}
        self._nodes: dict[SessionId, tuple[OrchestratorId, Node, Member, asyncio.Task[None]]] = {}
        self._members: set[Member] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self.wrongs: list[str] = []
        """What happened that never may: nodes beyond their number."""

    async def __aenter__(self) -> "Chaos":
        self.store = await self._stack.enter_async_context(Store(self._url))
        http = aiohttp.ClientSession(headers=await herd_headers(self.store))
        self._http = await self._stack.enter_async_context(http)
        asyncio.get_running_loop().set_exception_handler(_hear)
        self._stack.enter_context(patch.object(node_module, "Driver", FakeDriver))
        self._stack.enter_context(patch.dict(Lines.__init__.__kwdefaults__, lease=SHORT_LEASE))
        for own in self.slots:
            self._keep(partial(self._orchestrate, own))
        for name in ("m1", "m2"):
            self._keep(partial(self._manage, name))
        self._keep(self._sweep)
        self._keepers.append(asyncio.create_task(self._let_time_pass()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in list(self._members):
            member.kill()
        for task in [*self._keepers, *(node[3] for node in self._nodes.values())]:
            task.cancel()
        await asyncio.gather(
            *self._keepers, *(node[3] for node in self._nodes.values()), return_exceptions=True
        )
        await self._stack.aclose()

    # Members

    def _keep(self, live: Callable[[Member], Coroutine[Any, Any, None]]) -> None:
        async def keep() -> None:
            while True:
                await self._live_once(live)

        self._keepers.append(asyncio.create_task(keep()))

    async def _live_once(self, live: Callable[[Member], Coroutine[Any, Any, None]]) -> None:
        """One life of a member, to its end."""
        async with Member(self._url, self._beats) as member:
            self._members.add(member)
            member.lives = self._lives(60)
            try:
                await _until_the_end(live(member), member)
            finally:
                self._members.discard(member)

    def _lives(self, most: int) -> int:
        """How many steps somebody has before the end; nobody ends for every second one, and in a calm."""
        mortal = not self._is_calm and self._dice.random() < 0.5
        return self._dice.randrange(most) if mortal else IMMORTAL

    async def _manage(self, name: str, member: Member) -> None:
        manager = Manager(member)
        try:
            await manager.start()
            self._managers[name] = manager
            await manager.serve()
        finally:
            self._managers.pop(name, None)
            _pull_the_plug(manager)

    async def _orchestrate(self, own: OrchestratorId, member: Member) -> None:
        provisioner = NodeProvisioner(self, own)
        orchestrator = Orchestrator(member, provisioner, orchestrator_id=own, slots=self.slots[own])
        await orchestrator.start()
        self._provisioners[own] = provisioner
        try:
            await orchestrator.serve()
        finally:
            self._provisioners.pop(own, None)

    async def _sweep(self, member: Member) -> None:
        while True:
            await sweep_all(member)
            await asyncio.sleep(SECOND_BREATH)

    # Nodes

    def fork_node(self, own: OrchestratorId, session: SessionId) -> None:
        """A new node; there is never more than one for a session, nor more than there are slots."""
        if session in self._nodes:
            self.wrongs.append(f"{session} has got a second node")
        member = Member(self._url, self._beats)
        node = Node(member, NodeId(f"node-{session}"), CHROME)
        task = asyncio.create_task(self._hold(own, session, node, member))
        self._nodes[session] = own, node, member, task
        # A node whose browser is gone has given its slot back, and only says its last words.
        running = sum(
            each == own and not node._driver.is_stopped  # type: ignore[attr-defined]
            for each, node, *_ in self._nodes.values()
        )
        if running > self.slots[own]:
            self.wrongs.append(f"{running} nodes of {own}")

    def has_node(self, session: SessionId) -> bool:
        return session in self._nodes

    async def _hold(self, own: OrchestratorId, session: SessionId, node: Node, member: Member) -> None:
        try:
            async with member:
                self._members.add(member)
                member.lives = self._lives(20)
                await _until_the_end(_work(node, session), member)
        finally:
            self._members.discard(member)
            del self._nodes[session]
            if (provisioner := self._provisioners.get(own)) is not None:
                provisioner.on_gone(session)

    async def end_node(self, session: SessionId) -> None:
        """Ends a session's node and waits until it is gone."""
        if session in self._nodes:
            _, node, _, task = self._nodes[session]
            node.end(Ending("TERM"))
            await asyncio.wait([task])

    # Clients and time

    async def ask(self) -> SessionId | None:
        """What a client gets: a session, an error, or a connection that breaks with its manager."""
        await eventually(lambda: self._managers)
        manager = self._dice.choice(list(self._managers.values()))
        try:
            async with self._http.post(f"http://{manager.address}/session", json=REQUEST) as response:
                value = (await response.json())["value"]
        except aiohttp.ClientError:
            return None
        if response.status == 200:
            return SessionId(value["sessionId"])
        assert value["error"] == "session not created", value
        return None

    async def _let_time_pass(self) -> None:
        while True:
            for key in await keys_with(self.store, "heartbeat"):
                if (owner := self._beats.get(key)) is not None and owner.died.is_set():
                    await self.store.delete(key)  # type: ignore[arg-type]
            await asyncio.sleep(SECOND_BREATH)

    async def calm(self) -> None:
        """From now on nobody dies, and whoever was to die soon already has, and is back."""
        self._is_calm = True
        for member in self._members:
            if member.lives < IMMORTAL // 2:
                member.kill()


async def _until_the_end(work: Coroutine[Any, Any, None], member: Member) -> None:
    """Lets somebody work until that is done or the end has come; afterwards it is dead in any case."""
    working, dying = asyncio.create_task(work), asyncio.create_task(member.died.wait())
    try:
        await asyncio.wait([working, dying], return_when=asyncio.FIRST_COMPLETED)
    finally:
        member.kill()
        for task in (working, dying):
            task.cancel()
            with suppress(BaseException):  # Whatever it says now, nobody hears it.
                await task


def _hear(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Hears what tasks die of that nobody waits for. That somebody was killed is no news."""
    error = context.get("exception")
    rest = error.split(Killed)[1] if isinstance(error, BaseExceptionGroup) else error
    if rest is not None and not isinstance(rest, Killed):
        loop.default_exception_handler(context)


async def _work(node: Node, session: SessionId) -> None:
    node.warm_up()
    await node.hold(Assignment(session, 0))


def _pull_the_plug(manager: Manager) -> None:
    """Closes the sockets of a manager that was killed, as the kernel would."""
    if manager._server is not None:
        manager._server.close()
    manager._relay.close()
    # A connection that the loop had already accepted shows up only now.
    asyncio.get_running_loop().call_later(SECOND_BREATH, manager._relay.close)
