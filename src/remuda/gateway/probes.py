"""What a gateway says of itself and of the herd, to load balancers and operators. It asks no other process
for it, so it answers whatever hangs.

`/healthz` is for load balancers: this gateway takes requests. `/readyz` is for people and alarms: a session
could be created, or what is in the way. A load balancer that asked the second would take every gateway out of
service as soon as the last slot is drained.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from msgspec import UNSET, Struct, UnsetType, json

from remuda.base.errors import Draining, RemudaError, StoreUnavailable, Unavailable
from remuda.fleet.origin import Origin
from remuda.fleet.relay import Answer, Request
from remuda.fleet.room import Surroundings

# Below the second after which probes give up: Kubernetes does so unless told otherwise.
PATIENCE = 0.8
_NOT_CACHED = (("Cache-Control", "no-cache"),)

AskComponent = Callable[[], Awaitable[str]]
"""Says in a sentence that a component works; raises Unavailable with what is wrong."""


class Component(Struct):
    """One thing that the herd needs, and how it is."""

    ready: bool
    message: str


class Readiness(Struct):
    """Whether a session could be created."""

    ready: bool
    message: str
    components: dict[str, Component]
    error: dict[str, str] | UnsetType = UNSET
    """As in every answer of the API that is an error."""


class Probes:
    """Answers `/healthz` and `/readyz`."""

    def __init__(
        self,
        on: Surroundings,
        *,
        is_draining: Callable[[], bool],
        count_apis: Callable[[], int],
        patience: float = PATIENCE,
    ) -> None:
        self._on = on
        self._is_draining = is_draining
        self._count_apis = count_apis
        self._patience = patience

    def route(self, request: Request, _origin: Origin) -> Answer | Awaitable[Answer]:
        if request.target.partition("?")[0] == "/readyz":
            return self._check()
        if self._is_draining():
            raise Draining
        body = {"ready": True, "message": "This gateway takes requests."}
        return Answer(200, json.encode(body), headers=_NOT_CACHED)

    async def _check(self) -> Answer:
        checks: dict[str, AskComponent] = {"redis": self._check_redis}
        for room in self._on.rooms:
            if room.check_readiness is not None:
                checks[room.name] = partial(room.check_readiness, self._on)
        found = dict(zip(checks, await asyncio.gather(*map(self._ask, checks.values())), strict=True))
        components = {
            name: Component(not isinstance(each, RemudaError), str(each)) for name, each in found.items()
        }
        # Sessions need no api, so it is told apart from the rest.
        apis = self._count_apis()
        components["api"] = Component(bool(apis), f"{apis} running.")
        return _answer(found, components)

    async def _ask(self, check: AskComponent) -> str | RemudaError:
        try:
            async with asyncio.timeout(self._patience):
                return await check()
        except TimeoutError:
            return StoreUnavailable()
        except RemudaError as error:
            return error

    async def _check_redis(self) -> str:
        await self._on.store.send("PING")
        return "Redis answers."


def _answer(found: Mapping[str, str | RemudaError], components: dict[str, Component]) -> Answer:
    wrong = [each for each in found.values() if isinstance(each, RemudaError)]
    if not wrong:
        said = " ".join(str(each) for name, each in found.items() if name != "redis")
        return Answer(200, json.encode(Readiness(True, said, components)), headers=_NOT_CACHED)
    # The last is the one that says most of what a client would notice.
    error = wrong[-1] if isinstance(wrong[-1], Unavailable) else Unavailable(wrong[-1].message)
    readiness = Readiness(False, error.message, components, error.api_face()["error"])
    return Answer(error.status, json.encode(readiness), headers=tuple(error.headers().items()))
