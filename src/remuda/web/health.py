"""What operators and their probes ask: does it live, and could a session be created?"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request

from remuda.base.errors import StoreUnavailable, Unavailable
from remuda.grid.view import OrchestratorView, live_managers, orchestrators
from remuda.store import Store
from remuda.store.memory import FULL, read_memory
from remuda.web.herd import Herd

# Probes are impatient: Kubernetes gives up after a second unless told otherwise.
PATIENCE = 1.0


class Health(Struct):
    """A good state, in words."""

    ready: bool
    message: str


async def healthz(_herd: Herd, _request: Request) -> Health:
    """`GET /healthz`: this process lives."""
    return Health(ready=True, message="This process lives.")


async def readyz(herd: Herd, _request: Request) -> Health:
    """`GET /readyz`: Redis answers, and a session could be created; Unavailable says what is missing."""
    try:
        async with asyncio.timeout(PATIENCE):
            managers = await live_managers(herd.store)
            found = await orchestrators(herd.store)
            reason = await why_unusable(herd.store, found)
    except TimeoutError:
        raise StoreUnavailable from None
    if not managers:
        raise Unavailable("No manager runs, so nobody can create a session.")
    if not any(each.alive for each in found):
        raise Unavailable("No orchestrator runs, so no node can be started.")
    if reason:
        raise Unavailable(f"No session can be created: {reason}.")
    if not any(each.in_service for each in found):
        raise Unavailable("Every orchestrator that runs is draining, so no new session is started.")
    if not any(each.in_service and each.slots for each in found):
        raise Unavailable("No orchestrator has a slot.")
    return Health(ready=True, message="A session can be created.")


async def why_unusable(store: Store, found: Sequence[OrchestratorView]) -> str:
    """What keeps a herd that runs from starting sessions, in words; empty when nothing does."""
    try:
        # A Redis that cannot write to its disk refuses this too, though it still answers what is read.
        await store.send("PING")
        memory = await read_memory(store)
    except StoreUnavailable as error:
        return error.message
    if memory.share >= FULL:
        return f"Redis is full ({memory})"
    if any(each.in_service for each in found):
        return ""
    return next((each.obstacle for each in found if each.alive and each.obstacle), "")
