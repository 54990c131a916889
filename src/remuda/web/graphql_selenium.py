"""What /graphql answers in Selenium Grid 4's words, to KEDA's scaler, exporters and Grid's own dashboard.

One of its nodes is one of our orchestrators, as in `/status`. KEDA stops working at a `browserName`,
`browserVersion` or `platformName` that is no string and at a `se:downloadsEnabled` that is no boolean, so
those never leave here.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from remuda import __version__
from remuda.base import clock
from remuda.base.errors import SessionLost
from remuda.base.ids import SlotId
from remuda.grid.model import State
from remuda.grid.slots import owner_of
from remuda.grid.view import Browser, OrchestratorView, SessionView
from remuda.web.graphql_look import Look, to_json
from remuda.web.grid4 import availability
from remuda.web.stereotypes import named, stereotype

_KINDS = {"browserName": str, "browserVersion": str, "platformName": str, "se:downloadsEnabled": bool}

Answer = dict[str, Any]


class Selenium:
    """The resolvers of Selenium Grid's part of the schema."""

    def __init__(self, look: Look) -> None:
        self._look = look

    async def grid(self, _info: Any) -> Answer:
        """The herd in numbers. A dead orchestrator's slots are none, and its node is only shown as down."""
        found = await self._look.orchestrators()
        alive = [each for each in found if each.alive]
        return {
            "uri": self._look.uri,
            "version": __version__,
            "nodeCount": len(alive),
            "sessionCount": sum(each.held for each in alive),
            "maxSession": sum(len(each.slots) for each in alive),
            "totalSlots": sum(_slot_count(each) for each in alive),
            "sessionQueueSize": len(await self._waiting()),
        }

    async def nodes_info(self, _info: Any) -> Answer:
        found = await self._look.orchestrators()
        sessions = {each.id: each for each in (await self._look.active()).sessions}
        return {"nodes": [self._node(each, sessions) for each in found]}

    async def sessions_info(self, _info: Any) -> Answer:
        return {"sessionQueueRequests": self._requests, "sessions": self._sessions}

    async def session(self, _info: Any, id: str) -> Answer | None:  # noqa: A002 - the argument's public name
        try:
            found = await self._look.herd.view.session(id)
        except SessionLost:
            return None
        # Grid forgets a session when it ends.
        return None if found.slot is None or found.state is State.TERMINATED else self._session(found)

    async def _requests(self, _info: Any) -> list[str]:
        sets = await asyncio.gather(*(self._look.requested(each) for each in await self._waiting()))
        # Grid shows one set a request, and KEDA counts the texts.
        return [to_json(_plain(next(iter(each), {}))) for each in sets]

    async def _sessions(self, _info: Any) -> list[Answer]:
        return [self._session(each) for each in (await self._look.active()).sessions if each.slot]

    async def _waiting(self) -> list[SessionView]:
        active = await self._look.active()
        return [each for each in active.sessions if each.slot is None and each.state is State.QUEUED]

    def _node(self, orchestrator: OrchestratorView, sessions: dict[str, SessionView]) -> Answer:
        holders = (sessions.get(slot.session or "") for slot in orchestrator.slots)
        stereotypes = [
            {"slots": len(orchestrator.slots), "stereotype": stereotype(browser)}
            for browser in orchestrator.browsers
        ]
        return {
            "id": orchestrator.id,
            "uri": self._look.uri,
            "status": availability(orchestrator),
            "version": __version__,
            "maxSession": len(orchestrator.slots),
            "sessionCount": orchestrator.held,
            "slotCount": _slot_count(orchestrator),
            "stereotypes": to_json(stereotypes),
            "osInfo": to_builtins(orchestrator.machine),
            "sessions": [self._session(each) for each in holders if each is not None],
        }

    def _session(self, session: SessionView) -> Answer:
        async def capabilities(_info: Any) -> str:
            actual = await self._look.actual(session)
            return to_json(_plain(actual if actual is not None else await held()))

        async def slot_stereotype(_info: Any) -> str:
            return to_json(await held())

        async def held() -> Answer:
            owners = await self._look.orchestrators()
            return _held(session, next((each for each in owners if each.id == owner), None))

        slot = session.slot or ""
        owner = owner_of(SlotId(slot))
        started = _moment(session.alive_at or session.queued_at)
        return {
            "id": session.id,
            "capabilities": capabilities,
            "startTime": _grid_time(started),
            "uri": self._look.uri,
            "nodeId": owner,
            "nodeUri": self._look.uri,
            "sessionDurationMillis": str(int(max(0.0, clock.now() - started) * 1000)),
            "slot": {
                "id": slot,
                "stereotype": slot_stereotype,
                "lastStarted": _grid_time(started),
            },
        }


def _slot_count(orchestrator: OrchestratorView) -> int:
    """Its slots as Grid counts them: once for each browser, while `maxSession` says how many at a time."""
    return len(orchestrator.slots) * len(orchestrator.browsers)


def _held(session: SessionView, owner: OrchestratorView | None) -> Answer:
    """What a session's slot stands for: the browser and platform that it got, the version that it asked for.

    KEDA counts a session for a trigger only if their platforms are the same and the session's version begins
    the trigger's, or neither has one. Selenium Grid always names the platform of a slot, so triggers
    do. The version that a session got is too exact for any trigger.
    """
    got = session.actual or Browser("", "", owner.platform if owner else "")
    sets = session.requested or [Browser("", "", "")]
    asked = next((each for each in sets if each.name == got.name), sets[0])
    return named(Browser(got.name or asked.name, asked.version, got.platform or asked.platform))


def _plain(capabilities: Any) -> Answer:
    if not isinstance(capabilities, dict):
        return {}
    return {
        name: value
        for name, value in capabilities.items()
        if name not in _KINDS or isinstance(value, _KINDS[name])
    }


def _moment(stamp: str | None) -> float:
    try:
        return clock.parse_rfc3339(stamp or "")
    except ValueError:
        return 0.0  # Somebody else wrote it, in a form of theirs.


def _grid_time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%d/%m/%Y %H:%M:%S")
