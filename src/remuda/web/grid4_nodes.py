"""What Selenium Grid lets an operator do with its nodes, which are our orchestrators: drain one, ask it for a
session, end that.

Grid wants an `X-REGISTRATION-SECRET` for all of it; here the front door decides who may come in.
"""

from msgspec import Struct
from starlette.requests import Request

from remuda.base.errors import InvalidArgument, SessionLost
from remuda.base.log import get_logger
from remuda.grid.model import State
from remuda.grid.view import orchestrators
from remuda.web.handlers import end_session
from remuda.web.herd import Herd

log = get_logger(__name__)

DRAINED = "Node status was successfully set to draining."


class DrainAnswer(Struct):
    """The answer to `/se/grid/node/drain`."""

    value: bool
    message: str


class OwnerAnswer(Struct):
    """The answer to `/se/grid/node/owner/{session}`."""

    value: bool


class StopAnswer(Struct):
    """The answer to `DELETE /se/grid/node/session/{session}`."""

    value: None


async def drain_node(herd: Herd, request: Request) -> DrainAnswer:
    """`POST /se/grid/distributor/node/{node}/drain`, or without a name where there is but one node."""
    node = request.path_params.get("node") or await _only_node(herd)
    await herd.draining.begin(await herd.draining.find(node))
    log.info("orchestrator taken out of service", orchestrator=node)
    return DrainAnswer(value=True, message=DRAINED)


async def _only_node(herd: Herd) -> str:
    names = [each.id for each in await orchestrators(herd.store)]
    if len(names) == 1:
        return names[0]
    told = f"there are {', '.join(names)}" if names else "there is none"
    raise InvalidArgument(f"Name one, at /se/grid/distributor/node/<id>/drain; {told}.")


async def owns_session(herd: Herd, request: Request) -> OwnerAnswer:
    """`GET /se/grid/node/owner/{session}`."""
    try:
        found = await herd.view.session(request.path_params["session"])
    except SessionLost:
        return OwnerAnswer(value=False)
    return OwnerAnswer(value=found.state is not State.TERMINATED)


async def stop_session(herd: Herd, request: Request) -> StopAnswer:
    """`DELETE /se/grid/node/session/{session}`."""
    await end_session(herd, request)
    return StopAnswer(None)
