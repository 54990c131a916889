"""Videos under the address at which Selenoid keeps them: `/video/<session id>.mp4`."""

from starlette.requests import Request
from starlette.responses import RedirectResponse

from remuda.base.errors import Lost
from remuda.base.ids import SessionId, is_uuid
from remuda.storage.removal import ask_deletion
from remuda.web.handlers import Deleted
from remuda.web.herd import Herd

SUFFIX = ".mp4"


async def get_video(herd: Herd, request: Request) -> RedirectResponse:
    """Sends who asks to the storage, which serves it in parts if wanted."""
    session = _session_of(request)
    detail = await herd.view.session(session)
    given = detail.actual_capabilities
    video = given.get("remuda:video") if isinstance(given, dict) else None
    if detail.video_url is None or not isinstance(video, dict):
        raise Lost(f"Session {session} has no video")
    return RedirectResponse(video["file"], 307, headers={"Cache-Control": "no-cache"})


async def delete_video(herd: Herd, request: Request) -> Deleted:
    session = _session_of(request)
    await ask_deletion(herd.store, session)
    return Deleted(session)


def _session_of(request: Request) -> SessionId:
    name: str = request.path_params["name"]
    session = name.removesuffix(SUFFIX)
    # Checked before it becomes part of a key.
    if session == name or not is_uuid(session):
        raise Lost(f"There is no video {name[:100]!r}; its name would be <session id>{SUFFIX}")
    return SessionId(session)
